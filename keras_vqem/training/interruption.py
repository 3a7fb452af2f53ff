"""Interruption: a run that is told to stop saves its state first."""

import os
import signal
import threading
from typing import Any

import keras

from keras_vqem.training.checkpoints import Checkpoints

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """Raised when a run was stopped by Ctrl-C or SIGTERM, after its state was saved.

    Args:
        message: Sentence that says what was saved.
        signal_number: Number of the signal.
    """

    def __init__(self, message: str, signal_number: int):
        super().__init__(message)
        self.signal_number = signal_number


class Interruption(keras.callbacks.Callback):
    """Saves the state and raises `Interrupted` upon Ctrl-C or SIGTERM.

    The batch in progress is completed first. During validation the epoch is saved
    already, so that it is stopped at once; a second signal stops at once too. Use it as
    a context manager around `fit`, and list it as the last callback. In threads other
    than the main one signals cannot be handled, and nothing changes.

    Args:
        checkpoints: The `Checkpoints` of the run.
    """

    def __init__(self, checkpoints: Checkpoints):
        super().__init__()
        self.checkpoints = checkpoints
        self._number = None
        self._unsaved = False
        self._handlers = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            self._handlers = {s: signal.signal(s, self._told) for s in _SIGNALS}
        return self

    def __exit__(self, kind, error, trace):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._unsaved = True

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if self._number is not None:
            path = self.checkpoints.save()
            self._raise(f"{path} has the state after this very step.")
        # `Checkpoints` has written the epoch after its last batch.
        self._unsaved = batch + 1 != self.params.get("steps")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._unsaved = False

    def _told(self, number, frame):
        again, self._number = self._number is not None, number
        if again:
            self._raise("The state of this step was not saved.")
        if not self._unsaved:
            self._raise("All epochs so far are saved.")
        # Not `print`: the signal may have come in the middle of one.
        os.write(2, b"\nstopping after this batch; once more stops at once\n")

    def _raise(self, saved):
        name = signal.Signals(self._number).name
        raise Interrupted(
            f"{name} stopped the run. {saved} Resume it with --resume (resume=True).",
            self._number,
        )
