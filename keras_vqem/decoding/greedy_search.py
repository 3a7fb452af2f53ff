"""greedy_search: takes the most probable id at each position."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vqem.decoding.loop import emit


def greedy_search(
    step: Callable,
    state: Any,
    batch_size: int | tf.Tensor,
    start_id: int,
    end_id: int | None,
    max_length: int | np.ndarray | tf.Tensor,
    min_length: int = 0,
    pad_id: int = 0,
    memory: Any = None,
) -> tf.Tensor:
    """Writes sequences by taking the most probable id at each position.

    The whole search is one loop in the graph: it runs eagerly, inside a
    `tf.function`, and in a SavedModel. The result of a row does not depend on the
    other rows of the batch. Among equally probable ids, the lowest is taken.

    Args:
        step: Function `step(ids, state, position) -> (logits, state)`. It gets the
            ids `[batch]` that were written last (`start_id` at first), the state, and
            the position (a scalar that starts at 0). It returns logits `[batch, V]`
            for this position, and the new state in the same structure.
        state: Nested lists, tuples and dicts of tensors `[batch, ...]`, for example
            key-value caches. The second axis may grow, and every axis that is 0 at
            first. Pass `()` if `step` has no state.
        batch_size: Number of rows, an integer or a scalar tensor.
        start_id: Id that `step` gets at the first position; not part of the result.
        end_id: Id that ends a row. With None, all rows have `max_length` ids.
        max_length: Maximum number of ids per row, `end_id` included: an integer, a
            scalar tensor, or integers `[batch]` with one limit per row. A row that
            reaches its limit stops without `end_id`. With a tensor, a row whose limit
            is below 1 stays empty.
        min_length: Number of ids that must come before `end_id`.
        pad_id: Id that fills a row after its end. `step` never gets it.
        memory: Nested tensors `[batch, ...]` that stay the same, such as the encoded
            source. `step` gets them as a fourth argument, and the search then leaves
            out rows that have ended: `step` must not use other tensors with one row
            per example. None if there are none.

    Returns:
        Ids, int32 `[batch, L]`, where `L` is the number of steps taken: the length of
        the longest row.

    Example:

    >>> def count(ids, state, position):  # After each id comes the next one.
    ...     return keras.ops.one_hot(ids + 1, 10), state
    >>> ids = keras_vqem.decoding.greedy_search(
    ...     count, (), 2, start_id=4, end_id=8, max_length=np.array([3, 10]))
    >>> ids.numpy().tolist()
    [[5, 6, 7, 0], [5, 6, 7, 8]]
    """

    def most_probable(logits, position):
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    return emit(
        most_probable,
        step,
        state,
        batch_size,
        start_id,
        end_id,
        max_length,
        min_length,
        pad_id,
        memory,
    )
