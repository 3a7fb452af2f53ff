"""ctc_best_path: takes the most probable id at all positions at once, and merges."""

import numpy as np
import tensorflow as tf

from keras_vqem.layers.ctc_loss import checked_positions


def ctc_best_path(
    logits: np.ndarray | tf.Tensor,
    end_id: int | None,
    logit_mask: np.ndarray | tf.Tensor | None = None,
    blank_id: int = 0,
    blank_bias: float = 0.0,
) -> tf.Tensor:
    """Writes the sequences of the most probable ids at all positions.

    Takes the most probable id at each position, merges runs of equal ids, and then
    drops blanks. There is no loop. The result of a row does not depend on the other
    rows of the batch. Among equally probable ids, the lowest is taken.

    It is the most probable alignment, which need not belong to the most probable
    sequence: where two words share the probability, the blank can win against each of
    them, and a word is lost. A negative `blank_bias` is a crude remedy;
    `keras_vqem.decoding.ctc_prefix_beam_search` sums over alignments.

    Args:
        logits: Floats `[B, T, V]`, as in `keras_vqem.layers.ctc_loss`.
        end_id: Id that ends a row. What comes after it is dropped. With None, rows go
            on to their last position.
        logit_mask: Booleans `[B, T]`. False leaves a position out, as if it were not
            there. None uses all positions.
        blank_id: Id of the blank, from 0 to `V - 1`.
        blank_bias: Number to add to the logit of the blank. Negative values give
            longer sequences.

    Returns:
        Ids, int32 `[B, T]`: the ids of each row up to and including `end_id`, and then
        0.

    Example:

    >>> path = np.array([[4, 4, 0, 4, 5, 1, 6]])
    >>> logits = keras.ops.one_hot(path, 7)
    >>> ids = keras_vqem.decoding.ctc_best_path(logits, end_id=1)
    >>> ids.numpy().tolist()
    [[4, 4, 5, 1, 0, 0, 0]]
    """
    logits, mask, blank_id = checked_positions(logits, logit_mask, blank_id)
    logits = tf.cast(logits, tf.float32)  # Argmax of bfloat16 takes twice as long.
    if blank_bias:  # A sum is one more pass over the largest tensor of a translation.
        logits += float(blank_bias) * tf.one_hot(blank_id, tf.shape(logits)[2])
    ids = tf.argmax(logits, axis=2, output_type=tf.int32)
    if logit_mask is not None:
        # What is masked becomes blanks at the end.
        ids = left_aligned(ids, mask, blank_id)
    previous = tf.pad(ids, [[0, 0], [1, 0]], constant_values=blank_id)[:, :-1]
    keep = (ids != blank_id) & (ids != previous)
    if end_id is not None:
        ends = tf.cast(ids == end_id, tf.int32)
        keep &= tf.cumsum(ends, axis=1, exclusive=True) == 0
    return left_aligned(ids, keep, 0)


def left_aligned(ids: tf.Tensor, keep: tf.Tensor, pad_id: int) -> tf.Tensor:
    """Returns the kept ids `[B, T]` of each row in their order, and then `pad_id`."""
    order = kept_first(keep)
    kept = tf.gather(keep, order, batch_dims=1)
    return tf.where(kept, tf.gather(ids, order, batch_dims=1), pad_id)


def kept_first(keep: tf.Tensor) -> tf.Tensor:
    """Returns the positions `[B, T]` of each row, those to keep before the others."""
    return tf.argsort(tf.cast(~keep, tf.int32), axis=1, stable=True)
