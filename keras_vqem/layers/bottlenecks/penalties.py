"""Penalties: terms of the loss that keep a codebook spread out and in use."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem import replicas
from keras_vqem.layers.bottlenecks import chunks, posterior
from keras_vqem.layers.bottlenecks.similarities import unit_vectors
from keras_vqem.layers.bottlenecks.strategies import Strategy


class Penalty(Strategy):
    """Base class of the penalties of a bottleneck.

    Args:
        weight: Weight of the term in the loss. Not negative.
    """

    def __init__(self, weight: float):
        if weight < 0:
            raise ValueError(
                f"`weight` must not be negative, received {weight!r}. Leave the "
                f"penalty out for no such term in the loss."
            )
        self.weight = weight

    def __call__(
        self,
        pieces: tf.Tensor,
        table: tf.Tensor,
        usable: tf.Tensor,
        keep: tf.Tensor,
        total: tf.Tensor,
    ) -> tf.Tensor:
        """Computes the term of this replica; Keras averages the terms of replicas.

        Args:
            pieces: Pieces of inputs, `[C, M, d]`.
            table: Vectors of the codes, `[C, K, d]`.
            usable: Booleans `[C, K]`, False for codes without a vector.
            keep: Floats `[C, M]`, 1 for pieces that count and 0 for others.
            total: Number of pieces that count, on all replicas and in all codebooks.

        Returns:
            A scalar.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {"weight": self.weight}


@keras.saving.register_keras_serializable(package="keras_vqem")
class OrthogonalCodes(Penalty):
    """Keeps codes from pointing in similar directions.

    The penalty is the mean of squared cosines over all pairs of codes of a codebook,

        weight / K^2 * sum of cos(e_i, e_j)^2 over i != j

    averaged over codebooks. The gradient reaches the codebook alone. No matrix of all
    pairs is stored: the squares of `E E^T` and of `E^T E` have the same sum, and the
    second is only as large as the vectors.

    Args:
        weight: Weight of the penalty in the loss.

    Example:

    >>> layer = keras_vqem.layers.VQBottleneck(
    ...     8, penalties=keras_vqem.layers.OrthogonalCodes(weight=10.0))
    >>> outputs = layer(np.ones((2, 3, 4), "float32"), training=True)

    References:
        - Shin, Lee, Cho, 2021. Translation-equivariant Image Quantizer for
          Bi-directional Image-Text Generation. arXiv:2112.00384.
    """

    def __init__(self, weight: float = 10.0):
        super().__init__(weight)

    def __call__(
        self,
        pieces: tf.Tensor,
        table: tf.Tensor,
        usable: tf.Tensor,
        keep: tf.Tensor,
        total: tf.Tensor,
    ) -> tf.Tensor:
        units = unit_vectors(table)
        number, dim = table.shape[1:]
        equation = "ckd,cke->cde" if dim < number else "ckd,cjd->ckj"
        squares = ops.square(ops.einsum(equation, units, units))
        # What each code has with itself: 1, or 0 for a code of zeros.
        alone = ops.sum(ops.square(ops.sum(ops.square(units), axis=-1)))
        codebooks = table.shape[0]
        return self.weight * (ops.sum(squares) - alone) / (codebooks * number**2)


