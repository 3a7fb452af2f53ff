"""Files that are either complete or absent, even if the process is killed."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Context manager that writes a file under another name, and renames it at the end.

    The temporary file is in the same folder, because a rename between disks is a copy,
    and has the same suffix, because Keras decides by it. If the block raises, the file
    at `path` stays as it was.

    Args:
        path: Path of the complete file.

    Yields:
        Path of the temporary file, to write to.

    Example:

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with replacing(folder / "a.txt") as temporary:
    ...     _ = temporary.write_text("complete")
    ...     (folder / "a.txt").exists()
    False
    >>> (folder / "a.txt").read_text()
    'complete'
    """
    path = pathlib.Path(path)
    # The process id keeps two writers apart; the dot hides the file from listings.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield temporary
        # The content must reach the disk before the new name does.
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes a value as indented JSON, completely or not at all.

    Args:
        path: Path of the file. Its folder is created if missing.
        value: Value that `json.dumps` accepts.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json_lines(path: str | os.PathLike) -> list[Any]:
    """Reads a file with one JSON object per line, without an incomplete last line.

    Args:
        path: File to read.

    Returns:
        List of the objects, empty if there is no such file.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "metrics.jsonl"
    >>> _ = path.write_text('{"epoch": 1}\\n{"epo')
    >>> read_json_lines(path)
    [{'epoch': 1}]
    """
    path = pathlib.Path(path)
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    # A complete line ends in a newline, so what comes after the last one is either
    # nothing or torn.
    return [json.loads(line) for line in text.split("\n")[:-1]]
