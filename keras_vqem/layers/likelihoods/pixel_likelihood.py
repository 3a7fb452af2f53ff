"""What the distributions over pixels share: units, scales, noise and checks.

Inside, pixel values 0 .. levels - 1 are mapped to [-1, 1], so that mid-grey is 0 and
a network's outputs mean the same for any number of levels.
"""

import math
from typing import Any

import tensorflow as tf
from keras import ops

from keras_vqem.checks import integers, whole_number

# Bounds of log-scales, in [-1, 1] units. At the lower one a logistic lies within one
# of 256 levels (PixelCNN++ has the same bound); at the upper one it is flat.
LOG_SCALES = (-7.0, 7.0)


class PixelLikelihood:
    """Base class: a distribution over colours, from `parameters` numbers a pixel.

    It has no weights. Subclasses define `parameters`, `log_prob`, `mean` and
    `sample`.

    Args:
        levels: How many values a channel has: 0 to `levels - 1`.
        spread: About how far pixels lie from the first guess, in levels: the scale
            that outputs of 0 stand for, `levels / 8` by default. With a good first
            guess it should be small, or training starts with finding that out, and
            each of its steps moves the means by too much.
    """

    channels = 3

    def __init__(self, levels: int = 256, spread: float | None = None):
        self.levels = whole_number("levels", levels, 2, "8-bit images have 256.")
        self.spread = self.levels / 8 if spread is None else float(spread)
        if not self.spread > 0:
            raise ValueError(f"`spread` must be more than 0, received {spread!r}.")
        # The same in [-1, 1] units.
        self._unit_spread = self.spread * 2 / (self.levels - 1)

    def _to_unit(self, values):
        """0 .. levels - 1 to [-1, 1]."""
        return ops.cast(values, "float32") * (2.0 / (self.levels - 1)) - 1.0

    def _from_unit(self, values):
        """[-1, 1] to 0 .. levels - 1, not rounded; what lies outside is clipped."""
        values = (values + 1.0) * ((self.levels - 1) / 2)
        return ops.clip(values, 0.0, self.levels - 1.0)

    def _scale(self, outputs):
        """Positive scales in [-1, 1] units; an output of 0 stands for `spread`."""
        start = math.log(self._unit_spread)
        return ops.exp(ops.clip(outputs + start, *LOG_SCALES))

    def _check_outputs(self, outputs):
        """`outputs` as float32."""
        outputs = ops.convert_to_tensor(outputs)
        if outputs.shape[-1] != self.parameters:
            raise ValueError(
                f"{type(self).__name__} needs {self.parameters} numbers a pixel, "
                f"received `outputs` of shape {tuple(outputs.shape)}. Let the "
                f"network's last layer have `parameters` = {self.parameters} units."
            )
        return ops.cast(outputs, "float32")

    def _check_images(self, images, outputs):
        """`images` as int32."""
        images = integers("images", images, self.levels - 1)
        self._check_channels("images", images, outputs)
        return ops.cast(images, "int32")

    def _check_base(self, base, outputs):
        """`base` in [-1, 1] units, or None for mid-grey."""
        if base is None:
            return None
        base = ops.convert_to_tensor(base)
        self._check_channels("base", base, outputs)
        return self._to_unit(base)

    def _check_channels(self, name, values, outputs):
        given, expected = tuple(values.shape), (*outputs.shape[:-1], self.channels)
        fits = len(given) == len(expected) and all(
            a is None or a == b or b is None
            for a, b in zip(given, expected, strict=True)
        )
        if not fits or given[-1] != self.channels:
            raise ValueError(
                f"`{name}` must have shape {expected} to go with `outputs` of shape "
                f"{tuple(outputs.shape)}, received {given}. The channels come last: "
                f"give grey images as three equal ones."
            )

    def _uniforms(self, outputs, count, seed):
        """[..., count] uniform noise, inside (0, 1) and symmetric about a half."""
        seed = ops.cast(seed, "int32")
        if tuple(seed.shape) != (2,):
            raise ValueError(
                f"`seed` must be two integers, received shape {tuple(seed.shape)}. "
                f"For example seed=(0, 1)."
            )
        shape = (*ops.shape(outputs)[:-1], count)
        # Named, since what "auto_select" means depends on where the graph runs.
        noise = tf.random.stateless_uniform(shape, seed, alg="philox")
        return noise + 2.0**-24

    def get_config(self) -> dict[str, Any]:
        return {"levels": self.levels, "spread": self.spread}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def draw(weights, uniforms, axis):
    """Indices drawn in proportion to `weights` along `axis`, by inverse CDF.

    Args:
        weights: Numbers of at least 0, not all 0 along `axis`.
        uniforms: Noise in (0, 1), with size 1 along `axis`.
        axis: The axis to draw from.

    Returns:
        int32 indices, without `axis`.
    """
    cdf = ops.cumsum(weights, axis=axis)
    total = ops.take(cdf, [weights.shape[axis] - 1], axis=axis)
    return ops.sum(ops.cast(cdf <= uniforms * total, "int32"), axis=axis)
