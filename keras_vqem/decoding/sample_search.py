"""sample_search: ids drawn from the distribution of the model."""

import keras
import tensorflow as tf

from keras_vqem.checks import whole_number
from keras_vqem.decoding.loop import emit


def sample_search(
    step,
    state,
    batch_size,
    start_id,
    end_id,
    max_length,
    min_length=0,
    temperature=1.0,
    top_k=None,
    *,
    seed,
    pad_id=0,
):
    """Writes sequences by drawing each id from the softmax of the logits.

    The draws depend on `seed` and nothing else: the same seed gives the same
    sequences, eagerly and in a graph. With one seed for all, a row's draws depend on
    its place in the batch; with a seed of its own a row is the same in any batch.

    Args:
        step, state, batch_size, start_id, end_id, max_length, min_length, pad_id: As
            in `keras_vqem.decoding.greedy_search`.
        temperature: Divides the logits; a number or a scalar tensor. Below 1 probable
            ids become more so; 0 is greedy search.
        top_k: If given, only this many most probable ids can be drawn.
        seed: Two integers, as a sequence or a tensor int32 [2]; or two for each row,
            int32 [batch, 2].

    Returns:
        Ids [batch, L] int32, as in `greedy_search`.

    Example:

    >>> def coin(ids, state, position):
    ...     return keras.ops.zeros((3, 2)), state
    >>> ids = keras_vqem.decoding.sample_search(
    ...     coin, (), 3, start_id=0, end_id=None, max_length=5, seed=(0, 1))
    >>> ids.shape
    TensorShape([3, 5])
    """
    if not tf.is_tensor(temperature) and not temperature >= 0:
        raise ValueError(
            f"`temperature` must be at least 0, received {temperature!r}. 0 takes the "
            f"most probable id."
        )
    if top_k is not None:
        top_k = whole_number("top_k", top_k, 1, "Use None to draw from all ids.")
    seed = tf.cast(seed, tf.int32)
    rows = tf.get_static_value(batch_size)
    if not any(seed.shape.is_compatible_with(shape) for shape in ([2], [rows, 2])):
        raise ValueError(
            f"`seed` must be two integers, or two for each of {rows} rows; received "
            f"shape {seed.shape}. For example seed=(0, 1)."
        )

    def uniform(seed, shape, position):
        return tf.random.stateless_uniform(
            shape,
            tf.random.fold_in(seed, position),
            minval=1e-30,  # Not 0, whose noise is infinite.
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

    def draw(logits, position):
        among = None
        if top_k is not None and top_k < logits.shape[-1]:
            logits, among = tf.math.top_k(logits, top_k)
        # Adding Gumbel noise and taking the largest is a draw from the softmax. The
        # noise is scaled rather than the logits, which would overflow near 0.
        scale = tf.cast(temperature, tf.float32)
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
