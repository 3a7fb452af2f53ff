"""Commitments: the loss that keeps an encoder close to its codes."""

import numbers
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks.passes import norms
from keras_vqem.layers.bottlenecks.strategies import Strategy


@keras.saving.register_keras_serializable(package="keras_vqem")
class SquaredCommitment(Strategy):
    """The mean squared difference of vectors and codes. This is the default.

        weight * mean (x - sg(e))^2

    The mean is over the unmasked vectors of all replicas, and over their `D` numbers,
    as in the authors' code; `sg` stops the gradient. The gradient of a vector at the
    distance `r` of its code has the length `2 weight r / D`, before it is divided by
    the number of vectors.

    Args:
        weight: Weight of the loss; beta in the paper. 0 for no such loss.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     2, commitment_weight=keras_vqem.layers.SquaredCommitment(0.5),
    ...     initializer=keras.initializers.Constant([[[0.0, 0.0], [9.0, 9.0]]]))
    >>> outputs = layer(np.array([[3.0, 4.0]]))
    >>> float(layer.losses[0])
    6.25
    """

    def __init__(self, weight: float):
        if not isinstance(weight, numbers.Real) or weight < 0:
            raise ValueError(
                f"`commitment_weight` must not be negative, received {weight!r}. Use 0 "
                f"for no commitment loss."
            )
        self.weight = weight

    def errors(self, pieces: tf.Tensor, quantized: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each vector, without the weight.

        Args:
            pieces: Vectors, or pieces of them, float32 `[..., d]`.
            quantized: What they are drawn to, `[..., d]`.

        Returns:
            Tensor `[...]`.
        """
        size = pieces.shape[-1]

        # The gradient by hand is one pass over the vectors; that of squares and their
        # mean would be several.
        @tf.custom_gradient
        def errors(pieces, quantized):
            difference = pieces - quantized
            square = ops.square(norms(difference))

            def gradient(upstream):
                slope = (2.0 / size) * upstream[..., None] * difference
                return slope, -slope

            return square / size, gradient

        return errors(pieces, quantized)

    def get_config(self) -> dict[str, Any]:
        return {"weight": self.weight}


@keras.saving.register_keras_serializable(package="keras_vqem")
class NormCommitment(SquaredCommitment):
    """The distance of vectors and codes, as equation 2 of the paper says.

        weight * mean |x - sg(e)|

    It is the norm, neither squared nor divided by `D`. The mean is over the unmasked
    vectors of all replicas; with groups, over their pieces, each with its own norm. The
    gradient of a vector has the length `weight`, before it is divided by the number of
    vectors, however far its code is; it is 0 for a vector that is its code.

    Args:
        weight: Weight of the loss, beta in the paper. 0 for no such loss.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     2, commitment_weight=keras_vqem.layers.NormCommitment(0.5),
    ...     initializer=keras.initializers.Constant([[[0.0, 0.0], [9.0, 9.0]]]))
    >>> outputs = layer(np.array([[3.0, 4.0]]))
    >>> float(layer.losses[0])
    2.5

    References:
        - Roy, Vaswani, Neelakantan, Parmar, 2018. Theory and Experiments on Vector
          Quantized Autoencoders. arXiv:1805.11063.
    """

    def errors(self, pieces: tf.Tensor, quantized: tf.Tensor) -> tf.Tensor:
        square = ops.sum(ops.square(pieces - quantized), axis=-1)
        apart = square > 0
        # The inner `where` keeps the gradient finite, the outer one sets it to 0.
        return ops.where(apart, ops.sqrt(ops.where(apart, square, 1.0)), 0.0)
