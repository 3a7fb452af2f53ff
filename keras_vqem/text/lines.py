"""Texts as lines of a file or a stream: one line in, one line out."""

import codecs
import contextlib
import itertools
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
    mark before the first line is left out. A text of `texts` may have line breaks, and
    its translation then too.

    Args:
        translate: Function from a list of strings to the list of their translations.
        chunk_size: Maximum number of lines per call of `translate`.
        file: Path of a file with one text per line. None reads standard input.
        texts: Strings to translate. If there are any, no file is read.

    Raises:
        ValueError: If a line holds zero bytes, as no text does. What comes before it is
            translated first.
    """
    chunks = _chunked(texts, chunk_size) if texts else text_chunks(file, chunk_size)
    with standard_output() as write:
        for lines in chunks:
            write(answered(translate, lines))


@contextlib.contextmanager
def standard_output() -> Iterator[Callable[[Sequence[str]], None]]:
    """Context manager that is quiet if the reader of standard output is gone.

    Yields:
        Function that writes a list of strings as lines, and returns when they are out.
    """

    def write(lines):
        block = "".join(line + "\n" for line in lines)
        sys.stdout.buffer.write(block.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()

    try:
        yield write
    except BrokenPipeError:
        # The reader, `head` perhaps, has closed the pipe. Python would print an error
        # at exit if standard output still led there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _chunked(texts, chunk_size):
    for start in range(0, len(texts), chunk_size):
        chunk = [os.fsencode(text) for text in texts[start : start + chunk_size]]
        yield [line.decode("utf-8", "replace") for line in chunk]


def text_chunks(file: str | os.PathLike | None, chunk_size: int) -> Iterator[list[str]]:
    """Yields lines as strings, as they arrive.

    Args:
        file: Path of a file with one text per line. None reads standard input.
        chunk_size: Maximum number of lines per chunk.

    Yields:
        Lists of strings. Bytes that are not UTF-8 are U+FFFD.

    Raises:
        ValueError: If a line holds zero bytes. Lines before it come first.
    """
    count = 0
    # Unbuffered, because line_chunks asks the system whether more input is waiting.
    with open(
        sys.stdin.fileno() if file is None else file,
        "rb",
        buffering=0,
        closefd=file is not None,
    ) as source:
        for lines in line_chunks(source.fileno(), chunk_size):
            whole = list(itertools.takewhile(lambda line: b"\0" not in line, lines))
            if whole:
                yield [line.decode("utf-8", "replace") for line in whole]
            count += len(whole)
            if len(whole) < len(lines):
                raise _no_text(file or "Standard input", count + 1)


def check_text(file: str | os.PathLike) -> None:
    """Raises a `ValueError` if a file holds zero bytes, as no text in UTF-8 does.

    Args:
        file: Path of a file. What can be read only once, such as a pipe, is not read.
    """
    if not os.path.isfile(file):
        return
    with open(file, "rb") as source:
        for number, line in enumerate(source, start=1):
            if b"\0" in line:
                raise _no_text(file, number)


def _no_text(name, number):
    return ValueError(
        f"{name}, line {number}, holds zero bytes, so it is not text in UTF-8. If it "
        f"is text in UTF-16, convert it: iconv -f UTF-16 -t UTF-8 FILE > CONVERTED; if "
        f"it is compressed, unpack it first."
    )


def answered(
    translate: Callable[[list[str]], list[str]], lines: Sequence[str]
) -> list[str]:
    """Translates lines, of which blank ones stay empty.

    Args:
        translate: Function from a list of strings to the list of their translations.
        lines: List of strings.

    Returns:
        List of as many strings. Where a line has no line break, its translation has
        none.
    """
    places = [place for place, line in enumerate(lines) if line.strip()]
    found = [""] * len(lines)
    outputs = translate([lines[place] for place in places]) if places else []
    for place, output in zip(places, outputs, strict=True):
        found[place] = output if "\n" in lines[place] else one_line(output)
    return found


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
