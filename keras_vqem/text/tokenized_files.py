"""Ids of a file of sentences, kept in files beside it.

The name of such a file has a hash of the text and the tokenizer. So a file that does
not belong to them, because either has changed, is not found. Two processes that write
the same file at once write the same content.
"""

import hashlib
import pathlib

import numpy as np

from keras_vqem.text.parallel_corpus import iterate_lines
from keras_vqem.text.sentencepiece_tokenizer import SentencePieceTokenizer
from keras_vqem.text.token_ids import TokenIds

FOLDER = "ids"
VERSION = 1  # To be raised when the same text and tokenizer give other ids or files.


def read_ids(text: pathlib.Path, tokenizer: SentencePieceTokenizer) -> TokenIds:
    """Returns the ids of a file of sentences, tokenizing it only if it has to be.

    Args:
        text: Path of a file with one sentence per line.
        tokenizer: The `SentencePieceTokenizer`.

    Returns:
        A `TokenIds`: a memory map, or in memory if no file can be written.
    """
    path = _path(text, tokenizer)
    try:
        return TokenIds.load(path)
    except (EOFError, OSError, ValueError):  # There is none, or it is damaged.
        print(f"{text}: tokenizing, once", flush=True)
    try:
        write_ids(text, tokenizer)
        return TokenIds.load(path)
    except OSError as error:
        print(
            f"The ids of {text} are not kept ({error}): every start tokenizes it "
            f"again. To avoid this, make {path.parent} writable once.",
            flush=True,
        )
    parts = [np.zeros(0, np.int32), *_parts(text, tokenizer)]
    return TokenIds.from_flat(np.concatenate(parts))


def write_ids(text: pathlib.Path, tokenizer: SentencePieceTokenizer) -> None:
    """Tokenizes a file of sentences, and writes the ids for `read_ids`.

    Args:
        text: Path of a file with one sentence per line.
        tokenizer: The `SentencePieceTokenizer`.

    Raises:
        ValueError: If the text changes meanwhile.
    """
    path = _path(text, tokenizer)
    path.parent.mkdir(exist_ok=True)
    TokenIds.save(path, _parts(text, tokenizer), tokenizer.vocabulary_size)
    if _path(text, tokenizer) != path:
        path.unlink(missing_ok=True)
        raise ValueError(f"{text} has changed while it was tokenized. Start again.")
    for other in path.parent.glob(f"{text.name}.*{path.suffix}"):
        if other != path:
            other.unlink(missing_ok=True)


def _parts(text, tokenizer):
    for ids in tokenizer.encode_chunks(iterate_lines(text)):
        yield ids.flat_values.numpy()


def _path(text, tokenizer):
    with open(text, "rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    key = f"{VERSION} {tokenizer.sha256} {content}"
    name = f"{text.name}.{hashlib.sha256(key.encode()).hexdigest()[:16]}.npy"
    return text.parent / FOLDER / name
