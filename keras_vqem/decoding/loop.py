"""Parts shared by the searches: the loop over positions, limits, shapes of state."""

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vqem.checks import whole_number


def emit(
    choose: Callable,
    step: Callable,
    state: Any,
    batch_size: int | tf.Tensor,
    start_id: int,
    end_id: int | None,
    max_length: int | np.ndarray | tf.Tensor,
    min_length: int,
    pad_id: int,
    memory: Any = None,
) -> tf.Tensor:
    """Writes one id per row and position until every row has ended.

    Args:
        choose: Function `choose(logits, position) -> ids`, from float32 `[batch, V]`
            to int32 `[batch]`.
        step, state, ...: The arguments of `greedy_search`.

    Returns:
        Ids, int32 `[batch, L]`.
    """
    min_length = whole_number("min_length", min_length, 0)
    limit = row_limits(max_length, batch_size)

    def write(position, rows, state, memory):
        logits, state = step(rows["ids"], state, position, *memory)
        logits = allowed(checked(logits), position, end_id, min_length)
        # A row that has ended may keep running, but its ids are dropped. `step` never
        # gets `pad_id`, which therefore need not be one of its ids.
        ids, ended = choose(logits, position), rows["ended"]
        kept = tf.where(ended, pad_id, ids)
        ended |= position + 1 >= rows["limit"]
        if end_id is not None:
            ended |= ids == end_id
        written = tf.concat([rows["written"], kept[:, None]], axis=1)
        return {**rows, "ids": ids, "ended": ended, "written": written}, state

    rows = {
        "ids": tf.fill([batch_size], tf.cast(start_id, tf.int32)),
        "ended": limit < 1,
        "limit": limit,
        "written": tf.zeros([batch_size, 0], tf.int32),
    }
    found = run(
        write,
        lambda rows: ~rows["ended"],
        rows,
        state,
        memory,
        results={"written": pad_id},
    )
    rows = tf.get_static_value(batch_size)
    return tf.ensure_shape(found["written"], [rows, None])


def run(
    write: Callable,
    is_live: Callable,
    rows: dict[str, tf.Tensor],
    state: Any,
    memory: Any,
    results: dict[str, int],
    num_beams: int = 1,
) -> dict[str, tf.Tensor]:
    """Calls `write` for one position after the other until all rows are done.

    If there is a `memory`, a long row does not keep the whole batch at work: whenever a
    quarter of the rows is done, their results are put aside, and they are left out of
    all tensors. Without one all rows stay, as `write` may know of tensors of its own.

    Args:
        write: Function `write(position, rows, state, memory) -> (rows, state)`. It gets
            the memory in a tuple, which is empty if there is none.
        is_live: Function `is_live(rows) -> booleans [n]`, False for rows that are done.
        rows: Dict of tensors `[n, ...]`.
        state: Nested tensors `[n * num_beams, ...]`.
        memory: Nested tensors `[n, ...]` that stay the same, or None.
        results: Dict from the names of those `rows` to return to the numbers that fill
            them up behind their end.
        num_beams: Number of rows of `state` per row.

    Returns:
        Dict of these rows, in their first order.
    """
    parts = () if memory is None else (memory,)
    state, parts = tf.nest.map_structure(tf.convert_to_tensor, (state, parts))

    def until(enough, position, rows, state, parts):
        def more(position, rows, state):
            return tf.reduce_sum(tf.cast(is_live(rows), tf.int32)) > enough

        def one(position, rows, state):
            return (position + 1, *write(position, rows, state, parts))

        return _while(more, one, (position, rows, state))

    if memory is None:
        _, rows, _ = until(0, tf.constant(0), rows, state, parts)
        return {name: rows[name] for name in results}
    done = {name: rows[name] for name in results}
    places = tf.range(tf.shape(next(iter(rows.values())))[0])

    def phase(position, places, rows, state, parts, done):
        enough = tf.size(places) * 3 // 4
        position, rows, state = until(enough, position, rows, state, parts)
        done = {
            name: _put(done[name], places, rows[name], fill)
            for name, fill in results.items()
        }
        kept = tf.cast(tf.where(is_live(rows))[:, 0], tf.int32)
        beams = tf.reshape(kept[:, None] * num_beams + tf.range(num_beams), [-1])
        places, rows, parts = _gathered((places, rows, parts), kept)
        return position, places, rows, _gathered(state, beams), parts, done

    return _while(
        lambda position, places, *_: tf.size(places) > 0,
        phase,
        (tf.constant(0), places, rows, state, parts, done),
    )[-1]


def _while(condition, body, variables):
    return tf.while_loop(
        condition,
        body,
        variables,
        shape_invariants=tf.nest.map_structure(_growing, variables),
    )


def _growing(leaf):
    """Returns a shape of which the first two axes and those of size 0 are free."""
    if leaf.shape.rank is None:
        return leaf.shape
    return tf.TensorShape(
        [None if i < 2 or not size else size for i, size in enumerate(leaf.shape)]
    )


def _gathered(tensors, kept):
    return tf.nest.map_structure(lambda leaf: tf.gather(leaf, kept), tensors)


def _put(done, places, rows, fill):
    """Returns results with some of their rows replaced by longer ones."""
    more = tf.shape(rows)[-1:] - tf.shape(done)[-1:]
    shape = tf.concat([tf.shape(done)[:-1], more], axis=0)
    done = tf.concat([done, tf.fill(shape, tf.cast(fill, done.dtype))], axis=-1)
    # A gather, as scattered rows may not be empty.
    count = tf.shape(done)[0]
    new = count + tf.range(tf.size(places))
    order = tf.tensor_scatter_nd_update(tf.range(count), places[:, None], new)
    return tf.gather(tf.concat([done, rows], axis=0), order)


def row_limits(
    max_length: int | np.ndarray | tf.Tensor, batch_size: int | tf.Tensor
) -> tf.Tensor:
    """Returns `max_length`, one number or one per row, as int32 `[batch]`."""
    if isinstance(max_length, numbers.Number):
        max_length = whole_number("max_length", max_length, 1)
    if max_length is not None:
        limits = tf.convert_to_tensor(max_length)
        if limits.dtype.is_integer and limits.shape.rank in (0, 1):
            return tf.broadcast_to(tf.cast(limits, tf.int32), [batch_size])
    raise ValueError(
        f"`max_length` must be an integer or integers [batch], received "
        f"{max_length!r}. Pass the maximum number of ids per row."
    )


def checked(logits: tf.Tensor) -> tf.Tensor:
    """Returns the logits of a step as float32 `[N, V]`, or raises if V is unknown."""
    if logits.shape.rank != 2 or logits.shape[-1] is None:
        raise ValueError(
            f"`step` must return logits [N, V] with a static V, received shape "
            f"{logits.shape}. Take the last position only, `logits[:, -1]`, and set "
            f"V with `tf.ensure_shape`."
        )
    return tf.cast(logits, tf.float32)


def allowed(
    logits: tf.Tensor, position: tf.Tensor, end_id: int | None, min_length: int
) -> tf.Tensor:
    """Sets `end_id` to minus infinity until `min_length` ids are written."""
    if end_id is None or min_length == 0:
        return logits
    is_end = tf.one_hot(end_id, logits.shape[-1], on_value=True, off_value=False)
    return tf.where(is_end & (position < min_length), -float("inf"), logits)
