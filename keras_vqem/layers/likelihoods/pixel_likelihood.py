"""PixelLikelihood: base class of the distributions over pixels.

Inside, pixel values from 0 to levels - 1 are mapped to [-1, 1], so that mid-grey is 0
and the outputs of a network mean the same for any number of levels.
"""

import math
from typing import Any

import tensorflow as tf
from keras import ops

from keras_vqem.checks import integers, whole_number

# Bounds of the logarithms of scales, in [-1, 1] units. At the lower bound, a logistic
# lies within one of 256 levels (PixelCNN++ has the same bound). At the upper bound, it
# is flat.
LOG_SCALES = (-7.0, 7.0)


class PixelLikelihood:
    """Base class: a distribution over colours, with `parameters` numbers per pixel.

    It has no weights. Subclasses define `parameters`, `log_prob`, `mean` and `sample`.

    Args:
        levels: Number of values per channel. Values are from 0 to `levels - 1`.
        spread: Scale that an output of 0 stands for, in levels: about the distance of
            pixels from the first guess `base`. None stands for `levels / 8`. With a
            good first guess it should be small. Otherwise, training has to begin by
            making the scales smaller, and each of its steps moves the means too far.
    """

    channels = 3

    def __init__(self, levels: int = 256, spread: float | None = None):
        self.levels = whole_number("levels", levels, 2, "8-bit images have 256.")
        self.spread = self.levels / 8 if spread is None else float(spread)
        if not self.spread > 0:
            raise ValueError(
                f"`spread` must be more than 0, received {spread!r}. Use None for "
                f"levels / 8."
            )
        # The same in [-1, 1] units.
        self._unit_spread = self.spread * 2 / (self.levels - 1)

    def _to_unit(self, values):
        """Maps values from 0 to levels - 1 to [-1, 1]."""
        return ops.cast(values, "float32") * (2.0 / (self.levels - 1)) - 1.0

    def _from_unit(self, values):
        """Maps [-1, 1] to 0 to levels - 1, clipping but not rounding."""
        values = (values + 1.0) * ((self.levels - 1) / 2)
        return ops.clip(values, 0.0, self.levels - 1.0)

    def _scale(self, outputs):
        """Returns scales in [-1, 1] units; an output of 0 stands for `spread`."""
        start = math.log(self._unit_spread)
        return ops.exp(ops.clip(outputs + start, *LOG_SCALES))

    def _check_outputs(self, outputs):
        """Returns `outputs` as float32."""
        outputs = ops.convert_to_tensor(outputs)
        if outputs.shape[-1] != self.parameters:
            raise ValueError(
                f"{type(self).__name__} needs {self.parameters} numbers per pixel, "
                f"received `outputs` of shape {tuple(outputs.shape)}. Give the last "
                f"layer of the network `parameters` = {self.parameters} units."
            )
        return ops.cast(outputs, "float32")

    def _check_images(self, images, outputs):
        """Returns `images` as int32."""
        images = integers("images", images, self.levels - 1)
        self.check_channels("images", images, outputs)
        return ops.cast(images, "int32")

    def _check_base(self, base, outputs):
        """Returns `base` in [-1, 1] units, or None for mid-grey."""
        if base is None:
            return None
        base = ops.convert_to_tensor(base)
        self.check_channels("base", base, outputs)
        return self._to_unit(base)

    def check_channels(self, name: str, values: tf.Tensor, outputs: tf.Tensor) -> None:
        """Checks that a tensor has the pixels that the outputs of a network are about.

        Args:
            name: Name of the tensor in errors.
            values: Tensor that should have the shape `[B, H, W, 3]`.
            outputs: Outputs of the network, `[B, H, W, n]`.

        Raises:
            ValueError: If the shape is another one.
        """
        given, expected = tuple(values.shape), (*outputs.shape[:-1], self.channels)
        fits = len(given) == len(expected) and all(
            a is None or a == b or b is None
            for a, b in zip(given, expected, strict=True)
        )
        if not fits or given[-1] != self.channels:
            raise ValueError(
                f"`{name}` must have shape {expected} for `outputs` of shape "
                f"{tuple(outputs.shape)}, received {given}. Channels come last; for "
                f"grey images, repeat the channel three times."
            )

    def _uniforms(self, outputs, count, seed):
        """Draws uniforms [..., count] inside (0, 1), symmetric about one half."""
        seed = ops.cast(seed, "int32")
        shape = (*ops.shape(outputs)[:-1], count)
        rows = tf.get_static_value(shape[0])
        if not any(seed.shape.is_compatible_with(known) for known in ([2], [rows, 2])):
            raise ValueError(
                f"`seed` must be two integers, received shape {tuple(seed.shape)}. For "
                f"example seed=(0, 1), or two integers for each of {rows} images."
            )

        def uniforms(seed, shape):
            # The default, "auto_select", depends on the device that runs the graph.
            return tf.random.stateless_uniform(shape, seed, alg="philox")

        if seed.shape.rank == 1:
            noise = uniforms(seed, shape)
        else:
            noise = tf.map_fn(
                lambda own: uniforms(own, shape[1:]),
                seed,
                fn_output_signature=tf.float32,
            )
            noise = ops.reshape(noise, shape)
        return noise + 2.0**-24

    def get_config(self) -> dict[str, Any]:
        return {"levels": self.levels, "spread": self.spread}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PixelLikelihood":
        return cls(**config)


def fold_in(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Returns seeds that depend on a number.

    Args:
        seed: int32 `[2]`, or `[B, 2]` with one seed per image.
        number: An integer.

    Returns:
        int32 of the shape of `seed`.
    """
    if seed.shape.rank == 1:
        return tf.random.fold_in(seed, number)
    return tf.map_fn(lambda own: tf.random.fold_in(own, number), seed)


def draw(weights: tf.Tensor, uniforms: tf.Tensor, axis: int) -> tf.Tensor:
    """Draws indices along an axis with probabilities proportional to weights.

    Args:
        weights: Numbers of at least 0 that are not all 0 along `axis`.
        uniforms: Uniform noise in (0, 1), with size 1 along `axis`.
        axis: Axis to draw from.

    Returns:
        Indices, int32, in the shape of `weights` without `axis`.
    """
    cdf = ops.cumsum(weights, axis=axis)
    total = ops.take(cdf, [weights.shape[axis] - 1], axis=axis)
    return ops.sum(ops.cast(cdf <= uniforms * total, "int32"), axis=axis)
