"""Progress of long work, on standard error."""

import sys
import time
from collections.abc import Callable
from typing import TextIO


class Progress:
    """Tells how far long work is, and when it will end.

    A terminal shows one line that changes; a file or a pipe gets a line every
    30 seconds.

    Args:
        total: Size of all input, in any unit. 0 if it is not known.
        start: Size of the input that was done before, by an earlier process.
        stream: Where to write. None is standard error.
        clock: Function that returns the time in seconds.
        unit: Name of what is counted.
    """

    def __init__(
        self,
        total: int,
        start: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "lines",
    ):
        self.total, self.first, self.unit = total, start, unit
        self.stream = stream or sys.stderr
        self.clock = clock
        self.is_terminal = self.stream.isatty()
        self.every = 0.5 if self.is_terminal else 30.0
        self.begin = self.shown = clock()

    def tell(self, done: float, count: int) -> None:
        """Writes the progress, if the last time was long enough ago.

        Args:
            done: Size of the input that is done.
            count: Number of lines, or of another `unit`, that are done.
        """
        now = self.clock()
        if now - self.shown < self.every:
            return
        self.shown = now
        words = f"{count:,} {self.unit}"
        if self.total:
            words += f", {done / self.total:.0%}"
        if self.total and done > self.first:
            seconds = (now - self.begin) / (done - self.first) * (self.total - done)
            words += f", {duration(seconds)} left"
        self._write(words)

    def say(self, words: str) -> None:
        """Writes a line that stays."""
        self._write(words)
        if self.is_terminal:
            self.stream.write("\n")
            self.stream.flush()

    def clear(self) -> None:
        """Erases the line that changes, for what is printed after it."""
        if self.is_terminal:
            self._write("")

    def _write(self, words):
        # The end of a longer line before it is erased.
        self.stream.write(f"\r{words}\033[K" if self.is_terminal else f"{words}\n")
        self.stream.flush()


def duration(seconds: float) -> str:
    """Returns a number of seconds in words, rounded up.

    Example:

    >>> duration(8.2), duration(100), duration(10_000)
    ('9 seconds', '2 minutes', '2.8 hours')
    """
    if seconds <= 59:
        number, unit = int(-(-seconds // 1)), "second"
    elif seconds <= 90 * 60:
        number, unit = int(-(-seconds // 60)), "minute"
    else:
        return f"{seconds / 3600:.1f} hours"
    return f"{number} {unit}{'' if number == 1 else 's'}"
