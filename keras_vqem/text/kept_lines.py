"""KeptLines: a file of lines that a killed process can go on with."""

import contextlib
import fcntl
import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from keras_vqem.files import read_json, write_json
from keras_vqem.text.lines import one_line


class KeptLines:
    """Lines that are appended to a file, and stay if the process is killed.

    Use it as a context manager. It goes on behind the last complete line of the file,
    if the settings are those that the file was started with. No other process can
    write the file meanwhile.

    Args:
        path: Path of the file.
        settings_path: Path of the JSON file with the settings.
        settings: Dict of everything that the lines depend on, such as the hash of a
            model.

    Attributes:
        count: Number of complete lines, of earlier processes too.

    Raises:
        BlockingIOError: If another process writes the file.
        ValueError: If the file was started with other settings.

    Example:

    >>> import pathlib, tempfile
    >>> from keras_vqem.text.kept_lines import KeptLines
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for lines in (["one", "two"], ["three"]):
    ...     with KeptLines(folder / "a.txt", folder / "a.json", {"seed": 1}) as kept:
    ...         kept.append(lines)
    >>> kept.count
    3
    """

    def __init__(
        self,
        path: str | os.PathLike,
        settings_path: str | os.PathLike,
        settings: Mapping[str, Any],
    ):
        self.path, self.settings_path = map(pathlib.Path, (path, settings_path))
        self.settings = json.loads(json.dumps(settings))
        self.count = 0

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as stack:
            self._file = stack.enter_context(open(self.path, "a+b"))
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(
                    f"Another process is writing {self.path}. Wait for it to end, or "
                    f"choose another file."
                ) from error
            self._file.seek(0)
            # After the last line end there is nothing, or an incomplete line.
            self.count, end = 0, 0
            for line in self._file:
                if line.endswith(b"\n"):
                    self.count, end = self.count + 1, end + len(line)
            self._check(empty=not self._file.tell())
            self._file.truncate(end)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._stack.close()

    def append(self, lines: Iterable[str]) -> None:
        """Writes lines, and waits until they are on the disk.

        Args:
            lines: Strings. Line breaks in them become spaces.
        """
        lines = [one_line(line) + "\n" for line in lines]
        self._file.write("".join(lines).encode("utf-8", "replace"))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.count += len(lines)

    def move_to(self, path: str | os.PathLike) -> None:
        """Gives the file its final name, at which there may be another file.

        Args:
            path: Path on the same disk.
        """
        os.replace(self.path, path)
        self.settings_path.unlink()

    def _check(self, empty):
        if empty:
            write_json(self.settings_path, self.settings)
        if not self.settings_path.exists():
            raise ValueError(
                f"{self.path} has lines, but {self.settings_path.name}, which has "
                f"their settings, is missing. Remove the lines to start again."
            )
        before, now = read_json(self.settings_path), self.settings
        differing = [
            f"  {key}: started with {before.get(key)!r}, received {now.get(key)!r}"
            for key in sorted({*before, *now})
            if before.get(key) != now.get(key)
        ]
        if differing:
            raise ValueError(
                f"{self.path} was started with other settings:\n"
                + "\n".join(differing)
                + f"\nContinue with those settings, or remove {self.path} to start "
                f"again."
            )
