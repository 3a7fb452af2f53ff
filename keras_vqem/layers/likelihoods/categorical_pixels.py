"""A softmax over the levels of each channel."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood, draw


@keras.saving.register_keras_serializable(package="keras_vqem")
class CategoricalPixels(PixelLikelihood):
    """An independent softmax over the levels of each channel: the paper's choice.

    A pixel takes `levels` logits for each channel and, after those of all channels, one
    log-scale each. The log of a logistic density about `base` of that scale is added to
    the logits, so that the same head can start from a first guess of the image and
    sharpen it. All outputs 0 mean a logistic about `base` with a scale of `spread`.

    Args:
        levels: How many values a channel has: 0 to `levels - 1`.
        spread: About how far pixels lie from `base`, in levels: `levels / 8`.

    Example:

    >>> likelihood = keras_vqem.layers.CategoricalPixels()
    >>> likelihood.parameters
    771
    >>> outputs = np.zeros((2, 8, 8, 771), "float32")
    >>> images = np.full((2, 8, 8, 3), 127, "uint8")
    >>> likelihood.log_prob(outputs, images).shape
    TensorShape([2, 8, 8])
    >>> likelihood.sample(outputs, seed=(0, 1)).shape
    TensorShape([2, 8, 8, 3])

    References:
        - [Roy et al., 2018](https://arxiv.org/abs/1805.11063)
    """

    @property
    def parameters(self) -> int:
        """How many numbers a pixel needs."""
        return self.channels * (self.levels + 1)

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
        logits = self._logits(outputs, base)
        images = self._check_images(images, outputs)
        # One kernel for the loss and its gradient: no second table of log
        # probabilities is held for the backward pass.
        nats = ops.sparse_categorical_crossentropy(images, logits, from_logits=True)
        return -ops.sum(nats, axis=-1)

    def mean(self, outputs: ArrayLike, base: ArrayLike | None = None) -> tf.Tensor:
        """Expected value of each channel.

        Args:
            outputs: [B, H, W, parameters] floats.
            base: As in `log_prob`.

        Returns:
            [B, H, W, 3] float32 in 0 to `levels - 1`.
        """
        p = ops.softmax(self._logits(outputs, base))
        return ops.matmul(p, np.arange(self.levels, dtype="float32"))

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
        p = ops.softmax(self._logits(outputs, base))
        uniforms = self._uniforms(outputs, self.channels, seed)
        return draw(p, uniforms[..., None], axis=-1)

    def _logits(self, outputs, base):
        """[..., channels, levels]."""
        outputs = self._check_outputs(outputs)
        base = self._check_base(base, outputs)
        logits, scales = ops.split(outputs, [self.channels * self.levels], axis=-1)
        base = ops.zeros_like(scales) if base is None else base
        prior = _log_logistic(base, 1.0 / self._scale(scales), self.levels)
        return ops.reshape(logits, ops.shape(prior)) + prior


def _log_logistic(centre, inverse_scale, levels):
    """Log density of a logistic at every level, [..., levels], but for a constant.

    With the chain rule by hand nothing of the result's size is held for the backward
    pass, where automatic gradients would hold four.
    """
    grid = np.linspace(-1.0, 1.0, levels, dtype="float32")

    def standardized(centre, inverse_scale):
        return (grid - centre[..., None]) * inverse_scale[..., None]

    @tf.custom_gradient
    def log_density(centre, inverse_scale):
        z = ops.abs(standardized(centre, inverse_scale))

        def grad(upstream):
            # The derivative of the log density in z is -tanh(z / 2).
            z = standardized(centre, inverse_scale)
            slope = upstream * ops.tanh(0.5 * z)
            total = ops.sum(slope, axis=-1)
            moment = ops.matmul(slope, grid)
            return inverse_scale * total, centre * total - moment

        return -z - 2.0 * ops.softplus(-z), grad

    return log_density(centre, inverse_scale)
