"""Parts shared by the searches: the loop over positions, limits, shapes of state."""

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vqem.layers.checks import whole_number


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
) -> tf.Tensor:
    """Writes one id per row and position until every row has ended.

    Args:
        choose: Function `choose(logits, position) -> ids`, from float32 `[batch, V]`
            to int32 `[batch]`.
        step, state, ...: The arguments of `greedy_search`.

    Returns:
        Ids, int32 `[batch, L]`.
    """
    limit = row_limits(max_length, batch_size)
    min_length = whole_number("min_length", min_length, 0)
    state = tf.nest.map_structure(tf.convert_to_tensor, state)

    def running(position, ids, ended, emitted, state):
        return tf.logical_not(tf.reduce_all(ended))

    def write(position, ids, ended, emitted, state):
        logits, state = step(ids, state, position)
        logits = allowed(checked(logits), position, end_id, min_length)
        # A row that has ended keeps running, but its ids are dropped. `step` never
        # gets `pad_id`, which therefore need not be one of its ids.
        ids = choose(logits, position)
        kept = tf.where(ended, pad_id, ids)
        emitted = tf.concat([emitted, kept[:, None]], axis=1)
        position += 1
        ended |= position >= limit
        if end_id is not None:
            ended |= ids == end_id
        return position, ids, ended, emitted, state

    rows = tf.TensorShape([None])
    emitted = tf.while_loop(
        running,
        write,
        (
            tf.constant(0),
            tf.fill([batch_size], tf.cast(start_id, tf.int32)),
            limit < 1,
            tf.zeros([batch_size, 0], tf.int32),
            state,
        ),
        shape_invariants=(
            tf.TensorShape([]),
            rows,
            rows,
            tf.TensorShape([None, None]),
            growing(state),
        ),
    )[3]
    return tf.ensure_shape(emitted, [tf.get_static_value(batch_size), None])


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


def growing(state: Any) -> Any:
    """Returns shape invariants for state whose first two axes may change."""

    def invariant(leaf):
        if leaf.shape.rank is None:
            return leaf.shape
        free = min(leaf.shape.rank, 2)
        return tf.TensorShape([None] * free + leaf.shape.as_list()[free:])

    return tf.nest.map_structure(invariant, state)


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
