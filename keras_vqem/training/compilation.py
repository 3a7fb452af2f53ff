"""Compilation: steps in which XLA compiles, or loads what it compiled before."""

import contextlib
from collections.abc import Collection
from typing import Any

import keras

from keras_vqem import compile_cache
from keras_vqem.quiet import held_back


class Compilation(keras.callbacks.Callback):
    """Keeps compiled steps for later processes, and TensorFlow's false alarms quiet.

    See `keras_vqem.compile_cache`. List this callback last, so that a step begins right
    after it.

    Args:
        steps: Steps of the first epoch in which XLA compiles; see
            `first_of_each_shape`.
    """

    def __init__(self, steps: Collection[int]):
        super().__init__()
        self._steps = set(steps)
        self._begun = False
        self._open = contextlib.ExitStack()

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if batch not in self._steps:
            return
        self._steps.remove(batch)
        if not self._begun:  # The first step also traces the function.
            compile_cache.align_names()
            self._begun = True
        show = self._open.enter_context(held_back(compile_cache.FALSE_ALARMS))
        self._open.callback(show)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self.end()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps.clear()
        compile_cache.store()

    def end(self) -> None:
        """Shows what a step has printed, other than false alarms."""
        self._open.close()
