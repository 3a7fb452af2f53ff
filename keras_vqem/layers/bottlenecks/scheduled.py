"""Scheduled: a number that a layer can anneal over its training steps."""

import numbers
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from keras_vqem import micro_batches


class Scheduled:
    """A constant, or a `keras.optimizers.schedules` schedule with its own step counter.

    The step counter is a non-trainable weight of the layer, so that a resumed run
    continues the schedule.

    Args:
        value: Number, schedule, or serialized schedule.
        name: Name of the argument, for the error message.
        above: Number that a constant must exceed; values of a schedule are clipped to
            stay above it.
        within: Tuple `(lowest, highest)` of allowed constants, instead of `above`.
    """

    def __init__(
        self,
        value: float | LearningRateSchedule | dict[str, Any],
        name: str,
        above: float | None = None,
        within: tuple[float, float] | None = None,
    ):
        if isinstance(value, dict):
            value = keras.optimizers.schedules.deserialize(value)
        self._schedule = value
        self._above = above
        self._steps = None
        if isinstance(value, keras.optimizers.schedules.LearningRateSchedule):
            return
        fits = isinstance(value, numbers.Real) and (
            value > above if within is None else within[0] <= value <= within[1]
        )
        if not fits:
            wanted = (
                f"above {above}"
                if within is None
                else f"from {within[0]} to {within[1]}"
            )
            raise ValueError(
                f"`{name}` must be a number {wanted}, or a schedule from "
                f"keras.optimizers.schedules; received {value!r}."
            )
        self._schedule = float(value)

    def build(self, layer: keras.layers.Layer) -> None:
        """Creates the step counter, if there is a schedule.

        Args:
            layer: Layer that owns the weight.
        """
        if callable(self._schedule):
            self._steps = layer.add_weight(
                name="steps",
                shape=(),
                initializer="zeros",
                dtype="int32",
                trainable=False,
                aggregation="only_first_replica",
            )

    def value(self) -> float | tf.Tensor:
        """Returns the value of the current training step."""
        if not callable(self._schedule):
            return self._schedule
        steps = 0 if self._steps is None else self._steps
        value = ops.cast(self._schedule(steps), "float32")
        # A schedule may end at the bound itself, and a temperature of 0 divides by 0.
        return value if self._above is None else ops.maximum(value, self._above + 1e-6)

    def step(self) -> None:
        """Counts one training step, in the last part of its batch."""
        if self._steps is not None and micro_batches.is_last():
            self._steps.assign(self._steps + 1)

    def serialize(self) -> float | dict[str, Any]:
        """Returns a value for `get_config`, which the constructor accepts."""
        if callable(self._schedule):
            return keras.optimizers.schedules.serialize(self._schedule)
        return self._schedule
