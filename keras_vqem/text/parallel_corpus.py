"""ParallelCorpus: sentences and their translations, pair by pair."""

import codecs
import contextlib
import gzip
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from keras_vqem.files import replacing
from keras_vqem.text import numbers


class ParallelCorpus:
    """Sentence pairs as two lists of strings of the same length.

    Reading a corpus changes and removes no pairs; `keras_vqem.text.clean` removes pairs
    on request. Bytes that are not UTF-8 stay in the strings as lone surrogates
    (Python's `surrogateescape`): `clean` finds these lines, and `save` writes the
    original bytes again.

    Args:
        sources: Source sentences, an iterable of strings.
        targets: Target sentences, as many as there are sources, in the same order.

    Example:

    >>> from keras_vqem.text import ParallelCorpus
    >>> corpus = ParallelCorpus.from_numbers(1000)
    >>> len(corpus)
    1000
    >>> source, target = next(iter(corpus))
    """

    def __init__(self, sources: Iterable[str], targets: Iterable[str]):
        self.sources, self.targets = list(sources), list(targets)
        if len(self.sources) != len(self.targets):
            raise ValueError(
                f"There are {len(self.sources)} sources but {len(self.targets)} "
                "targets. Pass two lists of the same length, pair by pair."
            )
        for text in itertools.chain(self.sources, self.targets):
            if not isinstance(text, str):
                raise ValueError(
                    f"Sentences must be of type str, not {type(text).__name__}: "
                    f"{text!r}. Decode bytes with .decode('utf-8')."
                )

    @classmethod
    def from_lists(
        cls, sources: Iterable[str], targets: Iterable[str]
    ) -> "ParallelCorpus":
        """Makes a corpus of two lists of strings, like the constructor.

        Args:
            sources: Source sentences, an iterable of strings.
            targets: Target sentences, as many as there are sources, in the same order.

        Returns:
            A `ParallelCorpus`.
        """
        return cls(sources, targets)

    @classmethod
    def from_files(
        cls, source_path: str | os.PathLike, target_path: str | os.PathLike
    ) -> "ParallelCorpus":
        """Reads two files in which line n of one translates line n of the other.

        Lines end in a line feed, or in a carriage return and a line feed; no other
        character splits lines. A byte order mark before the first line is left out.
        Files whose names end in `.gz` are read as gzip files.

        Args:
            source_path: Path of the source sentences, UTF-8, one per line.
            target_path: Path of the target sentences, UTF-8, one per line.

        Returns:
            A `ParallelCorpus`.

        Raises:
            ValueError: If the files have different numbers of lines.
        """
        sources, targets = read_lines(source_path), read_lines(target_path)
        check_lines(source_path, len(sources), target_path, len(targets))
        return cls(sources, targets)

    @classmethod
    def from_numbers(
        cls, count: int, seed: int = 0, split: str = "train"
    ) -> "ParallelCorpus":
        """Generates numbers, dates and clock times in English and German words.

        See `keras_vqem.text.numbers`.

        Args:
            count: Number of pairs.
            seed: Integer that selects the sample of pairs.
            split: Name of the split, `"train"`, `"validation"` or `"test"`. Splits are
                disjoint.

        Returns:
            A `ParallelCorpus`.
        """
        return cls(*zip(*numbers.pairs(count, seed=seed, split=split), strict=True))

    @classmethod
    def from_tfds(
        cls,
        name: str = "wmt14_translate/de-en",
        split: str = "train",
        source_language: str = "en",
        target_language: str = "de",
        data_dir: str | os.PathLike | None = None,
    ) -> "ParallelCorpus":
        """Reads a translation data set that TensorFlow Datasets has prepared.

        Nothing is downloaded.

        Args:
            name: Name of the data set and its configuration.
            split: Split of the data set, for example `"train"` or `"train[:1%]"`.
            source_language: Name of the feature with the source sentences.
            target_language: Name of the feature with the target sentences.
            data_dir: Path of the folder of prepared data sets. None means the default
                folder of TensorFlow Datasets.

        Returns:
            A `ParallelCorpus`.

        Raises:
            FileNotFoundError: If the data set is not prepared in `data_dir`.
            ValueError: If the data set does not have both languages.
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
                f"{name} has the languages {languages}, but "
                f"{source_language!r} and {target_language!r} were asked for. Pass two "
                "of its languages as source_language and target_language."
            )
        sources, targets = [], []
        for pair in builder.as_dataset(split=split).as_numpy_iterator():
            sources.append(_decode(pair[source_language]))
            targets.append(_decode(pair[target_language]))
        return cls(sources, targets)

    def repeated(self, times: float, seed: int = 0) -> "ParallelCorpus":
        """Returns a corpus with every pair repeated, to give it a weight in a mixture.

        Args:
            times: Number of times that each pair comes up. With 2.5, every pair comes
                up twice, and a random half of them once more.
            seed: Integer that selects that random part.

        Returns:
            A `ParallelCorpus`.
        """
        if not 0 < times < float("inf"):
            raise ValueError(f"`times` must be above 0, received {times}.")
        whole, part = int(times), round((times - int(times)) * len(self))
        some = np.random.default_rng(seed).permutation(len(self))[:part]
        places = [*[np.arange(len(self))] * whole, np.sort(some)]
        return self.take(np.concatenate(places))

    def take(self, places: Sequence[int] | np.ndarray) -> "ParallelCorpus":
        """Returns a corpus of some of the pairs.

        Args:
            places: Numbers of the pairs, counted from 0.

        Returns:
            A `ParallelCorpus`.
        """
        sides = (self.sources, self.targets)
        return ParallelCorpus(*([side[i] for i in places] for side in sides))

    def map(self, function: Callable[[str], str]) -> "ParallelCorpus":
        """Returns a corpus with all sentences changed by a function.

        Args:
            function: Function from a string to a string.

        Returns:
            A `ParallelCorpus`.
        """
        return ParallelCorpus(map(function, self.sources), map(function, self.targets))

    def save(
        self,
        folder: str | os.PathLike,
        name: str,
        suffixes: tuple[str, str] = ("source", "target"),
    ) -> tuple[pathlib.Path, pathlib.Path]:
        """Writes two files with one sentence per line, which `from_files` reads.

        Args:
            folder: Path of the folder, which is created if missing.
            name: Name of both files before the dot, for example `"train"`.
            suffixes: Suffixes of the source and the target file, after the dot; for
                example `("en", "de")`.

        Returns:
            A tuple of the paths of the source and the target file.

        Raises:
            ValueError: If a sentence contains a line break or cannot be encoded.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = tuple(folder / f"{name}.{suffix}" for suffix in suffixes)
        with contextlib.ExitStack() as stack:  # Both files, or neither.
            for path, side in zip(paths, (self.sources, self.targets), strict=True):
                temporary = stack.enter_context(replacing(path))
                with open(temporary, "wb") as file:
                    file.writelines(_encoded(side))
        return paths

    def __add__(self, other: "ParallelCorpus") -> "ParallelCorpus":
        return ParallelCorpus(
            self.sources + other.sources, self.targets + other.targets
        )

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.sources, self.targets, strict=True)


