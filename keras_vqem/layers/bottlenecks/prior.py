"""A prior over codes, which the E step adds to minus the squared distances.

Logits `[N, K]` of a prior are as large as those of the E step, but they are an input,
and there is no second copy of them: each chunk of the E step takes its rows.
"""

import tensorflow as tf
from keras import ops

# The least that a prior adds. It is below any distance, and above the logit of codes
# that must not be chosen: a code without a vector is worse than a forbidden one.
FORBIDDEN = -1e29


def check_shape(
    prior_logits: tf.Tensor, inputs: tf.Tensor, tail: tuple[int, ...]
) -> None:
    """Raises a `ValueError` if logits do not fit the vectors that they are for.

    Args:
        prior_logits: Logits to check.
        inputs: Vectors `[..., D]`.
        tail: Shape of the logits of one vector, `(K,)` or `(G, K)`.
    """
    wanted, found = (*inputs.shape[:-1], *tail), tuple(prior_logits.shape)
    if len(wanted) == len(found) and all(
        None in pair or pair[0] == pair[1] for pair in zip(wanted, found, strict=True)
    ):
        return
    raise ValueError(
        f"`prior_logits` must have one number per vector and code: shape {wanted} for "
        f"inputs of shape {tuple(inputs.shape)}, received {found}. To use the same "
        f"prior for several vectors, repeat it with keras.ops.broadcast_to."
    )


def rows_at(logits: tf.Tensor, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes rows of a prior, and tells which of them are one.

    A row with NaN or plus infinity is no prior, nor is one that forbids all codes.

    Args:
        logits: Numbers `[R, K]` of any dtype. Minus infinity forbids a code.
        places: Rows of `logits` to take, int32 `[n]`.

    Returns:
        A tuple `(log_prior, sound)`:

        - `log_prior`: Float32 `[n, K]`, at most 0: log probabilities up to a constant
          per row. Rows that are no prior are 0.
        - `sound`: Booleans `[n]`, False for rows that are no prior.
    """
    rows = ops.cast(ops.take(logits, places, axis=0), "float32")
    # Not ops.max, which refuses batches of no rows.
    top = tf.reduce_max(rows, axis=-1)
    # NaN is looked for, because XLA does not see it when it looks for the largest.
    sound = ops.isfinite(top) & ~ops.any(ops.isnan(rows), axis=-1)
    # Relative to the largest, equal logits are exactly 0 and change no code.
    return ops.where(sound[:, None], rows - top[:, None], 0.0), sound
