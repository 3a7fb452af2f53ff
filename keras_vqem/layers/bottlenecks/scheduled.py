"""A number that a layer may anneal over its training steps."""

import numbers

import keras
from keras import ops


class Scheduled:
    """A constant, or a `keras.optimizers.schedules` schedule with a step of its own.

    The step is a non-trainable weight of the layer, so that a resumed run goes on
    where it was.
    """

    def __init__(self, value, name, above=None, within=None):
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

    def build(self, layer):
        if callable(self._schedule):
            self._steps = layer.add_weight(
                name="steps",
                shape=(),
                initializer="zeros",
                dtype="int32",
                trainable=False,
                aggregation="only_first_replica",
            )

    def value(self):
        """This training step's value."""
        if not callable(self._schedule):
            return self._schedule
        steps = 0 if self._steps is None else self._steps
        value = ops.cast(self._schedule(steps), "float32")
        # A schedule may end at the bound itself, where a temperature divides by 0.
        return value if self._above is None else ops.maximum(value, self._above + 1e-6)

    def step(self):
        """Counts one training step."""
        if self._steps is not None:
            self._steps.assign(self._steps + 1)

    def serialize(self):
        """For `get_config`; the constructor takes it back."""
        if callable(self._schedule):
            return keras.optimizers.schedules.serialize(self._schedule)
        return self._schedule
