"""Gradient estimators: what the encoder learns from the gradient of its codes.

The derivative of a code with respect to its vector is 0 almost everywhere. An estimator
puts another one in its place, and leaves the value of the code as it is, to the bit.
"""

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks.similarities import unit_vectors
from keras_vqem.layers.bottlenecks.strategies import Strategy

# Squared norm of the sum of two unit vectors below which they count as opposite: the
# direction of the sum is lost in rounding.
OPPOSITE = 1e-8


def _zero(x):
    """Returns exactly 0 with the gradient of x, which must be finite."""
    return x - ops.stop_gradient(x)


@keras.saving.register_keras_serializable(package="keras_vqem")
class StraightThrough(Strategy):
    """Passes the gradient of a code to its vector unchanged. This is the default.

    Example:

    >>> layer = keras_vqem.layers.VQBottleneck(
    ...     4, gradient=keras_vqem.layers.StraightThrough())
    >>> x = tf.Variable([[1.0, 2.0]])
    >>> with tf.GradientTape() as tape:
    ...     y = 3 * layer(x, training=True)["quantized"]
    >>> tape.gradient(y, x).numpy().tolist()
    [[3.0, 3.0]]

    References:
        - Bengio, Leonard, Courville, 2013. Estimating or Propagating Gradients Through
          Stochastic Neurons for Conditional Computation. arXiv:1308.3432.
    """

    # Whether each piece of a vector has an estimate of its own.
    per_piece = False
    # Whether the mean of several codes may take the place of a code.
    means = True

    def apply(self, vectors: tf.Tensor, quantized: tf.Tensor) -> tf.Tensor:
        """Gives quantized vectors a gradient.

        Args:
            vectors: What was quantized, float32 `[..., d]`.
            quantized: Vectors of the codes, `[..., d]`, constants.

        Returns:
            Tensor `[..., d]` with the values of `quantized`, to the bit, and a
            gradient for `vectors`.
        """

        # Adding vectors and subtracting them again would be two more passes.
        @tf.custom_gradient
        def passed(vectors, quantized):
            return tf.identity(quantized), lambda upstream: (upstream, upstream)

        return passed(vectors, quantized)


@keras.saving.register_keras_serializable(package="keras_vqem")
class RotationTrick(StraightThrough):
    """Turns and scales the gradient of a code as its vector was turned and scaled.

    A vector `x` becomes its code `e` by a rotation `R`, in the plane of the two, and a
    scale. Both count as constants in the backward pass:

        e = (|e| / |x|) R x        dx = (|e| / |x|) R^T de

    With `u = x / |x|`, `v = e / |e|` and `r = (u + v) / |u + v|`, the rotation is
    `R = I - 2 r r^T + 2 v u^T`; it is never stored. The angle between gradient and code
    is thus kept as the one between gradient and vector. Where `x` is 0 there is nothing
    to rotate, and the gradient passes straight through. Where the two are opposite,
    `R` is the reflection `I - 2 u u^T`.

    With groups, each piece of a vector is turned by itself. It needs one code per
    piece: the mean of the draws of soft EM changes from call to call, so that no
    rotation belongs to the vector.

    Example:

    >>> layer = keras_vqem.layers.VQBottleneck(
    ...     2, gradient="rotation",
    ...     initializer=keras.initializers.Constant([[[0.0, 3.0], [0.0, -3.0]]]))
    >>> x = tf.Variable([[1.0, 0.1]])  # almost at a right angle to its code (0, 3)
    >>> with tf.GradientTape() as tape:
    ...     y = layer(x, training=True)["quantized"][0, 1]
    >>> print(tape.gradient(y, x).numpy().round(1))
    [[3.  0.3]]

    References:
        - Fifty et al., 2024. Restructuring Vector Quantization with the Rotation Trick.
          arXiv:2410.06424.
    """

    per_piece = True
    means = False

    def apply(self, vectors: tf.Tensor, quantized: tf.Tensor) -> tf.Tensor:
        still, code = ops.stop_gradient(vectors), ops.stop_gradient(quantized)
        u, v = unit_vectors(still), unit_vectors(code)
        r = unit_vectors(u + v, OPPOSITE)
        directed = ops.any(u != 0, axis=-1, keepdims=True)
        # The norms by the unit vectors: u . x = |x|.
        scale = _dot(v, code) / ops.where(directed, _dot(u, still), 1.0)
        turned = vectors - 2.0 * r * _dot(r, vectors) + 2.0 * v * _dot(u, vectors)
        return quantized + _zero(ops.where(directed, scale * turned, vectors))


def _dot(a, b):
    return ops.sum(a * b, axis=-1, keepdims=True)


NAMES = {"straight_through": StraightThrough, "rotation": RotationTrick}
