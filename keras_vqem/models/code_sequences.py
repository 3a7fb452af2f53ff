"""Codes of a sentence as one sequence that ends in `end_code`.

A bottleneck with groups has several codes per position. The latent predictor sees all
of them in a row: those of the first position, then those of the second, and so on.
"""

import tensorflow as tf
from keras import ops

from keras_vqem.layers import DiscreteBottleneck


def flatten_groups(codes: tf.Tensor, tail: int = 0) -> tf.Tensor:
    """Puts the codes of all positions and groups in a row.

    Args:
        codes: Integers `[B, positions, *tail]`, or `[B, positions, groups, *tail]`.
        tail: Number of axes after those of positions and groups, which stay.

    Returns:
        Integers `[B, N, *tail]` with `N = positions * groups`.
    """
    lead = codes.shape.rank - tail
    if lead == 2:
        return codes
    shape = ops.shape(codes)
    return ops.reshape(codes, (shape[0], -1, *shape[lead:]))


def unflatten_groups(codes: tf.Tensor, bottleneck: DiscreteBottleneck) -> tf.Tensor:
    """Gives codes `[B, N]` the shape that the bottleneck's `decode` takes."""
    tail = bottleneck.groups.code_shape
    return ops.reshape(codes, (ops.shape(codes)[0], -1, *tail)) if tail else codes


def whole_positions(
    codes: tf.Tensor, num_groups: int, end_code: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts a batch of codes after the last position that is complete in any row.

    Args:
        codes: int32 `[B, N]`. A sequence ends with the first number that is not a
            code, such as `end_code`; what follows in its row is ignored.
        num_groups: Number of codes per position.
        end_code: Number of codes, which marks the end.

    Returns:
        A tuple `(codes, mask)`: int32 `[B, positions * num_groups]` with 0 after the
        end, and booleans `[B, positions]`, False after a sequence's end. There is at
        least one position.
    """
    # One position, even if all rows end before it is complete.
    codes = ops.pad(codes, [[0, 0], [0, num_groups]], constant_values=end_code)
    ended = (codes < 0) | (codes >= end_code)
    there = ops.cumsum(ops.cast(ended, "int32"), axis=1) == 0
    longest = ops.max(ops.sum(ops.cast(there, "int32"), axis=1), initial=0)
    longest = ops.maximum(longest // num_groups, 1) * num_groups
    codes, there = codes[:, :longest], there[:, :longest]
    # A position counts only if it has the codes of all groups.
    return ops.where(there, codes, 0), there[:, num_groups - 1 :: num_groups]


def soft_cross_entropy(
    logits: tf.Tensor, samples: tf.Tensor, mask: tf.Tensor, end_code: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cross entropy of code logits with sampled labels, the end included.

    Args:
        logits: Floats `[B, N + 1, num_codes + 1]` of the latent predictor.
        samples: int32 `[B, N, m]`, the labels of each code. Each sample counts 1 / m.
        mask: Booleans `[B, N]`, False for padding.
        end_code: Code that marks the end, the label after the last code of a row.

    Returns:
        A tuple `(loss, weights)` of float32 `[B, N + 1]`. The weights are 1 up to the
        end of each sequence and 0 after it, and 0 for rows without any codes.
    """
    logits = ops.cast(logits, "float32")
    end = ops.full_like(samples[:, :1], end_code)
    labels = ops.concatenate([samples, end], axis=1)
    number, place = _number_and_place(mask)
    labels = ops.where((place == number)[..., None], end_code, labels)
    picked = ops.mean(ops.take_along_axis(logits, labels, axis=-1), axis=-1)
    loss = ops.logsumexp(logits, axis=-1) - picked
    return loss, code_weights(mask)


def code_weights(mask: tf.Tensor) -> tf.Tensor:
    """Returns the weights `[B, N + 1]` of `soft_cross_entropy` for a mask `[B, N]`."""
    number, place = _number_and_place(mask)
    return ops.cast((place <= number) & (number > 0), "float32")


def _number_and_place(mask):
    """Number of codes of each row, [B, 1], and the places up to the end, [1, N + 1]."""
    number = ops.sum(ops.cast(mask, "int32"), axis=1)[:, None]
    return number, ops.arange(ops.shape(mask)[1] + 1)[None]
