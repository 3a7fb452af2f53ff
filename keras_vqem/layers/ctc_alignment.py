"""ctc_alignment: which id of a target belongs at which position."""

import numpy as np
import tensorflow as tf

from keras_vqem.layers.ctc_loss import (
    checked_positions,
    checked_targets,
    forward_backward,
)


def ctc_alignment(
    logits: np.ndarray | tf.Tensor,
    target_ids: np.ndarray | tf.Tensor,
    logit_mask: np.ndarray | tf.Tensor | None = None,
    blank_id: int = 0,
) -> tf.Tensor:
    """Returns the most probable alignment of each target to positions.

    An alignment gives each position one id, so that merging runs of equal ids and then
    dropping blanks leaves the target. `keras_vqem.layers.ctc_loss` sums over all of
    them; this is the best one (Viterbi). It has no gradient, and compiles under XLA.

    Args:
        logits: Floats `[B, T, V]`, as in `keras_vqem.layers.ctc_loss`.
        target_ids: Integers `[B, L]` below `V`, filled up with 0 on the right.
        logit_mask: Booleans `[B, T]`. False leaves a position out, as if it were not
            there. None uses all positions.
        blank_id: Id of the blank, from 0 to `V - 1`.

    Returns:
        Ids, int32 `[B, T]`: one per position, `blank_id` at positions that are left
        out and in rows whose target does not fit.

    Example:

    >>> p = np.array([[[0.1, 0.7, 0.2], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2]]], "float32")
    >>> path = keras_vqem.layers.ctc_alignment(np.log(p), np.array([[1, 2]]))
    >>> path.numpy().tolist()
    [[1, 1, 2]]
    """
    logits, mask, blank_id = checked_positions(logits, logit_mask, blank_id)
    target_ids, is_label, repeated, fits = checked_targets(target_ids, mask)
    blanks = tf.fill([tf.shape(target_ids)[0], 1], blank_id)
    ids = tf.concat([blanks, target_ids], axis=1)
    # Alignments of one row have the same normalizers, which need not be known.
    scores = tf.cast(tf.gather(logits, ids, axis=2, batch_dims=1), tf.float32)
    _, joint = forward_backward(
        scores[..., :1],
        tf.where(is_label[:, None], scores[..., 1:], -float("inf")),
        mask,
        is_label,
        repeated,
        add=tf.maximum,
        reduce=tf.reduce_max,
    )
    # At each position, the id whose best alignment is the best.
    path = tf.gather(ids, tf.argmax(joint, axis=2), batch_dims=1)
    return tf.where(mask & fits[:, None], path, blank_id)
