"""Texts as lines of a file or a stream: one line in, one line out."""

import codecs
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence

# Lines before a very long one need not wait for it.
CHUNK_BYTES = 10**6


def one_line(text: str) -> str:
    """Replaces line breaks with spaces, so that a text is one line of a file.

    Translations need this: a tokenizer that spells rare characters as bytes can write
    any byte, line breaks included.

    Args:
        text: A string.

    Returns:
        The string without line breaks.

    Example:

    >>> from keras_vqem.text.lines import one_line
    >>> one_line("eins\\r\\nzwei")
    'eins  zwei'
    """
    return text.replace("\n", " ").replace("\r", " ")


def line_chunks(descriptor: int, chunk_size: int) -> Iterator[list[bytes]]:
    """Yields lines as they arrive: many at a time from a file, one from a person.

    A chunk ends when it has `chunk_size` lines, when a million bytes were read, or when
    no more input is waiting. A byte order mark before the first line is left out.

    Args:
        descriptor: File descriptor of an open file, pipe or terminal.
        chunk_size: Maximum number of lines per chunk.

    Yields:
        Lists of lines as bytes, without line breaks. The last line need not end in
        one.
    """
    mark = codecs.BOM_UTF8
    for lines in _raw_chunks(descriptor, chunk_size):
        lines[0] = lines[0].removeprefix(mark)
        mark = b""
        yield [line.removesuffix(b"\r") for line in lines]


def _raw_chunks(descriptor, chunk_size):
    lines, rest = [], []  # A long line comes in many pieces, joined at its end.
    while piece := os.read(descriptor, 1 << 16):
        *complete, last = piece.split(b"\n")
        if complete:
            complete[0] = b"".join([*rest, complete[0]])
            lines += complete
            rest = []
        rest.append(last)
        while len(lines) >= chunk_size:
            yield lines[:chunk_size]
            lines = lines[chunk_size:]
        # A regular file is always ready to be read, so its chunks are full.
        waiting = select.select([descriptor], [], [], 0)[0]
        if lines and (not waiting or sum(map(len, lines + rest)) >= CHUNK_BYTES):
            yield lines
            lines = []
    last = b"".join(rest)
    lines += [last] if last else []
    for start in range(0, len(lines), chunk_size):
        yield lines[start : start + chunk_size]


def answer_lines(
    translate: Callable[[list[str]], list[str]],
    chunk_size: int,
    file: str | os.PathLike | None = None,
    texts: Sequence[str] = (),
) -> None:
    """Writes translations of lines to standard output, as the lines arrive.

    Line n of the output translates line n of the input. The translation of a blank
    line is an empty line. Bytes that are not UTF-8 are read as U+FFFD, and a byte order
    mark before the first line is left out.

    Args:
        translate: Function from a list of strings to the list of their translations.
        chunk_size: Maximum number of lines per call of `translate`.
        file: Path of a file with one text per line. None reads standard input.
        texts: Strings to translate. If there are any, no file is read.
    """
    try:
        for lines in _given(chunk_size, file, texts):
            sys.stdout.buffer.write(_answers(translate, lines))
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader, `head` perhaps, has closed the pipe. Python would print an error
        # at exit if standard output still led there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _given(chunk_size, file, texts):
    if texts:
        lines = [os.fsencode(text) for text in texts]
        for start in range(0, len(lines), chunk_size):
            yield lines[start : start + chunk_size]
        return
    # Unbuffered, because line_chunks asks the system whether more input is waiting.
    with open(
        sys.stdin.fileno() if file is None else file,
        "rb",
        buffering=0,
        closefd=file is not None,
    ) as source:
        yield from line_chunks(source.fileno(), chunk_size)


def _answers(translate, lines):
    """Translates lines of bytes, and returns the translations as one block of lines."""
    texts = [line.decode("utf-8", "replace") for line in lines]
    places = [place for place, text in enumerate(texts) if text.strip()]
    found = [""] * len(texts)
    outputs = translate([texts[place] for place in places]) if places else []
    for place, output in zip(places, outputs, strict=True):
        found[place] = one_line(output)
    return "".join(text + "\n" for text in found).encode("utf-8", "replace")


def is_utf8(text: str) -> bool:
    """Returns whether a string can be encoded as UTF-8.

    Strings with lone surrogates cannot; Python's `surrogateescape` decodes bytes that
    are not UTF-8 to such strings.

    Args:
        text: A string.

    Returns:
        True if the string can be encoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
