"""sample_search: draws ids from the distribution of the model."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vqem.checks import whole_number
from keras_vqem.decoding.loop import emit


def sample_search(
    step: Callable,
    state: Any,
    batch_size: int | tf.Tensor,
    start_id: int,
    end_id: int | None,
    max_length: int | np.ndarray | tf.Tensor,
    min_length: int = 0,
    temperature: float | tf.Tensor = 1.0,
    top_k: int | None = None,
    top_p: float | tf.Tensor | None = None,
    *,
    seed: Sequence[int] | np.ndarray | tf.Tensor,
    pad_id: int = 0,
) -> tf.Tensor:
    """Writes sequences by drawing each id from the softmax of the logits.

    The draws depend only on `seed`: the same seed gives the same sequences, eagerly
    and in a graph. With one seed for the whole batch, the draws of a row depend on its
    place in the batch. With one seed per row, a row is the same in any batch.

    Args:
        step: Function `step(ids, state, position) -> (logits, state)`, as in
            `keras_vqem.decoding.greedy_search`.
        state: Nested lists, tuples and dicts of tensors `[batch, t, ...]`, as in
            `greedy_search`. Pass `()` if `step` has no state.
        batch_size: Number of rows, an integer or a scalar tensor.
        start_id: Id that `step` gets at the first position; not part of the result.
        end_id: Id that ends a row. With None, all rows have `max_length` ids.
        max_length: Maximum number of ids per row, `end_id` included: an integer, a
            scalar tensor, or integers `[batch]` with one limit per row. With a tensor,
            a row whose limit is below 1 stays empty.
        min_length: Number of ids that must come before `end_id`.
        temperature: Divisor of the logits, a number or a scalar tensor. Values below 1
            make probable ids more probable; 0 is greedy search.
        top_k: Number of most probable ids to draw from. None draws from all ids.
        top_p: Probability of the nucleus, above 0 and up to 1, a number or a scalar
            tensor: ids are drawn from the most probable ones, as few as have this
            probability together, at the given temperature and among the `top_k`. None
            or 1 draws from all ids.
        seed: Two integers, as a sequence or an int32 tensor `[2]`; or two integers per
            row, int32 `[batch, 2]`.
        pad_id: Id that fills a row after its end. `step` never gets it.

    Returns:
        Ids, int32 `[batch, L]`, where `L` is the number of steps taken: the length of
        the longest row.

    Example:

    >>> def coin(ids, state, position):
    ...     return keras.ops.zeros((3, 2)), state
    >>> ids = keras_vqem.decoding.sample_search(
    ...     coin, (), 3, start_id=0, end_id=None, max_length=5, seed=(0, 1))
    >>> ids.shape
    TensorShape([3, 5])

    References:
        - Holtzman et al., 2019. The Curious Case of Neural Text Degeneration.
          arXiv:1904.09751 (`top_p`).
    """
    if not tf.is_tensor(temperature) and not temperature >= 0:
        raise ValueError(
            f"`temperature` must be at least 0, received {temperature!r}. Use 0 to "
            f"take the most probable id."
        )
    if top_k is not None:
        top_k = whole_number("top_k", top_k, 1, "Use None to draw from all ids.")
    if top_p is not None and not tf.is_tensor(top_p):
        if not 0 < top_p <= 1:
            raise ValueError(
                f"`top_p` must be above 0 and at most 1, received {top_p!r}. Use None "
                f"to draw from all ids."
            )
        top_p = None if top_p == 1 else top_p
    seed = tf.cast(seed, tf.int32)
    rows = tf.get_static_value(batch_size)
    if not any(seed.shape.is_compatible_with(shape) for shape in ([2], [rows, 2])):
        raise ValueError(
            f"`seed` must be two integers, or two for each of {rows} rows; received "
            f"shape {seed.shape}. Pass, for example, seed=(0, 1)."
        )

    def uniform(seed, shape, position):
        return tf.random.stateless_uniform(
            shape,
            tf.random.fold_in(seed, position),
            minval=1e-30,  # Not 0, for which the noise is infinite.
        )

    def noise(shape, position):
        if seed.shape.rank == 1:
            found = uniform(seed, shape, position)
        else:
            found = tf.map_fn(
                lambda own: uniform(own, shape[1:], position),
                seed,
                fn_output_signature=tf.TensorSpec([None], tf.float32),
            )
        return -keras.ops.log(-keras.ops.log(found))

    def nucleus(logits, scale):
        # The largest comes first, and stays whatever its probability.
        above = (logits - logits[:, :1]) / tf.maximum(scale, 1e-30)
        before = tf.cumsum(tf.nn.softmax(above), axis=-1, exclusive=True)
        return tf.where(before < top_p, logits, -float("inf"))

    def draw(logits, position):
        among, scale = None, tf.cast(temperature, tf.float32)
        number = logits.shape[-1] if top_k is None else min(top_k, logits.shape[-1])
        if top_p is not None or number < logits.shape[-1]:
            logits, among = tf.math.top_k(logits, number)
        if top_p is not None:
            logits = nucleus(logits, scale)
        # Adding Gumbel noise and taking the largest is a draw from the softmax. Not
        # the logits but the noise is scaled: logits would overflow if divided by a
        # temperature near 0.
        drawn = tf.argmax(
            logits + scale * noise(tf.shape(logits), position),
            axis=-1,
            output_type=tf.int32,
        )
        return drawn if among is None else tf.gather(among, drawn, batch_dims=1)

    return emit(
        draw,
        step,
        state,
        batch_size,
        start_id,
        end_id,
        max_length,
        min_length,
        pad_id,
    )
