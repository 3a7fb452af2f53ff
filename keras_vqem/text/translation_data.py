"""TranslationData: a folder with a tokenizer and line-aligned splits."""

import json
import pathlib

from keras_vqem.files import write_json
from keras_vqem.text.batches import TokenBatches
from keras_vqem.text.parallel_corpus import ParallelCorpus
from keras_vqem.text.sentencepiece_tokenizer import SentencePieceTokenizer


class TranslationData:
    """What `recipes/prepare_translation.py` writes and the trainers read.

    The folder holds `data.json` (the two languages), `tokenizer.model`, and for each
    split two line-aligned files such as `train.en` and `train.de`.

    Args:
        folder: The folder.

    Example:

    >>> import tempfile
    >>> from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer
    >>> from keras_vqem.text import TranslationData
    >>> train = ParallelCorpus.from_numbers(500)
    >>> lines = train.sources + train.targets
    >>> tokenizer = SentencePieceTokenizer.train(lines, vocabulary_size=400)
    >>> folder = tempfile.mkdtemp()
    >>> data = TranslationData.create(folder, "en", "de", tokenizer, {"train": train})
    >>> data.splits
    ['train']
    >>> TranslationData(folder).corpus("train").sources == train.sources
    True
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        path = self.folder / "data.json"
        if not path.exists():
            raise FileNotFoundError(
                f"{self.folder} holds no prepared data (no data.json). Make it with "
                f"recipes/prepare_translation.py."
            )
        languages = json.loads(path.read_text())
        self.source, self.target = languages["source"], languages["target"]
        self.tokenizer = SentencePieceTokenizer.from_file(
            self.folder / "tokenizer.model"
        )

    @classmethod
    def create(cls, folder, source, target, tokenizer, splits):
        """Writes such a folder.

        Args:
            folder: Created if missing.
            source, target: The languages, as ends of file names: `"en"`, `"de"`.
            tokenizer: A `SentencePieceTokenizer`.
            splits: A dict from names, such as `"train"`, to `ParallelCorpus`.

        Returns:
            The `TranslationData`.

        Raises:
            FileExistsError: If the folder holds such data already: models may have
                been trained with its tokenizer.
            ValueError: If the languages are the same, or a sentence is not one line.
        """
        folder = pathlib.Path(folder)
        if source == target:
            raise ValueError(
                f"Both languages are {source!r}, and so would be the names of both "
                f"files of a split. Pass two names."
            )
        if (folder / "data.json").exists():
            raise FileExistsError(
                f"{folder} holds prepared data already. Remove it, or choose another "
                f"folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name, corpus in splits.items():
            corpus.save(folder, name, (source, target))
        tokenizer.save(folder / "tokenizer.model")
        # Last: a folder that has it is complete.
        write_json(folder / "data.json", {"source": source, "target": target})
        return cls(folder)

    @property
    def splits(self):
        """The names of the splits, sorted."""
        return sorted(path.stem for path in self.folder.glob(f"*.{self.source}"))

    def corpus(self, split):
        """The `ParallelCorpus` of a split."""
        if split not in self.splits:
            raise FileNotFoundError(
                f"{self.folder} has no split {split!r}; it has "
                f"{', '.join(self.splits)}."
            )
        return ParallelCorpus.from_files(
            self.folder / f"{split}.{self.source}",
            self.folder / f"{split}.{self.target}",
        )

    def batches(self, split, tokens_per_batch, **options):
        """The `TokenBatches` of a split; `options` are its arguments."""
        corpus = self.corpus(split)
        encode = self.tokenizer.encode_lines
        return TokenBatches(
            encode(corpus.sources), encode(corpus.targets), tokens_per_batch, **options
        )
