"""Moving averages: the M step of EM over a stream of batches, in several forms.

All of them keep two numbers per code, its count and its vector. They differ in what is
averaged, and so in where a code goes that nobody used.
"""

import numbers
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks.starts import SMALLEST_COUNT
from keras_vqem.layers.bottlenecks.strategies import Strategy

# A code whose share of a batch is at most this has no vectors in it. Draws give shares
# of at least 1 / m, but a posterior may underflow.
SMALLEST_SHARE = 1e-20


@keras.saving.register_keras_serializable(package="keras_vqem")
class MovingAverages(Strategy):
    """Averages counts and sums, and divides. This is the default, for a number.

        c <- decay c + (1 - decay) n        n: the count of this batch
        s <- decay s + (1 - decay) x        x: the sum of the vectors of this batch
        e <- s / c

    The sum `s` is not stored, as it is the product of `c` and `e`. A code without
    vectors in a batch keeps its vector to the bit.

    Args:
        decay: Decay of the moving averages, at least 0 and below 1.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     2, decay=keras_vqem.layers.MovingAverages(0.5),
    ...     initializer=keras.initializers.Constant([[[1.0], [8.0]]]))
    >>> outputs = layer(np.array([[2.0], [4.0]]), training=True)
    >>> print(layer.counts.numpy()[0], layer.codebook.numpy()[0, :, 0].round(2))
    [1.5 0.5] [2.33 8.  ]
    """

    # Count of codes from an initializer. 0 would mark codes without a vector.
    first_count = 1.0

    def __init__(self, decay: float):
        if not (isinstance(decay, numbers.Real) and 0 <= decay < 1):
            raise ValueError(
                f"`decay` must be at least 0 and below 1, received {decay!r}. To keep "
                f"the codebook unchanged, use trainable=False."
            )
        self.decay = decay

    def update(
        self, vectors: tf.Tensor, counts: tf.Tensor, new: tf.Tensor, sums: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs the M step on the statistics of a batch.

        Args:
            vectors: Codebooks `[C, K, d]`.
            counts: Moving averages of counts, `[C, K]`; 0 for codes without a vector,
                which must stay 0.
            new: Number of vectors of the batch per code, `[C, K]`.
            sums: Their sums, `[C, K, d]`.

        Returns:
            The new codebooks and counts.
        """
        old = self.decay * counts
        total = ops.maximum(old + (1.0 - self.decay) * new, SMALLEST_COUNT)
        used = new > SMALLEST_SHARE
        keep = ops.where(used, old / total, 1.0)[..., None]
        learn = ops.where(used, (1.0 - self.decay) / total, 0.0)[..., None]
        return keep * vectors + learn * sums, ops.where(counts > 0, total, 0.0)

    def _average(self, counts, new):
        """The moving average of counts, for codes that have a vector."""
        total = self.decay * counts + (1.0 - self.decay) * new
        return ops.where(counts > 0, ops.maximum(total, SMALLEST_COUNT), 0.0)

    def get_config(self) -> dict[str, Any]:
        return {"decay": self.decay}


@keras.saving.register_keras_serializable(package="keras_vqem")
class PaperAverages(MovingAverages):
    """Averages counts and vectors, as equations 3 and 4 of the paper say.

        c <- decay c + (1 - decay) n        n: the count of this batch
        e <- decay e + (1 - decay) x / c    x: the sum of the vectors of this batch

    Two things follow that `MovingAverages` does not do. A code that nobody uses shrinks
    by `decay` in each step, towards 0. And as `c` is the average count, a code that is
    used twice as often as usual aims at twice the mean of its vectors.

    The paper does not say where counts start. Here they start at the mean count of the
    first batch: from 0, the first steps would lengthen all codes.

    Args:
        decay: Decay of the moving averages, lambda in the paper, whose value is 0.999.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     2, decay=keras_vqem.layers.PaperAverages(0.5),
    ...     initializer=keras.initializers.Constant([[[1.0], [8.0]]]))
    >>> outputs = layer(np.array([[2.0], [4.0]]), training=True)
    >>> print(layer.counts.numpy()[0], layer.codebook.numpy()[0, :, 0].round(2))
    [1.5 0.5] [2.5 4. ]

    References:
        - Roy, Vaswani, Neelakantan, Parmar, 2018. Theory and Experiments on Vector
          Quantized Autoencoders. arXiv:1805.11063.
    """

    first_count = SMALLEST_COUNT

    def update(
        self, vectors: tf.Tensor, counts: tf.Tensor, new: tf.Tensor, sums: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        mean = ops.maximum(ops.mean(new, axis=-1, keepdims=True), SMALLEST_COUNT)
        first = ops.where(counts > 0, mean, 0.0)
        counts = self._average(ops.where(_started(counts), counts, first), new)
        learn = ops.where(new > SMALLEST_SHARE, (1.0 - self.decay) / counts, 0.0)
        moved = self.decay * vectors + learn[..., None] * sums
        return ops.where(counts[..., None] > 0, moved, vectors), counts


@keras.saving.register_keras_serializable(package="keras_vqem")
class ReferenceAverages(MovingAverages):
    """Averages counts and sums, and starts them as the authors' code does.

        c <- decay c + (1 - decay) n        from 0
        s <- decay s + (1 - decay) x        from the codebook
        e <- s / c'                         c' = (c + epsilon) C / (C + K epsilon)

    `C` is the sum of all `K` counts. Because counts start from 0 and sums do not, the
    first step throws every code that it does not use to about `1 / epsilon` times its
    length, and the others too far by `decay / (1 - decay)` times their start, divided
    by their count. Hardly any codes are then used until the sums have decayed, some
    `-log(epsilon) / (1 - decay)` steps later. Until then, training goes on with a few
    codes. A code without vectors later on keeps its sum over its count, nearly.

    Only counts and vectors are stored: `s` is `c' e`, but for the first step. The
    authors' codebook starts from `initializer="lecun_uniform"`, which is uniform
    between `-sqrt(3 / K)` and `sqrt(3 / K)`.

    Args:
        decay: Decay of the moving averages.
        epsilon: Number that is added to counts before the division.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     2, decay=keras_vqem.layers.ReferenceAverages(0.5, epsilon=0.1),
    ...     initializer=keras.initializers.Constant([[[1.0], [8.0]]]))
    >>> outputs = layer(np.array([[2.0], [4.0]]), training=True)
    >>> print(layer.counts.numpy()[0], layer.codebook.numpy()[0, :, 0].round(2))
    [1.e+00 1.e-30] [ 3.82 48.  ]
    """

    first_count = SMALLEST_COUNT

    def __init__(self, decay: float, epsilon: float = 1e-5):
        super().__init__(decay)
        if not epsilon > 0:
            raise ValueError(
                f"`epsilon` must be above 0, received {epsilon!r}: counts of 0 are "
                f"divided by. The authors' value is 1e-5."
            )
        self.epsilon = epsilon

    def update(
        self, vectors: tf.Tensor, counts: tf.Tensor, new: tf.Tensor, sums: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        old = ops.where(_started(counts), self._smooth(counts), 1.0)[..., None]
        counts = self._average(counts, new)
        now = self._smooth(counts)[..., None]
        moved = (self.decay * old * vectors + (1.0 - self.decay) * sums) / now
        # Nothing has been counted yet if all vectors of a batch are masked.
        learns = _started(counts)[..., None] & (counts > 0)[..., None]
        return ops.where(learns, moved, vectors), counts

    def _smooth(self, counts):
        total = ops.sum(counts, axis=-1, keepdims=True)
        number = ops.cast(counts.shape[-1], "float32")
        return (counts + self.epsilon) * (total / (total + number * self.epsilon))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon}


def _started(counts):
    """Booleans [C, 1]: whether a vector has been counted for any code."""
    return ops.any(counts > SMALLEST_COUNT, axis=-1, keepdims=True)
