"""A quiet start for the command and the recipes; for anybody else it does nothing.

On the way up TensorFlow prints a dozen lines that are no fault: its greetings come
before it reads a log level, and a machine without GPUs gets an error about them. To be
in time, `keras_vqem/__init__.py` calls this before anything imports TensorFlow, and a
program can only ask for it in advance: the recipes by `KERAS_VQEM_QUIET=1`, the command
by its name, as no line of it runs before the package has been imported.
"""

import contextlib
import faulthandler
import logging
import os
import pathlib
import sys
import tempfile


def _asked_for():
    name, *arguments = getattr(sys, "argv", None) or [""]
    if pathlib.Path(name).stem == "keras-vqem":
        return "--verbose" not in arguments
    return os.environ.get("KERAS_VQEM_QUIET") == "1"


QUIET = _asked_for()
DRIVER = pathlib.Path("/proc/driver/nvidia")


@contextlib.contextmanager
def held_back():
    """Hold back what is written to file descriptor 2, and show it if the block fails.

    The block may call the function that it is given to have it shown anyway.
    """
    if not QUIET:
        yield lambda: None
        return
    with tempfile.TemporaryFile() as held, open(os.dup(2), "wb", 0) as screen:

        def show():
            held.seek(0)
            screen.write(held.read())

        # A crash would take what is held with it: at least it says where it was.
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


def start():
    """Import TensorFlow and look for GPUs, quietly; errors after that are shown."""
    if not QUIET:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors, no warnings
    with held_back() as show:
        import tensorflow as tf

        # Nobody needs to hear that there is no GPU, but for those who have one.
        if not tf.config.list_physical_devices("GPU") and DRIVER.exists():
            show()
    for name in ("absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.ERROR)
