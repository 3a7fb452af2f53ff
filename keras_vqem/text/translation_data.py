"""TranslationData: a folder with a tokenizer and line-aligned splits."""

import os
import pathlib
from typing import Any

from keras_vqem.files import read_json, write_json
from keras_vqem.text.batches import TokenBatches
from keras_vqem.text.parallel_corpus import ParallelCorpus, check_lines
from keras_vqem.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_vqem.text.token_ids import TokenIds
from keras_vqem.text.tokenized_files import read_ids, write_ids


class TranslationData:
    """A folder of data prepared for training translators.

    `recipes/prepare_translation.py` writes such a folder, and the training recipes
    read it. It contains `data.json` (the two languages), `tokenizer.model`, and two
    line-aligned files per split, such as `train.en` and `train.de`. Its folder `ids`
    contains the same sentences as ids, which are memory-mapped. They are found by a
    hash of the text and the tokenizer: when either changes, or `ids` is removed, the
    next use of the split tokenizes it again.

    Args:
        folder: Path of the folder.

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

    def __init__(self, folder: str | os.PathLike):
        self.folder = pathlib.Path(folder)
        path = self.folder / "data.json"
        if not path.exists():
            raise FileNotFoundError(
                f"{self.folder} contains no prepared data (no data.json). Prepare it "
                f"with recipes/prepare_translation.py."
            )
        languages = read_json(path)
        try:
            self.source, self.target = languages["source"], languages["target"]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{path} must name the languages as `source` and `target`. Prepare "
                f"the data again."
            ) from error
        self.tokenizer = SentencePieceTokenizer.from_file(
            self.folder / "tokenizer.model"
        )

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike,
        source: str,
        target: str,
        tokenizer: SentencePieceTokenizer,
        splits: dict[str, ParallelCorpus],
    ) -> "TranslationData":
        """Writes a folder of prepared data.

        Args:
            folder: Path of the folder, which is created if missing.
            source: Name of the source language, used as a file suffix: `"en"`.
            target: Name of the target language, used as a file suffix: `"de"`.
            tokenizer: The `SentencePieceTokenizer` of both languages.
            splits: Dict from names of splits, such as `"train"`, to `ParallelCorpus`.

        Returns:
            The `TranslationData` of the folder.

        Raises:
            FileExistsError: If the folder already contains prepared data. It is not
                overwritten, because models may have been trained with its tokenizer.
            ValueError: If both languages have the same name, or if a sentence contains
                a line break.
        """
        folder = pathlib.Path(folder)
        if source == target:
            raise ValueError(
                f"Both languages are {source!r}, so both files of a split would have "
                f"the same name. Pass two different names."
            )
        if (folder / "data.json").exists():
            raise FileExistsError(
                f"{folder} already contains prepared data. Remove it, or choose "
                f"another folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        for name, corpus in splits.items():
            for path in corpus.save(folder, name, (source, target)):
                write_ids(path, tokenizer)
        tokenizer.save(folder / "tokenizer.model")
        # Written last, so that a folder with this file is complete.
        write_json(folder / "data.json", {"source": source, "target": target})
        return cls(folder)

    @property
    def splits(self) -> list[str]:
        """Names of the splits, sorted."""
        return sorted(path.stem for path in self.folder.glob(f"*.{self.source}"))

    def corpus(self, split: str) -> ParallelCorpus:
        """Reads the sentence pairs of a split.

        Args:
            split: Name of the split, one of `splits`.

        Returns:
            A `ParallelCorpus`.

        Raises:
            FileNotFoundError: If there is no such split.
        """
        return ParallelCorpus.from_files(*self._paths(split))

    def batches(self, split: str, tokens_per_batch: int, **kwargs: Any) -> TokenBatches:
        """Groups the sentence pairs of a split into batches.

        The split is tokenized if it has changed since it was last.

        Args:
            split: Name of the split, one of `splits`.
            tokens_per_batch: Maximum number of tokens per batch and side, padding
                included.
            **kwargs: Other arguments of `TokenBatches`.

        Returns:
            A `TokenBatches`.

        Raises:
            FileNotFoundError: If there is no such split.
        """
        source_ids, target_ids = self.ids(split)
        return TokenBatches(source_ids, target_ids, tokens_per_batch, **kwargs)

    def ids(self, split: str) -> tuple[TokenIds, TokenIds]:
        """Returns the tokenized sentences of a split, as memory maps.

        If the folder does not have them yet, or its text or tokenizer has changed, the
        split is tokenized first. If they cannot be written, they are kept in memory.

        Args:
            split: Name of the split, one of `splits`.

        Returns:
            A tuple of the `TokenIds` of the sources and of the targets.

        Raises:
            FileNotFoundError: If there is no such split.
            ValueError: If the two files of the split have different numbers of lines.
        """
        paths = self._paths(split)
        source_ids, target_ids = (read_ids(path, self.tokenizer) for path in paths)
        check_lines(paths[0], len(source_ids), paths[1], len(target_ids))
        return source_ids, target_ids

    def _paths(self, split):
        if split not in self.splits:
            raise FileNotFoundError(
                f"{self.folder} has no split {split!r}; it has "
                f"{', '.join(self.splits)}. Pass one of these."
            )
        return [self.folder / f"{split}.{name}" for name in (self.source, self.target)]
