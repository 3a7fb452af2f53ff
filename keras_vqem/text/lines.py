"""Texts as lines of a file or a stream: one line in, one line out."""

import os
import select


def one_line(text):
    """The text with spaces for line breaks, so that it is one line of a file.

    A tokenizer that spells rare characters in bytes can write any byte.

    Example:

    >>> from keras_vqem.text.lines import one_line
    >>> one_line("eins\\r\\nzwei")
    'eins  zwei'
    """
    return text.replace("\n", " ").replace("\r", " ")


def line_chunks(descriptor, most):
    """Yields lines as they come: many at a time from a file, one from a person.

    A chunk ends when it has `most` lines, or when nothing more can be read at once.

    Args:
        descriptor: Number of an open file, pipe or terminal.
        most: The largest number of lines in a chunk.

    Yields:
        Lists of bytes, without line ends. A last line needs no line end.
    """
    lines, rest = [], b""
    while piece := os.read(descriptor, 1 << 16):
        *complete, rest = (rest + piece).split(b"\n")
        lines += complete
        while len(lines) >= most:
            yield [line.removesuffix(b"\r") for line in lines[:most]]
            lines = lines[most:]
        # A regular file always has more, until its end.
        if lines and not select.select([descriptor], [], [], 0)[0]:
            yield [line.removesuffix(b"\r") for line in lines]
            lines = []
    lines += [rest] if rest else []
    for start in range(0, len(lines), most):
        yield [line.removesuffix(b"\r") for line in lines[start : start + most]]


def is_utf8(text):
    """Whether a string can be written: bytes that were not UTF-8 cannot."""
    # They were read as lone surrogates.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
