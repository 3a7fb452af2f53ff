"""Fertilities: how often each source token is copied to the input of a decoder."""

import tensorflow as tf
from keras import ops

from keras_vqem.ids import PAD_ID

# How one fertility is chosen from a distribution over them.
CHOICES = ("argmax", "mean")


def copied(
    source_ids: tf.Tensor, fertilities: tf.Tensor, length: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Copies each source token as often as its fertility says, in order.

    Args:
        source_ids: int32 `[B, S]`.
        fertilities: int32 `[B, S]`, none below 0.
        length: Number of positions to return. Copies beyond it are left out.

    Returns:
        A tuple `(ids, mask)`: int32 `[B, length]`, padded with 0, and booleans
        `[B, length]`, False for padding.

    Example:

    >>> ids, _ = copied(np.array([[7, 8, 9]]), np.array([[2, 0, 1]]), 4)
    >>> ids.numpy().tolist()
    [[7, 7, 9, 0]]
    """
    ends = ops.cumsum(ops.cast(fertilities, "int32"), axis=1)
    positions = ops.arange(length, dtype="int32")
    # A position belongs to the first token whose copies do not end before it.
    ended = ops.cast(ends[:, None, :] <= positions[:, None], "int32")
    places = ops.sum(ended, axis=-1)
    number = ops.shape(source_ids)[1]
    mask = places < number
    ids = tf.gather(source_ids, ops.minimum(places, number - 1), batch_dims=1)
    return ops.where(mask, ids, PAD_ID), mask


def cut(fertilities: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Lowers the last fertilities of each row so that their sum is at most a limit.

    Args:
        fertilities: int32 `[..., S]`.
        limit: int32, of a shape that broadcasts to `[..., S]`.

    Returns:
        int32 `[..., S]`.

    Example:

    >>> cut(np.array([[2, 0, 3, 1]]), np.array([[4]])).numpy().tolist()
    [[2, 0, 2, 0]]
    """
    ends = ops.minimum(ops.cumsum(fertilities, axis=-1), limit)
    return ends - ops.concatenate([ops.zeros_like(ends[..., :1]), ends[..., :-1]], -1)


def candidates(
    logits: tf.Tensor, mask: tf.Tensor, fertility: str, num_samples: int, seed: int
) -> tf.Tensor:
    """Chooses fertilities for each source, the first at once, the others by drawing.

    A source has the same draws in any batch, however it is padded.

    Args:
        logits: Floats `[B, S, max_fertility + 1]`.
        mask: Booleans `[B, S]`, False for padding, whose fertility is 0.
        fertility: How the first candidate is chosen: `"argmax"` takes the most
            probable fertility of each token, `"mean"` rounds its expectation.
        num_samples: Number of candidates.
        seed: Integer on which the draws depend.

    Returns:
        int32 `[B, num_samples, S]`.
    """
    if fertility not in CHOICES:
        raise ValueError(
            f"`fertility` must be one of {', '.join(map(repr, CHOICES))}, received "
            f"{fertility!r}."
        )
    logits = ops.cast(logits, "float32")
    if fertility == "argmax":
        first = tf.argmax(logits, axis=-1, output_type=tf.int32)
    else:
        values = ops.arange(logits.shape[-1], dtype="float32")
        mean = ops.sum(ops.softmax(logits) * values, axis=-1)
        first = ops.cast(ops.round(mean), "int32")
    found = first[:, None]
    if num_samples > 1:
        # One table of noise for all rows. Its numbers are made in order, so that
        # another place of a longer source changes nothing before it.
        shape = (ops.shape(logits)[1], num_samples - 1, logits.shape[-1])
        uniform = tf.random.stateless_uniform(shape, (0, seed), minval=1e-30)
        noise = -ops.log(-ops.log(ops.transpose(uniform, (1, 0, 2))))
        # Adding Gumbel noise and taking the largest is a draw from the softmax.
        drawn = tf.argmax(logits[:, None] + noise, axis=-1, output_type=tf.int32)
        found = ops.concatenate([found, drawn], axis=1)
    return ops.where(mask[:, None], found, 0)
