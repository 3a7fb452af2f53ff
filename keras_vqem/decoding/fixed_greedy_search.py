"""fixed_greedy_search: greedy search whose tensors keep their shapes, for XLA."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_vqem.decoding.loop import allowed, checked


def fixed_greedy_search(
    step: Callable,
    state: Any,
    start_id: int,
    end_id: int,
    max_length: tf.Tensor,
    length: int | tf.Tensor,
    min_length: int = 0,
    pad_id: int = 0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Writes sequences as `greedy_search`, with room for `length` ids from the start.

    Args:
        step: Function `step(ids, state, position) -> (logits, state)`, as in
            `greedy_search`.
        state: Nested tensors `[batch, ...]`, whose shapes stay.
        start_id: Id that `step` gets at the first position; not part of the result.
        end_id: Id that ends a row.
        max_length: int32 `[batch]`, maximum numbers of ids, `end_id` included.
        length: Number that none of them is above.
        min_length: Number of ids that must come before `end_id`.
        pad_id: Id that fills a row after its end.

    Returns:
        A tuple `(ids, steps)`: int32 `[batch, length]`, and the number of steps taken,
        behind which there is nothing but `pad_id`.
    """
    places = tf.range(length)

    def is_live(position, ids, ended, written, state):
        return tf.reduce_any(~ended) & (position < length)

    def write(position, ids, ended, written, state):
        logits, state = step(ids, state, position)
        logits = allowed(checked(logits), position, end_id, min_length)
        ids = tf.argmax(logits, axis=-1, output_type=tf.int32)
        kept = tf.where(ended, pad_id, ids)
        written = tf.where(places == position, kept[:, None], written)
        ended |= (ids == end_id) | (position + 1 >= max_length)
        return position + 1, ids, ended, written, state

    ids = tf.fill(tf.shape(max_length), start_id)
    written = tf.fill([tf.size(max_length), length], pad_id)
    first = (tf.constant(0), ids, max_length < 1, written, state)
    steps, _, _, written, _ = tf.while_loop(is_live, write, first)
    return written, steps
