"""Similarities: what makes a code the nearest one of a vector.

All of them are squared distances, between vectors and codes that a similarity may first
bring into a form of its own. Everything after that is the same.
"""

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks.strategies import Strategy

# Squared norm below which a vector has no direction in float32.
SMALLEST_SQUARE = 1e-24


def unit_vectors(vectors: tf.Tensor, smallest: float = SMALLEST_SQUARE) -> tf.Tensor:
    """Divides vectors by their norms; those without a direction become 0.

    Args:
        vectors: Vectors `[..., d]`.
        smallest: Squared norm up to which a vector counts as 0.

    Returns:
        Vectors `[..., d]` of norm 1 or 0. The gradient of those of norm 0 is 0.
    """
    square = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    directed = square > smallest
    # The inner `where` keeps the gradient finite, the outer one sets it to 0.
    units = vectors * ops.rsqrt(ops.where(directed, square, 1.0))
    return ops.where(directed, units, 0.0)


@keras.saving.register_keras_serializable(package="keras_vqem")
class Euclidean(Strategy):
    """The nearest code is that of the smallest squared distance, `|x - e|^2`.

    This is the default, the model of the paper: a mixture of Gaussians.

    Example:

    >>> layer = keras_vqem.layers.VQBottleneck(
    ...     2, similarity=keras_vqem.layers.Euclidean(),
    ...     initializer=keras.initializers.Constant([[[0.0, 1.0], [5.0, 0.0]]]))
    >>> layer.encode(np.array([[1.0, 0.0]])).numpy().tolist()
    [0]
    """

    def prepare(self, vectors: tf.Tensor) -> tf.Tensor:
        """Brings inputs or codes `[..., d]` into the form in which they are compared.

        Args:
            vectors: Pieces of inputs, or vectors of a codebook, float32 `[..., d]`.

        Returns:
            Tensor `[..., d]`. For codes, these are the vectors that the decoder gets.
        """
        return vectors


@keras.saving.register_keras_serializable(package="keras_vqem")
class Cosine(Euclidean):
    """The nearest code is that of the largest cosine, `x . e / (|x| |e|)`.

    Inputs and codes are divided by their norms, so that the decoder gets unit vectors.
    With groups, each piece of a vector is divided by its own norm. A vector of 0 stays
    0. The gradient passes through the division by `|x|`.

    Squared distances of unit vectors are `2 - 2 cos(x, e)`. The posterior of soft EM,
    the softmax of `2 cos(x, e) / temperature`, is therefore that of a mixture of von
    Mises-Fisher distributions with equal weights and the concentration
    `2 / temperature`. Its M step is spherical k-means: with unit vectors `x`, and `h`
    the share of each that is assigned to the code,

        c <- decay c + (1 - decay) sum h
        s <- decay s + (1 - decay) sum h x
        e <- s / |s|

    The `codebook` of a `VQEMBottleneck` holds `s / c`. Its direction is the code, which
    `decode` returns; its length, at most 1, tells how closely the vectors of the code
    lie together. In training, soft EM gives the mean of several unit vectors to the
    decoder.

    Example:

    >>> layer = keras_vqem.layers.VQBottleneck(
    ...     2, similarity="cosine",
    ...     initializer=keras.initializers.Constant([[[0.0, 1.0], [5.0, 0.0]]]))
    >>> layer.encode(np.array([[1.0, 0.0]])).numpy().tolist()
    [1]
    >>> layer.decode([0, 1]).numpy().tolist()
    [[0.0, 1.0], [1.0, 0.0]]

    References:
        - Banerjee, Dhillon, Ghosh, Sra, 2005. Clustering on the Unit Hypersphere using
          von Mises-Fisher Distributions. Journal of Machine Learning Research 6.
        - Yu et al., 2021. Vector-quantized Image Modeling with Improved VQGAN.
          arXiv:2110.04627.
    """

    def prepare(self, vectors: tf.Tensor) -> tf.Tensor:
        return unit_vectors(vectors)


NAMES = {"euclidean": Euclidean, "cosine": Cosine}
