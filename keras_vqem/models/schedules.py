"""Learning rate schedules with a warm-up."""

from typing import Any

import keras
from keras import ops


class _Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """Base class with the linear warm-up."""

    def __init__(self, peak: float, warmup_steps: float):
        super().__init__()
        if not peak > 0:
            raise ValueError(f"`peak` must be above 0, received {peak!r}.")
        if not warmup_steps >= 1:
            raise ValueError(
                f"`warmup_steps` must be at least 1, received {warmup_steps!r}. Use 1 "
                f"to start at the peak."
            )
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        # Optimizers count steps from 0, and the first step must have an effect.
        step = ops.cast(step, "float32") + 1.0
        return self.peak * ops.where(
            step < self.warmup_steps, step / self.warmup_steps, self._decay(step)
        )

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


@keras.saving.register_keras_serializable(package="keras_vqem")
class WarmupExponentialDecay(_Warmup):
    """Learning rate that rises linearly to `peak`, then decays exponentially.

    In step t = 1, 2, ... the learning rate is

        peak * t / warmup_steps                                   if t < warmup_steps
        peak * decay_rate ** ((t - warmup_steps) / decay_steps)   otherwise

    Args:
        peak: Highest learning rate, reached in step `warmup_steps`.
        warmup_steps: Number of steps of the rise, at least 1.
        decay_steps: Number of steps in which the learning rate is multiplied by
            `decay_rate` once.
        decay_rate: Factor of the decay, above 0 and at most 1.

    Example:

    >>> from keras_vqem.models.schedules import WarmupExponentialDecay
    >>> schedule = WarmupExponentialDecay(
    ...     peak=1e-3, warmup_steps=100, decay_steps=1000, decay_rate=0.5
    ... )
    >>> [round(float(schedule(t - 1)), 6) for t in (1, 50, 100, 1100, 2100)]
    [1e-05, 0.0005, 0.001, 0.0005, 0.00025]
    >>> optimizer = keras.optimizers.Adam(schedule)
    """

    def __init__(
        self, peak: float, warmup_steps: float, decay_steps: float, decay_rate: float
    ):
        super().__init__(peak, warmup_steps)
        if not decay_steps > 0:
            raise ValueError(
                f"`decay_steps` must be above 0, received {decay_steps!r}."
            )
        if not 0 < decay_rate <= 1:
            raise ValueError(
                f"`decay_rate` must be above 0 and at most 1 (no decay), received "
                f"{decay_rate!r}."
            )
        self.decay_steps = decay_steps
        self.decay_rate = decay_rate

    def _decay(self, step):
        periods = (step - self.warmup_steps) / self.decay_steps
        # `where` computes this during the warm-up too, when it must stay finite.
        return ops.power(self.decay_rate, ops.maximum(periods, 0.0))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "decay_steps": self.decay_steps,
            "decay_rate": self.decay_rate,
        }


@keras.saving.register_keras_serializable(package="keras_vqem")
class WarmupInverseSquareRoot(_Warmup):
    """Learning rate that rises linearly to `peak`, then falls with 1 / sqrt(step).

    In step t = 1, 2, ... the learning rate is

        peak * min(t / warmup_steps, sqrt(warmup_steps / t))

    This is the schedule of the Transformer paper, where the peak is
    1 / sqrt(hidden_dim * warmup_steps).

    Args:
        peak: Highest learning rate, reached in step `warmup_steps`.
        warmup_steps: Number of steps of the rise, at least 1.

    Example:

    >>> from keras_vqem.models.schedules import WarmupInverseSquareRoot
    >>> schedule = WarmupInverseSquareRoot(peak=1e-3, warmup_steps=100)
    >>> [round(float(schedule(t - 1)), 6) for t in (1, 50, 100, 400, 10000)]
    [1e-05, 0.0005, 0.001, 0.0005, 0.0001]
    >>> optimizer = keras.optimizers.Adam(schedule)

    References:
        - Vaswani et al., 2017. Attention Is All You Need. arXiv:1706.03762.
    """

    def _decay(self, step):
        return ops.sqrt(self.warmup_steps / step)
