"""Texts as lines of a file or a stream: one line in, one line out."""

import os
import select
import sys


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


def answer_lines(translate, most, file=None, texts=()):
    """Writes translations of lines to standard output, as the lines come.

    Line n of the output translates line n of the input. A line without words gives an
    empty one, and bytes that are not UTF-8 are read as U+FFFD.

    Args:
        translate: Function from a list of strings to a list of strings.
        most: The largest number of lines given to it.
        file: Path of a file of lines; standard input, if None.
        texts: Strings to translate instead.
    """
    try:
        for lines in _given(most, file, texts):
            sys.stdout.buffer.write(_answers(translate, lines))
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader, `head` perhaps, has enough. Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _given(most, file, texts):
    if texts:
        lines = [os.fsencode(text) for text in texts]
        for start in range(0, len(lines), most):
            yield lines[start : start + most]
        return
    # Unbuffered: line_chunks asks the system whether more is there.
    with open(
        sys.stdin.fileno() if file is None else file,
        "rb",
        buffering=0,
        closefd=file is not None,
    ) as source:
        yield from line_chunks(source.fileno(), most)


def _answers(translate, lines):
    """The translations of lines of bytes, as one block of lines."""
    texts = [line.decode("utf-8", "replace") for line in lines]
    places = [place for place, text in enumerate(texts) if text.strip()]
    found = [""] * len(texts)
    outputs = translate([texts[place] for place in places]) if places else []
    for place, output in zip(places, outputs, strict=True):
        found[place] = one_line(output)
    return "".join(text + "\n" for text in found).encode("utf-8", "replace")


def is_utf8(text):
    """Whether a string can be written: bytes that were not UTF-8 cannot."""
    # They were read as lone surrogates.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
