"""How probable ids are under logits: the loss and the score of a translation."""

import tensorflow as tf
from keras import ops

from keras_vqem.ids import PAD_ID


def cross_entropy(
    logits: tf.Tensor, ids: tf.Tensor, smoothing: float = 0.0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the negative log probability of ids, with and without smoothing.

    Args:
        logits: Floats `[..., V]`.
        ids: int32 `[...]`.
        smoothing: Share of each label that is spread evenly over all ids.

    Returns:
        A tuple of float32 tensors `[...]`: the cross entropy with label smoothing, and
        without.
    """
    logits = ops.cast(logits, "float32")
    total = ops.logsumexp(logits, axis=-1)
    picked = ops.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    label = picked
    if smoothing:
        label = (1.0 - smoothing) * picked + smoothing * ops.mean(logits, axis=-1)
    return total - label, total - picked


def divergence(logits: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Computes how far two distributions are apart, the same in both directions.

    Args:
        logits: Floats `[..., V]`.
        others: Floats `[..., V]`.

    Returns:
        float32 `[...]`, mean of the Kullback-Leibler divergences from one distribution
        to the other and back.
    """
    p, q = (tf.nn.log_softmax(ops.cast(x, "float32")) for x in (logits, others))
    # KL(p, q) + KL(q, p) in one sum.
    return 0.5 * ops.sum((ops.exp(p) - ops.exp(q)) * (p - q), axis=-1)


def mean_log_prob(logits: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Computes the mean log probability per id of each row.

    Args:
        logits: Floats `[B, L, V]`.
        ids: int32 `[B, L]`, padded with 0.

    Returns:
        float32 `[B]`, -1e9 for rows of padding only.
    """
    there = ops.cast(ids != PAD_ID, "float32")
    total = -ops.sum(cross_entropy(logits, ids)[1] * there, axis=1)
    number = ops.sum(there, axis=1)
    return ops.where(number > 0, total / ops.maximum(number, 1.0), -1e9)
