"""LogisticMixture: the discretized mixture of logistics of PixelCNN++."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood, draw


@keras.saving.register_keras_serializable(package="keras_vqem")
class LogisticMixture(PixelLikelihood):
    """A discretized mixture of logistics with dependent channels, from PixelCNN++.

    One of `num_mixtures` components is chosen for the whole pixel. Within a component,
    each channel is a logistic that is rounded to the nearest level; the lowest and the
    highest level take the tails. The mean of green depends linearly on red, and the
    mean of blue on red and green. The channels of a pixel are therefore dependent even
    within a component.

    The outputs for a pixel are, in this order and each with the components innermost:

    - the `num_mixtures` logits of the components;
    - the means of red, green and blue, in multiples of `spread` and relative to `base`;
    - the logarithms of the scales of red, green and blue, in multiples of `spread`;
    - the couplings, before their tanh, of red to green, red to blue and green to blue.

    Args:
        num_mixtures: Number of components of the mixture.
        levels: Number of values per channel. Values are from 0 to `levels - 1`.
        spread: Scale that an output of 0 stands for, in levels: about the distance of
            pixels from the first guess `base`. None stands for `levels / 8`; a good
            first guess needs a smaller one.

    Example:

    >>> likelihood = keras_vqem.layers.LogisticMixture(num_mixtures=5)
    >>> likelihood.parameters
    50
    >>> outputs = np.zeros((2, 8, 8, 50), "float32")
    >>> images = np.full((2, 8, 8, 3), 127, "uint8")
    >>> likelihood.log_prob(outputs, images).shape
    TensorShape([2, 8, 8])
    >>> likelihood.sample(outputs, seed=(0, 1)).shape
    TensorShape([2, 8, 8, 3])

    References:
        - [Salimans et al., 2017](https://arxiv.org/abs/1701.05517)
    """

    def __init__(
        self, num_mixtures: int = 5, levels: int = 256, spread: float | None = None
    ):
        super().__init__(levels, spread)
        self.num_mixtures = whole_number("num_mixtures", num_mixtures, 1)

    @property
    def parameters(self) -> int:
        """Number of outputs that the network needs per pixel."""
        return (1 + 3 * self.channels) * self.num_mixtures

    def log_prob(
        self, outputs: ArrayLike, images: ArrayLike, base: ArrayLike | None = None
    ) -> tf.Tensor:
        """Returns the log probability of each pixel, all its channels together.

        Args:
            outputs: Floats `[B, H, W, parameters]`.
            images: Integers `[B, H, W, 3]` from 0 to `levels - 1`.
            base: First guess of the images, floats `[B, H, W, 3]` from 0 to
                `levels - 1`. None for mid-grey.

        Returns:
            Float32 `[B, H, W]`, in nats.
        """
        logits, means, scales, couplings = self._split(outputs)
        # Not by `_rows`, because TensorFlow logs an error when it transposes integers.
        images = ops.unstack(self._check_images(images, outputs), axis=-1)
        images = ops.reshape(ops.stack(images), (self.channels, 1, -1))
        base = self._base_rows(outputs, base)
        residuals = self._to_unit(images) - base
        centres = ops.stack(
            [_centre(c, means, couplings, residuals) for c in range(self.channels)]
        )
        inverse = 1.0 / scales
        z = (residuals - centres) * inverse
        half_bin = inverse * (1.0 / (self.levels - 1))
        not_first = ops.cast(images > 0, "float32")
        not_last = ops.cast(images < self.levels - 1, "float32")
        # With s the logistic function and a > b the edges of its bin, the probability
        # of a level is
        #   s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)).
        # The logarithm of the product has no cancellation, whereas the difference would
        # underflow far from the mean. The first level has no lower edge, and the last
        # level has no upper edge.
        channels = (
            (not_first * not_last) * ops.log(-ops.expm1(-2.0 * half_bin))
            - not_last * ops.softplus(-z - half_bin)
            - not_first * ops.softplus(z - half_bin)
        )
        joint = logits + ops.sum(channels, axis=0)
        nats = ops.logsumexp(joint, axis=0) - ops.logsumexp(logits, axis=0)
        return ops.reshape(nats, ops.shape(outputs)[:-1])

    def mean(self, outputs: ArrayLike, base: ArrayLike | None = None) -> tf.Tensor:
        """Returns the expected value of each channel, approximately.

        Within a component, the mean of green is computed as if red had its expected
        value, and the mean of blue as if red and green had theirs. This neglects the
        rounding to levels, and that the tails cut off at the first and last level
        depend on the earlier channels. The result is exact except for components that
        are narrower than a level or reach far beyond the range.

        Args:
            outputs: Floats `[B, H, W, parameters]`.
            base: First guess of the images, as in `log_prob`.

        Returns:
            Float32 `[B, H, W, 3]` from 0 to `levels - 1`.
        """
        logits, means, scales, couplings = self._split(outputs)
        base = self._base_rows(outputs, base)
        p = _softmax(logits)
        residuals, values = [], []
        for c in range(self.channels):
            centre = base[c] + _centre(c, means, couplings, residuals)
            # The mean of a logistic clipped to [-1, 1] is -1 plus the integral, from -1
            # to 1, of the probability to exceed a value.
            upper = ops.softplus((centre + 1.0) / scales[c])
            lower = ops.softplus((centre - 1.0) / scales[c])
            expected = scales[c] * (upper - lower) - 1.0
            residuals.append(expected - base[c])
            values.append(ops.sum(p * expected, axis=0))
        return self._from_unit(self._pixels(values, outputs))

    def sample(
        self, outputs: ArrayLike, seed: ArrayLike, base: ArrayLike | None = None
    ) -> tf.Tensor:
        """Draws images.

        Args:
            outputs: Floats `[B, H, W, parameters]`.
            seed: Two integers, or int32 `[B, 2]` with one seed per image. The same seed
                gives the same images.
            base: First guess of the images, as in `log_prob`.

        Returns:
            Int32 `[B, H, W, 3]` from 0 to `levels - 1`.
        """
        logits, means, scales, couplings = self._split(outputs)
        base = self._base_rows(outputs, base)
        uniforms = self._rows(self._uniforms(outputs, 1 + self.channels, seed))
        component = draw(_softmax(logits), uniforms[:1], axis=0)
        chosen = ops.one_hot(component, self.num_mixtures, axis=0, dtype="float32")
        residuals, values = [], []
        for c in range(self.channels):
            u = uniforms[1 + c]
            noise = scales[c] * (ops.log(u) - ops.log(1.0 - u))
            drawn = base[c] + _centre(c, means, couplings, residuals) + noise
            drawn = ops.sum(chosen * drawn, axis=0, keepdims=True)
            # Couplings in `log_prob` act on levels, so that the next channel must
            # depend on the rounded value of this one.
            level = ops.round(self._from_unit(drawn))
            residuals.append(self._to_unit(level) - base[c])
            values.append(level[0])
        return ops.cast(self._pixels(values, outputs), "int32")

    def _split(self, outputs):
        """Returns logits [M, N], and means, scales and couplings with channels first.

        The N pixels come last, because rows of a few components are slow on a CPU,
        above all where the value of a pixel is compared with each component.
        """
        outputs = self._check_outputs(outputs)
        count, M = self.channels * self.num_mixtures, self.num_mixtures
        parts = ops.split(outputs, [M, M + count, M + 2 * count], axis=-1)
        logits, means, scales, couplings = (self._rows(part) for part in parts)
        # Split, not sliced, because the gradient of each slice would be a full table.
        means = ops.split(self._unit_spread * means, self.channels)
        scales = ops.reshape(self._scale(scales), (self.channels, M, -1))
        couplings = ops.split(ops.tanh(couplings), self.channels)
        return logits, means, scales, couplings

    def _base_rows(self, outputs, base):
        base = self._check_base(base, outputs)
        if base is None:
            return ops.zeros((self.channels, 1, 1))
        return self._rows(base)[:, None]

    def _rows(self, values):
        """Reshapes [..., n] to [n, N]."""
        return ops.transpose(ops.reshape(values, (-1, values.shape[-1])))

    def _pixels(self, values, outputs):
        """Reshapes three tensors [N] to [..., 3]."""
        shape = (*ops.shape(outputs)[:-1], self.channels)
        return ops.reshape(ops.stack(values, axis=-1), shape)

    def get_config(self) -> dict[str, Any]:
        return {"num_mixtures": self.num_mixtures, **super().get_config()}


def _softmax(logits):
    # Not ops.softmax, which warns if there is a single component.
    return ops.exp(logits - ops.logsumexp(logits, axis=0, keepdims=True))


def _centre(channel, means, couplings, residuals):
    """Returns the means [M, N] of a channel, relative to its base.

    Couplings act on the differences between earlier channels and their base. If the
    base is mid-grey, which is 0, the differences are the values themselves, as in the
    paper. With any other base, a correct guess of red does not change the means of
    green and blue.
    """
    centre = means[channel]
    first = channel * (channel - 1) // 2
    for previous in range(channel):
        centre = centre + couplings[first + previous] * residuals[previous]
    return centre
