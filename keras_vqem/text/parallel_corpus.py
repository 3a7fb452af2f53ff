"""ParallelCorpus: sentences and their translations, line by line."""

import gzip
import pathlib

from keras_vqem.files import replacing
from keras_vqem.text import numbers


class ParallelCorpus:
    """Sentence pairs as two lists of strings, one pair at each position.

    Nothing is changed or removed on the way in; `keras_vqem.text.clean` does that
    when it is asked to. Bytes that are not UTF-8 are kept in the strings as lone
    surrogates (Python's `surrogateescape`): `clean` finds these lines, and `save`
    writes the same bytes again.

    Args:
        sources: A list of strings.
        targets: A list of strings, of the same length.

    Example:

    >>> from keras_vqem.text import ParallelCorpus
    >>> corpus = ParallelCorpus.from_numbers(1000)
    >>> len(corpus)
    1000
    >>> source, target = next(iter(corpus))
    """

    def __init__(self, sources, targets):
        self.sources, self.targets = list(sources), list(targets)
        if len(self.sources) != len(self.targets):
            raise ValueError(
                f"There are {len(self.sources)} sources but {len(self.targets)} "
                "targets. Pass two lists of the same length, pair by pair."
            )
        for text in self.sources + self.targets:
            if not isinstance(text, str):
                raise ValueError(
                    f"Sentences must be of type str, not {type(text).__name__}: "
                    f"{text!r}. Decode bytes with .decode('utf-8')."
                )

    @classmethod
    def from_lists(cls, sources, targets):
        """Make a corpus of two lists of strings."""
        return cls(sources, targets)

    @classmethod
    def from_files(cls, source_path, target_path):
        """Read two files, of which each line translates the same line of the other.

        Lines end with a line feed or with carriage return and line feed; no other
        character splits lines. A name ending in `.gz` means a gzip file.

        Args:
            source_path: Path of the source lines, UTF-8.
            target_path: Path of the target lines, UTF-8.

        Returns:
            A `ParallelCorpus`.

        Raises:
            ValueError: If the files differ in their number of lines.
        """
        sources, targets = _read_lines(source_path), _read_lines(target_path)
        if len(sources) != len(targets):
            raise ValueError(
                f"{source_path} has {len(sources)} lines, {target_path} has "
                f"{len(targets)}. Line n of one must translate line n of the other: "
                "pass the two sides of one corpus, both complete."
            )
        return cls(sources, targets)

    @classmethod
    def from_numbers(cls, count, seed=0, split="train"):
        """Generate numbers, dates and times in English and in German.

        Args:
            count: Number of pairs.
            seed: Of the sample.
            split: `"train"`, `"validation"` or `"test"`, which are disjoint.

        Returns:
            A `ParallelCorpus`; see `keras_vqem.text.numbers`.
        """
        return cls(*zip(*numbers.pairs(count, seed=seed, split=split), strict=True))

    @classmethod
    def from_tfds(
        cls,
        name="wmt14_translate/de-en",
        split="train",
        source_language="en",
        target_language="de",
        data_dir=None,
    ):
        """Read a translation data set that TensorFlow Datasets has prepared.

        Nothing is downloaded.

        Args:
            name: Of the data set and its configuration.
            split: Of the data set, for example `"train"` or `"train[:1%]"`.
            source_language: Name of the feature with the sources.
            target_language: Name of the feature with the targets.
            data_dir: The folder of prepared data sets; None for that of TensorFlow
                Datasets.

        Returns:
            A `ParallelCorpus`.

        Raises:
            FileNotFoundError: If the data set is not prepared there.
            ValueError: If it has no such languages.
        """
        import tensorflow_datasets as tfds  # Slow to import, and rarely needed.

        try:
            builder = tfds.builder(name, data_dir=data_dir)
            prepared = builder.is_prepared()
        except tfds.core.DatasetNotFoundError:
            prepared = False
        if not prepared:
            folder = f" --data_dir={data_dir}" if data_dir else ""
            raise FileNotFoundError(
                f"{name} is not prepared in {data_dir or 'the default data_dir'}. "
                f"Download and prepare it once: tfds build {name}{folder}"
            )
        languages = sorted(builder.info.features)
        if not {source_language, target_language} <= set(languages):
            raise ValueError(
                f"{name} has the languages {languages}, not both "
                f"{source_language!r} and {target_language!r}. Pass two of them as "
                "source_language and target_language."
            )
        sources, targets = [], []
        for pair in builder.as_dataset(split=split).as_numpy_iterator():
            sources.append(_decode(pair[source_language]))
            targets.append(_decode(pair[target_language]))
        return cls(sources, targets)

    def save(self, folder, name, suffixes=("source", "target")):
        """Write two files of lines, which `from_files` reads.

        Args:
            folder: Path of a folder; it is made if need be.
            name: Of the files, before the dot.
            suffixes: Of the two files, after the dot; for example `("en", "de")`.

        Returns:
            The two paths.

        Raises:
            ValueError: If a sentence does not fit in one line of UTF-8.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = tuple(folder / f"{name}.{suffix}" for suffix in suffixes)
        contents = [_encode(side) for side in (self.sources, self.targets)]
        for path, content in zip(paths, contents, strict=True):
            with replacing(path) as temporary:
                temporary.write_bytes(content)
        return paths

    def __len__(self):
        return len(self.sources)

    def __iter__(self):
        return zip(self.sources, self.targets, strict=True)


def _decode(line):
    return line.decode("utf-8", "surrogateescape")


def _read_lines(path):
    path = pathlib.Path(path)
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    lines = content.split(b"\n")
    if not lines[-1]:  # What follows the last line feed is not a line.
        lines.pop()
    return [_decode(line.removesuffix(b"\r")) for line in lines]


def _encode(side):
    """All lines as bytes. Line n of the file must be sentence n."""
    lines = []
    for number, text in enumerate(side, start=1):
        if "\n" in text or text.endswith("\r"):
            raise ValueError(
                f"Sentence {number} holds a line break: {text!r}. Replace it by a "
                "space: the files have one sentence a line."
            )
        try:
            lines.append(text.encode("utf-8", "surrogateescape") + b"\n")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Sentence {number} holds a lone surrogate, which UTF-8 cannot write: "
                f"{text!r}. Remove such pairs with keras_vqem.text.clean(corpus)."
            ) from error
    return b"".join(lines)
