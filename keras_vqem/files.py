"""Files that are either complete or absent, whenever the process is killed."""

import contextlib
import json
import os
import pathlib


@contextlib.contextmanager
def replacing(path):
    """Write a file under another name; it takes the place of `path` when complete.

    The other name lies in the same folder (a rename between disks is a copy) and has
    the same ending (Keras goes by it). If the block raises, `path` stays as it was.

    Args:
        path: Where the complete file belongs.

    Yields:
        The path to write to.

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
    # The process id keeps two writers apart; the dot keeps it out of listings.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield temporary
        # The content must reach the disk before the name does.
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path, value):
    """Write a value as readable JSON, complete or not at all; makes the folder."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json_lines(path):
    """The values in a file with one JSON value per line.

    Args:
        path: The file, to which lines may still be appended: a last line that is not
            complete is left out. A file that does not exist has no lines.

    Returns:
        A list of the values.
    """
    path = pathlib.Path(path)
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    # A complete line ends in a newline, so what comes after the last one is either
    # nothing or torn.
    return [json.loads(line) for line in text.split("\n")[:-1]]
