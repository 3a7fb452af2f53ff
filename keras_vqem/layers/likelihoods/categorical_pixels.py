"""CategoricalPixels: a softmax over the levels of each channel."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood, draw


@keras.saving.register_keras_serializable(package="keras_vqem")
class CategoricalPixels(PixelLikelihood):
    """An independent softmax over the levels of each channel, the choice of the paper.

    The outputs for a pixel are `levels` logits for each channel, then the logarithm of
    one scale for each channel. The logarithm of a logistic density with centre `base`
    and that scale is added to the logits. Thus the model can start from a first guess
    of the image and sharpen it. If all outputs are 0, the distribution is a logistic
    with centre `base` and scale `spread`.

    Args:
        levels: Number of values per channel. Values are from 0 to `levels - 1`.
        spread: Scale that an output of 0 stands for, in levels: about the distance of
            pixels from the first guess `base`. None stands for `levels / 8`; a good
            first guess needs a smaller one.

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
        """Number of outputs that the network needs per pixel."""
        return self.channels * (self.levels + 1)

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
        logits = self._logits(outputs, base)
        images = self._check_images(images, outputs)
        # One kernel computes the loss and its gradient, so that no second table of log
        # probabilities is kept for the backward pass.
        nats = ops.sparse_categorical_crossentropy(images, logits, from_logits=True)
        return -ops.sum(nats, axis=-1)

    def mean(self, outputs: ArrayLike, base: ArrayLike | None = None) -> tf.Tensor:
        """Returns the expected value of each channel.

        Args:
            outputs: Floats `[B, H, W, parameters]`.
            base: First guess of the images, as in `log_prob`.

        Returns:
            Float32 `[B, H, W, 3]` from 0 to `levels - 1`.
        """
        p = ops.softmax(self._logits(outputs, base))
        return ops.matmul(p, np.arange(self.levels, dtype="float32"))

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
        p = ops.softmax(self._logits(outputs, base))
        uniforms = self._uniforms(outputs, self.channels, seed)
        return draw(p, uniforms[..., None], axis=-1)

    def _logits(self, outputs, base):
        """Returns the logits of all levels, [..., channels, levels]."""
        outputs = self._check_outputs(outputs)
        base = self._check_base(base, outputs)
        logits, scales = ops.split(outputs, [self.channels * self.levels], axis=-1)
        base = ops.zeros_like(scales) if base is None else base
        prior = _log_logistic(base, 1.0 / self._scale(scales), self.levels)
        return ops.reshape(logits, ops.shape(prior)) + prior


def _log_logistic(centre, inverse_scale, levels):
    """Returns the log density of a logistic at every level, up to a constant.

    The gradient is written by hand, so that no tensor of the size of the result,
    [..., levels], is kept for the backward pass. Automatic gradients would keep four.
    """
    grid = np.linspace(-1.0, 1.0, levels, dtype="float32")

    def standardized(centre, inverse_scale):
        return (grid - centre[..., None]) * inverse_scale[..., None]

    @tf.custom_gradient
    def log_density(centre, inverse_scale):
        z = ops.abs(standardized(centre, inverse_scale))

        def grad(upstream):
            # The derivative of the log density by z is -tanh(z / 2).
            z = standardized(centre, inverse_scale)
            slope = upstream * ops.tanh(0.5 * z)
            total = ops.sum(slope, axis=-1)
            moment = ops.matmul(slope, grid)
            return inverse_scale * total, centre * total - moment

        return -z - 2.0 * ops.softplus(-z), grad

    return log_density(centre, inverse_scale)
