"""ResumedCallbacks: `fit` goes on in the middle of an epoch."""

from collections.abc import Iterable
from typing import Any

import keras

from keras_vqem.training.training_state import metric_values, set_metric_values


class ResumedCallbacks(keras.callbacks.CallbackList):
    """Callbacks for `fit(callbacks=...)` that begin after some batches of an epoch.

    Keras counts the batches of an epoch from 0 and sets its metrics to zero at its
    start. Here, the metrics of the first epoch begin with the values that they have
    now, and its first batches are passed over: no training step and no callback. The
    dataset must begin after them.

    Args:
        callbacks: List of Keras callbacks.
        first_batch: Number of batches to pass over.
        model: The compiled model, whose state has been restored.
        **params: `epochs` and `steps`, which callbacks see as their `params`.
    """

    def __init__(
        self,
        callbacks: Iterable[keras.callbacks.Callback],
        first_batch: int,
        model: keras.Model,
        **params: Any,
    ):
        super().__init__(list(callbacks), add_history=True, model=model, **params)
        self._first_batch = first_batch
        self._metrics = [value for _, value in metric_values(model)]

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._first_batch:
            set_metric_values(self.model, self._metrics)
            self._train_function = self.model.train_function
            results = self.model.get_metrics_result()
            self.model.train_function = lambda iterator: results
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if batch >= self._first_batch:
            self._train()
            super().on_train_batch_begin(batch, logs)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        if batch >= self._first_batch:
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._train()  # All batches of the epoch may have been passed over.
        super().on_epoch_end(epoch, logs)

    def _train(self):
        if self._first_batch:
            self.model.train_function = self._train_function
            self._first_batch = 0