@keras.saving.register_keras_serializable(package="keras_vqem")
class AssignmentEntropy(Penalty):
    """Makes each assignment sure of its code, and all of them together use all codes.

    With `p(j | x)`, the softmax of `-|x - e_j|^2 / temperature`, `H` the entropy in
    nats, and means over the vectors of the batch,

        weight * (mean H(p(. | x)) - diversity * H(mean p(. | x)))

    averaged over codebooks. The means are those of the whole batch, without masked
    vectors, on any number of replicas. The gradient reaches inputs and codebook.
    The probabilities are computed in chunks, and twice, so that memory does not grow
    with the number of vectors times that of codes.

    Args:
        weight: Weight of the penalty in the loss.
        diversity: Weight of the second entropy relative to the first.
        temperature: Number that divides squared distances, above 0.

    Example:

    >>> layer = keras_vqem.layers.VQBottleneck(
    ...     8, penalties=[keras_vqem.layers.AssignmentEntropy(weight=0.1)])
    >>> outputs = layer(np.ones((2, 3, 4), "float32"), training=True)

    References:
        - Yu et al., 2023. Language Model Beats Diffusion: Tokenizer is Key to Visual
          Generation. arXiv:2310.05737.
    """

    def __init__(
        self, weight: float = 0.1, diversity: float = 1.0, temperature: float = 1.0
    ):
        super().__init__(weight)
        if not temperature > 0:
            raise ValueError(
                f"`temperature` must be above 0, received {temperature!r}."
            )
        self.diversity = diversity
        self.temperature = temperature

    def __call__(
        self,
        pieces: tf.Tensor,
        table: tf.Tensor,
        usable: tf.Tensor,
        keep: tf.Tensor,
        total: tf.Tensor,
    ) -> tf.Tensor:
        codebooks = table.shape[0]
        number = ops.maximum(total / codebooks, 1.0)
        terms = []
        per_codebook = (ops.unstack(x) for x in (pieces, table, usable, keep))
        for rows, vectors, can, weights in zip(*per_codebook, strict=True):
            terms.append(self._of_codebook(rows, vectors, can, weights, number))
        return self.weight * sum(terms) / codebooks

    def _of_codebook(self, rows, vectors, usable, weights, number):
        still, table = ops.stop_gradient(rows), ops.stop_gradient(vectors)
        softmax = posterior.softmax_rows(table, usable, temperature=self.temperature)
        arguments = {"rows": still, "keep": weights}
        largest = max(1, posterior.LOGITS_PER_CHUNK // table.shape[0])

        def measure(chunk):
            p, surprise = _with_surprise(softmax, chunk)
            each = ops.sum(p * surprise, axis=-1)
            kept = chunk["keep"]
            return (), (ops.sum(each * kept), tf.linalg.matvec(p, kept, True))

        _, sums = chunks.fold(measure, arguments, largest)
        entropy, mean = (x / number for x in replicas.sum_over_replicas([*sums]))
        log_mean = ops.log(ops.where(mean > 0, mean, 1.0))
        value = entropy + self.diversity * ops.sum(mean * log_mean)

        # The derivative of the term of a vector, H(p) + diversity * p . log mean, with
        # respect to its logits.
        def differentiate(chunk):
            p, surprise = _with_surprise(softmax, chunk)
            pull = surprise + self.diversity * log_mean
            pull = pull - ops.sum(p * pull, axis=-1, keepdims=True)
            slope = p * pull * (2.0 / self.temperature) * chunk["keep"][:, None]
            to_rows = ops.matmul(slope, table)
            to_table = tf.matmul(slope, chunk["rows"], transpose_a=True)
            to_table = to_table - ops.sum(slope, axis=0)[:, None] * table
            return (to_rows,), (to_table,)

        (to_rows,), (to_table,) = chunks.fold(differentiate, arguments, largest)
        # Exactly 0, with these derivatives. Keras averages over replicas.
        slope = ops.sum((rows - still) * to_rows) + ops.sum(
            (vectors - table) * to_table
        )
        return value + slope * (replicas.num_replicas() / number)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "diversity": self.diversity,
            "temperature": self.temperature,
        }


def _with_surprise(softmax, chunk):
    """Returns probabilities and minus their logarithms, 0 where they are 0."""
    _, p = softmax(chunk)
    return p, -ops.log(ops.where(p > 0, p, 1.0))


def get(penalties: Penalty | Sequence[Penalty | dict[str, Any]]) -> list[Penalty]:
    """Returns the penalties that an argument of a layer asks for.

    Args:
        penalties: A penalty, or a list of penalties or serialized penalties.

    Returns:
        List of penalties.
    """
    if isinstance(penalties, Penalty):
        penalties = [penalties]
    found = [
        keras.saving.deserialize_keras_object(x) if isinstance(x, dict) else x
        for x in (penalties if isinstance(penalties, Sequence) else [penalties])
    ]
    if all(isinstance(x, Penalty) for x in found):
        return found
    raise ValueError(
        f"`penalties` must be OrthogonalCodes(), AssignmentEntropy() or another object "
        f"of a subclass of Penalty, or a list of them. Received {penalties!r}."
    )
