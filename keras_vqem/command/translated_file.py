"""Translation of a whole file, which a killed process can go on with."""

import hashlib
import itertools
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from keras_vqem.command.progress import Progress
from keras_vqem.text.kept_lines import KeptLines
from keras_vqem.text.lines import answered, standard_output, text_chunks

# From texts, and a function that is told the share that is done, to translations.
Translate = Callable[[Sequence[str], Callable[[float], object]], list[str]]


def translate_file(
    translate: Translate, file: str | os.PathLike, chunk_size: int
) -> None:
    """Writes the translations of the lines of a file to standard output.

    Args:
        translate: Function from a list of strings, and a function that is told the
            share of them that is translated, to the list of their translations.
        file: Path of a file with one text per line.
        chunk_size: Number of lines after which translations are written.
    """
    progress = Progress(_size(file))
    if sys.stdout.isatty():
        progress.every = float("inf")  # The lines themselves show it.
    with standard_output() as write:
        for found in _translated(translate, file, chunk_size, 0, progress):
            write(found)


def translate_to_file(
    translate: Translate,
    file: str | os.PathLike,
    output: str | os.PathLike,
    chunk_size: int,
    settings: Mapping[str, Any],
) -> None:
    """Writes the translations of the lines of a file to another file.

    Until it is complete it is called `OUTPUT.partial`. If the process is killed, the
    next call with the same arguments goes on behind the last chunk.

    Args:
        translate: Function as in `translate_file`.
        file: Path of a file with one text per line.
        output: Path of the file to write.
        chunk_size: Number of lines after which translations are written.
        settings: Dict of all that the translations depend on.
    """
    output = pathlib.Path(output)
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder. Pass the name of a file.")
    if output.exists() and output.samefile(file):
        raise ValueError(
            f"{file} cannot be both read and written. Pass another --output."
        )
    part, part_settings = (
        output.with_name(output.name + end) for end in (".partial", ".partial.json")
    )
    with open(file, "rb") as source:
        digest = hashlib.file_digest(source, "sha256").hexdigest()
    settings = {**settings, "sha256 of the file": digest[:16]}
    with KeptLines(part, part_settings, settings) as kept:
        done = _size_of(_first_lines(file, kept.count))
        progress = Progress(_size(file), done)
        if kept.count:
            progress.say(f"{part}: going on behind line {kept.count:,}")
        found = _translated(translate, file, chunk_size, kept.count, progress)
        try:
            for lines in found:
                kept.append(lines)
        except BaseException:
            progress.say(
                f"{part}: {kept.count:,} lines are translated. The same command goes "
                f"on behind them."
            )
            raise
        kept.move_to(output)
        progress.say(f"{output}: {kept.count:,} lines")


def _translated(
    translate: Translate,
    file: str | os.PathLike,
    chunk_size: int,
    skip: int,
    progress: Progress,
) -> Iterator[list[str]]:
    """Yields the translations of chunks of lines, without the first `skip` lines."""
    count, done = skip, progress.first
    for lines in _without_first(text_chunks(file, chunk_size), skip):
        size, number = _size_of(lines), len(lines)

        def own(texts, done=done, count=count, size=size, number=number):
            return translate(
                texts,
                lambda share: progress.tell(
                    done + share * size, count + int(share * number)
                ),
            )

        yield answered(own, lines)
        count, done = count + number, done + size
        progress.tell(done, count)


def _without_first(chunks, skip):
    for lines in chunks:
        if len(lines) > skip:
            yield lines[skip:]
        skip = max(skip - len(lines), 0)


def _first_lines(file, count):
    chunks = text_chunks(file, 1024) if count else ()
    return itertools.islice(itertools.chain.from_iterable(chunks), count)


def _size_of(lines):
    """Number of bytes of lines, with their ends."""
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def _size(file):
    return os.stat(file).st_size
