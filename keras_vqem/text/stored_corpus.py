"""StoredCorpus: sentence pairs that stay in their files."""

import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_vqem.text.parallel_corpus import (
    ParallelCorpus,
    check_lines,
    count_lines,
    iterate_lines,
)


class StoredCorpus(ParallelCorpus):
    """Sentence pairs in two files, which are read whenever one iterates over them.

    It takes 8 bytes of memory per pair, and can do what preparing a corpus needs:
    `take`, `map`, `repeated`, `+`, `save` and `keras_vqem.text.clean`. `sources` and
    `targets` are iterables, not lists: they can be read in order only.

    Args:
        source_path: Path of the source sentences, as in `ParallelCorpus.from_files`.
        target_path: Path of the target sentences.

    Example:

    >>> import pathlib, tempfile
    >>> from keras_vqem.text.stored_corpus import StoredCorpus
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> paths = ParallelCorpus(["one", "two"], ["eins", "zwei"]).save(folder, "train")
    >>> list(StoredCorpus(*paths).repeated(1.5))
    [('one', 'eins'), ('two', 'zwei'), ('one', 'eins')]
    """

    def __init__(self, source_path: str | os.PathLike, target_path: str | os.PathLike):
        count = check_lines(
            source_path, count_lines(source_path), target_path, count_lines(target_path)
        )
        places = np.arange(count)
        self.sources, self.targets = (
            StoredLines([_Part(pathlib.Path(path), count, places)])
            for path in (source_path, target_path)
        )

    def take(self, places: Sequence[int] | np.ndarray) -> "StoredCorpus":
        return self._made(self.sources.take(places), self.targets.take(places))

    def map(self, function: Callable[[str], str]) -> "StoredCorpus":
        return self._made(self.sources.map(function), self.targets.map(function))

    def __add__(self, other: "StoredCorpus") -> "StoredCorpus":
        return self._made(self.sources + other.sources, self.targets + other.targets)

    def _made(self, sources, targets):
        made = object.__new__(StoredCorpus)
        made.sources, made.targets = sources, targets
        return made


class _Part(NamedTuple):
    """Some of the `num_lines` lines of a file, each changed by a function."""

    path: pathlib.Path
    num_lines: int
    places: np.ndarray
    function: Callable[[str], str] = str


class StoredLines:
    """Lines of files, read whenever one iterates over them."""

    def __init__(self, parts: list[_Part]):
        self._parts = parts

    def take(self, places: Sequence[int] | np.ndarray) -> "StoredLines":
        """Returns the lines at some places, which best are in ascending order."""
        places = np.asarray(places, np.int64)
        starts = np.cumsum([0, *(len(part.places) for part in self._parts)])
        numbers = np.searchsorted(starts, places, side="right") - 1
        turns = [0, *np.flatnonzero(np.diff(numbers)) + 1, len(places)]
        parts = []
        for first, last in itertools.pairwise(turns if len(places) else ()):
            number = numbers[first]
            part = self._parts[number]
            chosen = part.places[places[first:last] - starts[number]]
            parts.append(part._replace(places=chosen))
        return StoredLines(parts)

    def map(self, function: Callable[[str], str]) -> "StoredLines":
        """Returns the lines, each changed by a function."""
        return StoredLines(
            [
                part._replace(function=lambda line, f=part.function: function(f(line)))
                for part in self._parts
            ]
        )

    def __add__(self, other: "StoredLines") -> "StoredLines":
        return StoredLines(self._parts + other._parts)

    def __len__(self) -> int:
        return sum(len(part.places) for part in self._parts)

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            # The file is read once for every run of ascending places.
            turns = np.flatnonzero(np.diff(part.places) <= 0) + 1
            for places in np.split(part.places, turns):
                wanted = np.zeros(part.num_lines, bool)
                wanted[places] = True
                lines = itertools.compress(iterate_lines(part.path), wanted.tobytes())
                yield from map(part.function, lines)