def _decode(line):
    return line.decode("utf-8", "surrogateescape")


def read_lines(path: str | os.PathLike) -> list[str]:
    """Reads the lines of a file as `ParallelCorpus.from_files` does.

    Args:
        path: Path of a UTF-8 file with one sentence per line, plain or `.gz`.

    Returns:
        List of strings without line ends.
    """
    return list(iterate_lines(path))


def iterate_lines(path: str | os.PathLike) -> Iterator[str]:
    """Reads the lines of a file one by one.

    Args:
        path: Path of a UTF-8 file with one sentence per line, plain or `.gz`.

    Yields:
        Strings without line ends.
    """
    mark = codecs.BOM_UTF8  # Before the first line, if at all.
    with _opened(path) as file:
        for line in file:
            line = line.removeprefix(mark)
            mark = b""
            yield _decode(line.removesuffix(b"\n").removesuffix(b"\r"))


def count_lines(path: str | os.PathLike) -> int:
    """Counts the lines of a file.

    Args:
        path: Path of a file, plain or `.gz`.

    Returns:
        The number of lines.
    """
    with _opened(path) as file:
        return sum(1 for _ in file)


def check_lines(
    source_path: str | os.PathLike,
    source_count: int,
    target_path: str | os.PathLike,
    target_count: int,
) -> int:
    """Checks that two files have the same number of lines.

    Args:
        source_path: Path of the source sentences.
        source_count: Number of lines of that file.
        target_path: Path of the target sentences.
        target_count: Number of lines of that file.

    Returns:
        The number of lines.

    Raises:
        ValueError: If the numbers differ.
    """
    if source_count != target_count:
        raise ValueError(
            f"{source_path} has {source_count} lines, but {target_path} has "
            f"{target_count}. Line n of one file must translate line n of the "
            "other: pass both sides of the same corpus, each complete."
        )
    return source_count


def _opened(path):
    path = pathlib.Path(path)
    return (gzip.open if path.suffix == ".gz" else open)(path, "rb")


def _encoded(side):
    """Yields sentences as the lines of a file in which line n is sentence n."""
    for number, text in enumerate(side, start=1):
        if "\n" in text or text.endswith("\r"):
            raise ValueError(
                f"Sentence {number} holds a line break: {text!r}. Replace it with a "
                "space: the files have one sentence per line."
            )
        try:
            yield text.encode("utf-8", "surrogateescape") + b"\n"
        except UnicodeEncodeError as error:
            raise ValueError(
                f"Sentence {number} holds a lone surrogate, which UTF-8 cannot encode: "
                f"{text!r}. Remove such pairs with keras_vqem.text.clean(corpus)."
            ) from error
