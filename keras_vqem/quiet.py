"""A quiet start of TensorFlow for the command and the recipes.

While it starts, TensorFlow prints a dozen lines that need no attention. Its greetings
come before it reads the log level, and a machine without GPUs gets an error about the
missing driver. To hold these lines back, `keras_vqem/__init__.py` calls `start` before
anything imports TensorFlow. A program therefore has to ask for a quiet start in
advance: the recipes set `KERAS_VQEM_QUIET=1`, and the command is recognised by its
name, because none of its lines run before the package is imported. For every other
program, this module does nothing.
"""

import contextlib
import faulthandler
import logging
import os
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator


def _asked_for():
    name, *arguments = getattr(sys, "argv", None) or [""]
    if pathlib.Path(name).stem == "keras-vqem":
        return "--verbose" not in arguments
    return os.environ.get("KERAS_VQEM_QUIET") == "1"


QUIET = _asked_for()
_lock = threading.Lock()
DRIVER = pathlib.Path("/proc/driver/nvidia")


def _screen_and_file(files):
    """Opens a copy of descriptor 2 and a file in its place; None if that is impossible.

    It is if another thread does so already, if standard error is closed, or if there
    is no folder for temporary files. A start that is not quiet is better than none.
    """
    if not _lock.acquire(blocking=False):
        return None
    files.callback(_lock.release)
    try:
        screen = files.enter_context(open(os.dup(2), "wb", 0))
        return screen, files.enter_context(tempfile.TemporaryFile())
    except OSError:
        return None


@contextlib.contextmanager
def held_back(never: Iterable[bytes] = ()) -> Iterator[Callable[[], None]]:
    """Holds back what a block writes to file descriptor 2, and shows it on failure.

    Args:
        never: Texts. Lines with one of them are not shown even then.

    Yields:
        A function without arguments that shows what was held back so far.
    """
    with contextlib.ExitStack() as files:
        opened = _screen_and_file(files) if QUIET else None
        if opened is None:
            yield lambda: None
            return
        screen, held = opened

        def show():
            held.seek(0)
            for line in held:
                if not any(text in line for text in never):
                    screen.write(line)

        # After a crash of the process nothing can show what was held back: at least
        # print where it crashed.
        guard = not faulthandler.is_enabled()
        if guard:
            faulthandler.enable(screen)
        os.dup2(held.fileno(), 2)
        try:
            yield show
        except BaseException:
            show()
            raise
        finally:
            os.dup2(screen.fileno(), 2)
            if guard:
                faulthandler.disable()


def start() -> None:
    """Imports TensorFlow and looks for GPUs quietly; shows all errors after that."""
    if not QUIET:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
    with held_back() as show:
        import tensorflow as tf

        # That no GPU was found is news only on a machine with the driver for one.
        if not tf.config.list_physical_devices("GPU") and DRIVER.exists():
            show()
    for name in ("absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.ERROR)
