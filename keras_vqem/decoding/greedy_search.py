"""greedy_search: the most probable id at each position."""

import tensorflow as tf

from keras_vqem.decoding.loop import emit


def greedy_search(
    step,
    state,
    batch_size,
    start_id,
    end_id,
    max_length,
    min_length=0,
    pad_id=0,
):
    """Writes sequences by taking the most probable id at each position.

    The whole search is one loop in the graph: it runs eagerly, inside a
    `tf.function`, and in a SavedModel. A row of a batch gets what it would get
    alone. Among equally probable ids the lowest is taken.

    Args:
        step: `step(ids, state, position) -> (logits, state)`. It gets the ids [batch]
            written last (at first `start_id`), the state and the position (a scalar
            that starts at 0), and returns logits [batch, V] for this position and the
            new state, in the same structure. What stays the same over the loop, such
            as the encoded source, belongs in the closure of `step`.
        state: Nested lists, tuples and dicts of tensors [batch, t, ...], for example
            key-value caches. The second axis may grow, and may be 0 at first. `()`
            if there is none.
        batch_size: The number of rows, an integer or a scalar tensor.
        start_id: The id before the first position; not part of the result.
        end_id: The id that ends a row, or None: all rows have `max_length` ids.
        max_length: The most ids a row may have, its `end_id` counted: an integer, or
            a tensor, scalar or [batch]. A row that gets there just stops. With a
            tensor, a row whose limit is below 1 stays empty.
        min_length: The number of ids before which `end_id` is not allowed.
        pad_id: Fills a row after its end. `step` never gets it.

    Returns:
        Ids [batch, L] int32, where L is the number of steps, the length of the
        longest row.

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
    )
