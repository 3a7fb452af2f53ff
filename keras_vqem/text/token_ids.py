"""TokenIds: tokenized sentences in one flat array, in memory or in a file."""

import os
from collections.abc import Iterable, Sequence

import numpy as np

from keras_vqem.files import replacing
from keras_vqem.ids import EOS_ID, PAD_ID

# Number of ids that are looked at together, to bound the memory that takes.
CHUNK = 1 << 24


class TokenIds(Sequence):
    """Tokenized sentences, one after the other in one array.

    They take a fraction of the memory of a list of arrays. Those that `load` returns
    take next to none: the array is a memory map of a file, whose pages the system reads
    when they are needed and may drop again.

    Args:
        ids: Ids of all sentences, an integer array `[T]`.
        offsets: Integer array `[N + 1]`, where sentence n has the ids from place
            `offsets[n]` to before `offsets[n + 1]`.

    Example:

    >>> from keras_vqem.text import TokenIds
    >>> sentences = TokenIds.from_sentences([[7, 8, 1], [9, 1]])
    >>> len(sentences), sentences[1]
    (2, array([9, 1], dtype=int32))
    >>> sentences.padded([1, 0], (3, 4))
    array([[9, 1, 0, 0],
           [7, 8, 1, 0],
           [0, 0, 0, 0]], dtype=int32)
    """

    def __init__(self, ids: np.ndarray, offsets: np.ndarray):
        self.ids, self.offsets = ids, offsets

    @classmethod
    def from_sentences(
        cls, sentences: Sequence[Sequence[int] | np.ndarray]
    ) -> "TokenIds":
        """Copies sentences into one array.

        Args:
            sentences: List of integer arrays, each with the end symbol at its end.

        Returns:
            A `TokenIds`.

        Raises:
            ValueError: If an id is that of padding, or below.
        """
        lengths = [len(ids) for ids in sentences]
        ids = np.zeros(sum(lengths), np.int32)
        if len(ids):
            np.concatenate(sentences, out=ids, casting="unsafe")
        if (ids <= PAD_ID).any():
            raise ValueError(
                f"A sentence contains the id {ids.min()}, but ids must be above "
                f"{PAD_ID}, the id of padding. Pass ids without padding, such as those "
                "of SentencePieceTokenizer.encode_lines."
            )
        return cls(ids, np.cumsum([0, *lengths], dtype=np.int64))

    @classmethod
    def from_flat(cls, ids: np.ndarray) -> "TokenIds":
        """Finds the sentences in an array of ids, which is not copied.

        Args:
            ids: Ids of all sentences, an integer array `[T]` with the end symbol at
                the end of each sentence and nowhere else.

        Returns:
            A `TokenIds`.

        Raises:
            ValueError: If the array does not end in an end symbol.
        """
        if ids.ndim != 1 or (len(ids) and ids[-1] != EOS_ID):
            raise ValueError(
                f"Ids of shape {ids.shape} do not end in the end symbol, {EOS_ID}. "
                "Pass one array of complete sentences."
            )
        ends = [
            np.flatnonzero(ids[start : start + CHUNK] == EOS_ID) + (start + 1)
            for start in range(0, len(ids), CHUNK)
        ]
        return cls(ids, np.concatenate([np.zeros(1, np.int64), *ends]))

    @classmethod
    def load(cls, path: str | os.PathLike) -> "TokenIds":
        """Opens a file that `save` wrote, as a memory map.

        Args:
            path: Path of the file.

        Returns:
            A `TokenIds`.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is not complete.
        """
        return cls.from_flat(np.load(path, mmap_mode="r", allow_pickle=False))

    @staticmethod
    def save(
        path: str | os.PathLike, parts: Iterable[np.ndarray], vocabulary_size: int
    ) -> None:
        """Writes sentences part by part, so that they need not fit into memory.

        An id takes two bytes in a `vocabulary_size` of up to 2 ** 16, else four.

        Args:
            path: Path of the `.npy` file to write.
            parts: Arrays of the ids of some sentences, one after the other, each with
                the end symbol at its end and nowhere else.
            vocabulary_size: Number of different ids.
        """
        dtype = np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.int32)
        total = 0
        with replacing(path) as temporary, open(temporary, "wb") as file:
            _write_header(file, dtype, total)
            for ids in parts:
                file.write(ids.astype(dtype))
                total += len(ids)
            # NumPy leaves room for any number in the header of a file.
            file.seek(0)
            _write_header(file, dtype, total)

    @property
    def lengths(self) -> np.ndarray:
        """Number of ids of each sentence, an int32 array `[N]`."""
        return np.diff(self.offsets).astype(np.int32)

    def padded(
        self, places: Sequence[int] | np.ndarray, shape: tuple[int, int]
    ) -> np.ndarray:
        """Returns some of the sentences as rows of an array.

        Args:
            places: Numbers of the sentences, an integer array `[R]`.
            shape: Number of rows, at least R, and number of columns, at least the
                length of each of these sentences.

        Returns:
            Ids, an int32 array of this shape. What no sentence fills is padding.
        """
        places = np.asarray(places)
        starts = self.offsets[places]
        columns = np.arange(shape[1])
        real = columns < (self.offsets[places + 1] - starts)[:, None]
        padded = np.full(shape, PAD_ID, np.int32)
        padded[: len(places)][real] = self.ids[(starts[:, None] + columns)[real]]
        return padded

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, place: int) -> np.ndarray:
        start, stop = self.offsets[range(len(self))[place] :][:2]
        return self.ids[start:stop]


def as_token_ids(
    sentences: TokenIds | Sequence[Sequence[int] | np.ndarray],
) -> TokenIds:
    """Returns sentences as `TokenIds`, which are not copied if they already are."""
    if isinstance(sentences, TokenIds):
        return sentences
    return TokenIds.from_sentences(sentences)


def checked_lengths(sentences: TokenIds) -> np.ndarray:
    """Returns the lengths of sentences, or raises if one of them has no ids."""
    lengths = sentences.lengths
    if not lengths.all():
        raise ValueError(
            f"Sentence {np.argmin(lengths)} has no ids, not even the end symbol. Make "
            "ids with SentencePieceTokenizer.encode_lines, which adds the end symbol."
        )
    return lengths


def _write_header(file, dtype, length):
    header = {"descr": dtype.str, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(file, header)
