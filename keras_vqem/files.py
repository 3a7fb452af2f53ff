"""Files and folders that are either complete or absent, even if the process is killed.

They are written under another name, which is hidden, and renamed at the end. A process
that is killed leaves a hidden part behind. Its writer holds a lock on it, which the
system gives back when the process ends: so the next writer in the same folder can tell
parts of living writers from those of dead ones, and removes the latter.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import re
import secrets
import shutil
from collections.abc import Iterator
from typing import Any

# Parts, and folders that are about to be replaced: hidden, and with a random number,
# which keeps writers apart.
PART = re.compile(r"\..+\.[0-9a-f]{16}\.partial(\.[^.]+)?")
OLD = re.compile(r"\.(.+)\.[0-9a-f]{16}\.old")
RENAME_EXCHANGE, AT_FDCWD = 2, -100  # of Linux


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Context manager that writes a file under another name, and renames it at the end.

    The temporary file is in the same folder, because a rename between disks is a copy,
    and has the same suffix, because Keras decides by it. If the block raises, the file
    at `path` stays as it was. What killed writers left in the folder is removed.

    Args:
        path: Path of the complete file.

    Yields:
        Path of the temporary file, which is empty, to write to.

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
    _remove_dead_parts(path.parent)
    with contextlib.ExitStack() as stack:
        temporary = _new_part(path, stack)
        yield temporary
        # The content must reach the disk before the new name does.
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)


@contextlib.contextmanager
def replacing_folder(folder: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Context manager that writes a folder under another name, then renames it.

    A folder that is there already is replaced as a whole. If the block raises or the
    process is killed, the old folder stays as it was: see `restored`.

    Args:
        folder: Path of the complete folder. Folders above it are created if missing.

    Yields:
        Path of the temporary folder, which is empty, to write to.

    Example:

    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "model"
    >>> for content in ("old", "new"):
    ...     with replacing_folder(folder) as temporary:
    ...         _ = (temporary / "a.txt").write_text(content)
    >>> (folder / "a.txt").read_text()
    'new'
    """
    folder = pathlib.Path(folder).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    restored(folder)
    _remove_dead_parts(folder.parent)
    with contextlib.ExitStack() as stack:
        new = _new_part(folder, stack, is_folder=True)
        yield new
        for place in [*new.rglob("*"), new]:
            if not place.is_symlink():
                _sync(place)
        if not folder.exists():
            os.rename(new, folder)
        elif not _exchange(new, folder):
            _rename_twice(new, folder, stack)
        _sync(folder.parent)


def restored(folder: str | os.PathLike) -> pathlib.Path:
    """Gives a folder its name back if `replacing_folder` was killed between two names.

    That can happen only where the system cannot exchange two folders in one step.

    Args:
        folder: Path of the folder.

    Returns:
        The same path.
    """
    folder = pathlib.Path(folder)
    # A folder that cannot be restored is missing, as its reader will say.
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        places = [] if folder.exists() else folder.parent.iterdir()
        for place in places:
            match = OLD.fullmatch(place.name)
            if match and match[1] == folder.name:
                _lock(place, stack)  # Waits for a writer that is still at work.
                if not folder.exists():
                    os.rename(place, folder)
    return folder


def _new_part(path, stack, is_folder=False):
    """Makes and locks a hidden file or folder, and removes it with the stack."""
    stem, suffix = (path.name, "") if is_folder else (path.stem, path.suffix)
    while True:
        part = path.with_name(f".{stem}.{secrets.token_hex(8)}.partial{suffix}")
        if is_folder:
            part.mkdir()
        else:
            part.touch(exist_ok=False)
        stack.callback(_remove, part)
        with contextlib.suppress(FileNotFoundError):
            mine = _lock(part, stack)
            # Another writer may have removed it before it was locked.
            if mine is None or os.path.samestat(os.fstat(mine), os.stat(part)):
                return part


def _lock(path, stack, wait=True):
    """Locks a file or folder as long as the stack lasts. Returns its descriptor.

    Returns None if the disk has no locks; then parts of the dead stay behind. Raises
    `BlockingIOError` if it is not to wait and another writer has the lock.
    """
    descriptor = os.open(path, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError:
        return None
    return descriptor


def _remove_dead_parts(folder):
    """Removes what writers left in a folder that do not live any more."""
    try:
        places = list(folder.iterdir())
    except OSError:  # If it is missing, writing to it will tell.
        return
    for place in places:
        old = OLD.fullmatch(place.name)
        # An old folder is kept while nothing has taken its place.
        replaced = old and (folder / old[1]).exists()
        if not (replaced or PART.fullmatch(place.name)):
            continue
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            if _lock(place, stack, wait=False) is not None:
                _remove(place)


def _remove(place):
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def _sync(path):
    """Waits until a file, or the list of names in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some disks cannot sync folders.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def _exchange(one, other):
    """Lets two folders change names in one step. False if the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    names = (os.fsencode(one), os.fsencode(other))
    return not rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)


def _rename_twice(new, folder, stack):
    """Replaces a folder where `_exchange` cannot; `restored` knows the step between."""
    old = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.old")
    _lock(folder, stack)
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        os.rename(old, folder)
        raise
    # Under this name nobody takes it for a complete folder.
    os.rename(old, new)


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


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file.

    Args:
        path: File to read.

    Returns:
        The value.

    Raises:
        ValueError: If the content is not JSON. The message names the file.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "config.json"
    >>> write_json(path, {"seed": 1})
    >>> read_json(path)
    {'seed': 1}
    """
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no complete JSON file: {error}.") from error


def read_json_lines(path: str | os.PathLike) -> list[Any]:
    """Reads a file with one JSON object per line, without an incomplete last line.

    Args:
        path: File to read.

    Returns:
        List of the objects, empty if there is no such file.

    Raises:
        ValueError: If a complete line is not JSON. The message names file and line.

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
    found = []
    # A complete line ends in a newline, so what comes after the last one is either
    # nothing or torn.
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number}: {line[:40]!r} is not JSON ({error}). Remove "
                f"the line."
            ) from error
    return found
