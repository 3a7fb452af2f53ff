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
from collections.abc import Callable, Iterator


def _asked_for():
    name, *arguments = getattr(sys, "argv", None) or [""]
    if pathlib.Path(name).stem == "keras-vqem":
        return "--verbose" not in arguments
    return os.environ.get("KERAS_VQEM_QUIET") == "1"


QUIET = _asked_for()
DRIVER = pathlib.Path("/proc/driver/nvidia")


@contextlib.contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Holds back what a block writes to file descriptor 2, and shows it on failure.

    Yields:
        A function without arguments that shows what was held back so far.
    """
    if not QUIET:
        yield lambda: None
        return
    with tempfile.TemporaryFile() as held, open(os.dup(2), "wb", 0) as screen:

        def show():
            held.seek(0)
            screen.write(held.read())

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
