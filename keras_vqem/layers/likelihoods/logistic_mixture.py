"""The discretized mixture of logistics of PixelCNN++."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood, draw


@keras.saving.register_keras_serializable(package="keras_vqem")
class LogisticMixture(PixelLikelihood):
    """A mixture of logistics, cut into levels, whose channels know of each other.

    One of `num_mixtures` components is chosen for the whole pixel. In it each channel
    is a logistic rounded to the nearest level; the lowest and the highest level take
    the tails. The mean of green depends linearly on red, and that of blue on red and
    green, so a pixel's channels are not independent even within a component.

    The numbers of a pixel are, each kind with the components innermost:
    `num_mixtures` logits; means of red, green and blue, in multiples of `spread` and to
    be added to `base`; logarithms of the three scales, also in multiples of `spread`;
    and three couplings before their tanh: red to green, red to blue, green to blue.

    Args:
        num_mixtures: How many components.
        levels: How many values a channel has: 0 to `levels - 1`.
        spread: About how far pixels lie from `base`, in levels: `levels / 8`.

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
        """How many numbers a pixel needs."""
        return (1 + 3 * self.channels) * self.num_mixtures

    def log_prob(
        self, outputs: ArrayLike, images: ArrayLike, base: ArrayLike | None = None
    ) -> tf.Tensor:
        """Log probability of each pixel, its channels together.

        Args:
            outputs: [B, H, W, parameters] floats.
            images: [B, H, W, 3] integers from 0 to `levels - 1`.
            base: [B, H, W, 3] first guess of the values, in 0 to `levels - 1`. None
                means mid-grey.

        Returns:
            [B, H, W] float32, in nats.
        """
        logits, means, scales, couplings = self._split(outputs)
        # Not by `_rows`: TensorFlow logs an error when it transposes integers.
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
        # With the bin's edges at a > b a level has probability
        #   s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)),  s the logistic function,
        # whose log never cancels, where the difference would underflow far from the
        # mean. The first level has no lower edge, the last no upper one.
        channels = (
            (not_first * not_last) * ops.log(-ops.expm1(-2.0 * half_bin))
            - not_last * ops.softplus(-z - half_bin)
            - not_first * ops.softplus(z - half_bin)
        )
        joint = logits + ops.sum(channels, axis=0)
        nats = ops.logsumexp(joint, axis=0) - ops.logsumexp(logits, axis=0)
        return ops.reshape(nats, ops.shape(outputs)[:-1])

    def mean(self, outputs: ArrayLike, base: ArrayLike | None = None) -> tf.Tensor:
        """Expected value of each channel, approximately.

        In each component green is centred as if red took its expected value, and blue
        as if red and green did. This neglects how the tails cut off at the first and
        last level depend on the channels before, and the rounding to levels: exact but
        for components narrower than a level or much beyond the range.

        Args:
            outputs: [B, H, W, parameters] floats.
            base: As in `log_prob`.

        Returns:
            [B, H, W, 3] float32 in 0 to `levels - 1`.
        """
        logits, means, scales, couplings = self._split(outputs)
        base = self._base_rows(outputs, base)
        p = _softmax(logits)
        residuals, values = [], []
        for c in range(self.channels):
            centre = base[c] + _centre(c, means, couplings, residuals)
            # The mean of a logistic clipped to [-1, 1] is -1 plus the integral of its
            # upper tail from -1 to 1.
            upper = ops.softplus((centre + 1.0) / scales[c])
            lower = ops.softplus((centre - 1.0) / scales[c])
            expected = scales[c] * (upper - lower) - 1.0
            residuals.append(expected - base[c])
            values.append(ops.sum(p * expected, axis=0))
        return self._from_unit(self._pixels(values, outputs))

    def sample(
        self, outputs: ArrayLike, seed: ArrayLike, base: ArrayLike | None = None
    ) -> tf.Tensor:
        """Draws an image.

        Args:
            outputs: [B, H, W, parameters] floats.
            seed: Two integers. The same seed gives the same image.
            base: As in `log_prob`.

        Returns:
            [B, H, W, 3] int32 in 0 to `levels - 1`.
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
            # `log_prob` couples to levels, so the next channel must see this one's.
            level = ops.round(self._from_unit(drawn))
            residuals.append(self._to_unit(level) - base[c])
            values.append(level[0])
        return ops.cast(self._pixels(values, outputs), "int32")

    def _split(self, outputs):
        """Logits [M, N] and, channel first, lists of means, scales and couplings.

        Inside, the N pixels come last: on a CPU rows of a few components are slow, all
        the more so where a pixel's value meets each of them.
        """
        outputs = self._check_outputs(outputs)
        count, M = self.channels * self.num_mixtures, self.num_mixtures
        parts = ops.split(outputs, [M, M + count, M + 2 * count], axis=-1)
        logits, means, scales, couplings = (self._rows(part) for part in parts)
        # Split, not sliced: each slice's gradient would be a table of its own.
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
        """[..., n] to [n, N]."""
        return ops.transpose(ops.reshape(values, (-1, values.shape[-1])))

    def _pixels(self, values, outputs):
        """Three [N] to [..., 3]."""
        shape = (*ops.shape(outputs)[:-1], self.channels)
        return ops.reshape(ops.stack(values, axis=-1), shape)

    def get_config(self) -> dict[str, Any]:
        return {"num_mixtures": self.num_mixtures, **super().get_config()}


def _softmax(logits):
    # ops.softmax warns of a single component.
    return ops.exp(logits - ops.logsumexp(logits, axis=0, keepdims=True))


def _centre(channel, means, couplings, residuals):
    """Means [M, N] of a channel, relative to its base.

    Couplings act on how far earlier channels lie from their base: with mid-grey, 0,
    these are the values themselves, as in the paper; with any other, a right guess of
    red leaves the means of green and blue where their own guesses put them.
    """
    centre = means[channel]
    first = channel * (channel - 1) // 2
    for previous in range(channel):
        centre = centre + couplings[first + previous] * residuals[previous]
    return centre
