"""How probable ids are under logits: the loss and the score of a translation."""

import tensorflow as tf
from keras import ops

from keras_vqem.ids import EOS_ID, PAD_ID


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


def read_positions(logits: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads one word off each position.

    Args:
        logits: Floats `[B, P, V]`.
        mask: Booleans `[B, P]`, False for positions that are not there.

    Returns:
        A tuple `(ids, scores)`: int32 `[B, P]`, up to the first end symbol, then 0; and
        the mean log probability of the ids, `[B]`.
    """
    ids = tf.argmax(logits, axis=-1, output_type=tf.int32)
    # A sentence ends at its first end symbol, or where its positions end.
    ended = ops.cumsum(ops.cast(ids == EOS_ID, "int32"), axis=-1)
    first = (ended == 0) | ((ended == 1) & (ids == EOS_ID))
    ids = ops.where(first & mask, ids, PAD_ID)
    return ids, mean_log_prob(logits, ids)
