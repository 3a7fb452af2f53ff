"""ctc_loss: how improbable a sequence is when any alignment to positions will do."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from keras import ops

from keras_vqem.checks import whole_number

_NEVER = -float("inf")


def ctc_loss(
    logits: np.ndarray | tf.Tensor,
    target_ids: np.ndarray | tf.Tensor,
    logit_mask: np.ndarray | tf.Tensor | None = None,
    blank_id: int = 0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the negative log likelihood of each target, summed over alignments.

    Each position takes one id. Merging runs of equal ids and then dropping blanks turns
    the ids of all positions into a sequence. The likelihood of a target is the
    probability of all the ways to arrive at it (connectionist temporal classification,
    CTC). A target fits if it has at most as many ids as there are positions, counting
    one more position for each id that equals the id before it, because a blank must
    stand between the two. A target that does not fit has a loss of 0 and no gradient.

    The loss is exact and is computed in float32, whatever the dtype of the logits.
    The recursion runs over the log probabilities of the blank and of the ids in each
    target, so nothing of the size of the logits is kept for the backward pass but the
    logits. It compiles under XLA. Second derivatives are not available.

    Args:
        logits: Floats `[B, T, V]`, one distribution over ids per position, before the
            softmax.
        target_ids: Integers `[B, L]` below `V`, filled up with 0 on the right. They
            must not contain `blank_id` otherwise. An id that ends a sentence counts as
            any other. To train without it, replace it with 0.
        logit_mask: Booleans `[B, T]`. False leaves a position out, as if it were not
            there. None uses all positions.
        blank_id: Id of the blank, from 0 to `V - 1`. The default is the id that fills
            up targets, which is therefore no id of a target.

    Returns:
        A tuple `(loss, fits)`:

        - `loss`: float32 `[B]`, in nats. An empty target has the loss of blanks at all
          positions, which is 0 where all positions are masked. If all alignments have
          probability 0 because logits are minus infinity, the loss is infinite and the
          gradient 0.
        - `fits`: Booleans `[B]`, whether the target fits the positions.

    Example:

    >>> logits = np.zeros((2, 2, 3), "float32")  # Each id has probability 1/3.
    >>> loss, fits = keras_vqem.layers.ctc_loss(logits, np.array([[2, 0], [2, 2]]))
    >>> np.round(np.exp(-loss) * 9).tolist()  # "2 2", "2 blank", "blank 2".
    [3.0, 9.0]
    >>> fits.numpy().tolist()  # Two equal ids need a blank between them.
    [True, False]

    Reference:
        [Graves et al., 2006](https://www.cs.toronto.edu/~graves/icml_2006.pdf)
    """
    logits, mask, blank_id = checked_positions(logits, logit_mask, blank_id)
    target_ids, is_label, repeated, fits = checked_targets(target_ids, mask)

    @tf.custom_gradient
    def losses(logits):
        normalizers = tf.reduce_logsumexp(tf.cast(logits, tf.float32), axis=2)

        def log_p(ids):
            found = tf.gather(logits, ids, axis=2, batch_dims=1)
            return tf.cast(found, tf.float32) - normalizers[..., None]

        blanks = tf.fill([tf.shape(target_ids)[0], 1], blank_id)
        log_p_blank, log_p_label = log_p(blanks), log_p(target_ids)
        log_p_label = tf.where(is_label[:, None], log_p_label, _NEVER)
        log_likelihood, joint = forward_backward(
            log_p_blank, log_p_label, mask, is_label, repeated
        )
        occupancy = tf.nn.softmax(joint)

        def gradient(upstream):
            possible = fits & (log_likelihood > _NEVER)
            weights = tf.where(mask & possible[:, None], upstream[:, None], 0.0)
            weights = weights[..., None]
            slopes = tf.exp(tf.cast(logits, tf.float32) - normalizers[..., None])
            slopes = tf.tensor_scatter_nd_sub(
                tf.math.multiply_no_nan(slopes, weights),
                _indices(tf.concat([blanks, target_ids], axis=1), tf.shape(logits)),
                tf.math.multiply_no_nan(occupancy, weights),
            )
            return tf.cast(slopes, logits.dtype)

        return tf.where(fits, -log_likelihood, 0.0), gradient

    return losses(logits), fits


def checked_positions(
    logits: np.ndarray | tf.Tensor,
    logit_mask: np.ndarray | tf.Tensor | None,
    blank_id: int,
) -> tuple[tf.Tensor, tf.Tensor, int]:
    """Returns logits `[B, T, V]`, a mask `[B, T]` and the blank's id, or raises."""
    logits = ops.convert_to_tensor(logits)
    if not logits.dtype.is_floating or logits.shape.rank != 3:
        raise ValueError(
            f"`logits` must be floats [B, T, V], received {logits.dtype.name} of shape "
            f"{logits.shape}. Pass a batch as it leaves the output layer."
        )
    blank_id = whole_number("blank_id", blank_id, 0)
    if logits.shape[2] is not None and blank_id >= logits.shape[2]:
        raise ValueError(
            f"`blank_id` must be below V, received {blank_id} and logits of shape "
            f"{logits.shape}. Use an id that no target contains, such as 0."
        )
    if logit_mask is None:
        mask = tf.fill(tf.shape(logits)[:2], True)
    else:
        mask = ops.cast(logit_mask, "bool")
    return logits, mask, blank_id


def checked_targets(
    target_ids: np.ndarray | tf.Tensor, mask: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns targets `[B, L]` and what is known of them, or raises.

    Args:
        target_ids: Integers `[B, L]`, filled up with 0.
        mask: Booleans `[B, T]`, False for positions to leave out.

    Returns:
        A tuple of the ids int32 `[B, L]`; whether each is a label and whether it is
        the same as the label before it, `[B, L]`; and whether a target fits the
        positions, `[B]`.
    """
    target_ids = ops.cast(target_ids, "int32")
    if len(target_ids.shape) != 2:
        raise ValueError(
            f"`target_ids` must be integers [B, L], received shape {target_ids.shape}. "
            f"Pass one row of ids per example, filled up with 0."
        )
    is_label = target_ids != 0
    previous = tf.pad(target_ids, [[0, 0], [1, 0]])[:, :-1]
    repeated = (target_ids == previous) & is_label
    needed = ops.sum(ops.cast(is_label, "int32") + ops.cast(repeated, "int32"), axis=1)
    fits = needed <= ops.sum(ops.cast(mask, "int32"), axis=1)
    return target_ids, is_label, repeated, fits


def _indices(ids, shape):
    """Where `[B, T, V]` holds the ids `[B, N]` of each row: int32 `[B, T, N, 3]`."""
    size = [shape[0], shape[1], tf.shape(ids)[1]]
    rows = tf.broadcast_to(tf.range(size[0])[:, None, None], size)
    positions = tf.broadcast_to(tf.range(size[1])[:, None], size)
    return tf.stack([rows, positions, tf.broadcast_to(ids[:, None], size)], axis=-1)


def _log_add(a, b):
    """`log(exp(a) + exp(b))`, also of minus infinity."""
    high = tf.maximum(a, b)
    gap = tf.where(high > _NEVER, tf.minimum(a, b) - high, _NEVER)
    return high + tf.math.log1p(tf.exp(gap))


def forward_backward(
    log_p_blank: tf.Tensor,
    log_p_label: tf.Tensor,
    mask: tf.Tensor,
    is_label: tf.Tensor,
    repeated: tf.Tensor,
    add: Callable = _log_add,
    reduce: Callable = tf.reduce_logsumexp,
) -> tuple[tf.Tensor, ...]:
    """Sums over all alignments of a target.

    At each position an alignment is in one of `2L + 1` states: in one of the `L`
    labels, or in the blank before one of them or after the last. The backward pass
    is the forward pass over reversed positions and labels, so both are one loop over
    twice the rows.

    Args:
        log_p_blank: float32 `[B, T, 1]`.
        log_p_label: float32 `[B, T, L]`, minus infinity for what fills up targets.
        mask: Booleans `[B, T]`, False for positions to leave out.
        is_label: Booleans `[B, L]`.
        repeated: Booleans `[B, L]`, whether the label equals the one before it.
        add: Function that adds two log probabilities. With `tf.maximum` the best
            alignment takes the place of the sum.
        reduce: The same for an axis: `tf.reduce_max`.

    Returns:
        A tuple of the log likelihoods `[B]`, and `[B, T, 1 + L]` the log probabilities
        of the blank and of each label at each position, together with the target. The
        latter lack a constant per position.
    """
    num_labels = tf.shape(is_label)[1]
    length = tf.reduce_sum(tf.cast(is_label, tf.int32), axis=1)
    # A label and the one before it, read backward, are a label and the one after it.
    repeated_after = tf.pad(repeated, [[0, 0], [0, 1]])[:, 1:]
    same = tf.concat([repeated, repeated_after[:, ::-1]], axis=0)

    def both_ways(x, *axes):
        """Time first, the reversed rows after the others, and a position that is not
        used at the end: `tf.scan` needs at least one."""
        x = tf.concat([x, tf.reverse(x, axes)], axis=0)
        return tf.pad(time_first(x), [[0, 1], [0, 0], [0, 0]])

    def move(state, position):
        """From before one position to before the next."""
        blank, label, scale = state
        log_p_blank, log_p_label, used = position
        blank_now, label_now = blank + log_p_blank, label + log_p_label
        # The blank after a label is entered from that label and from itself. The next
        # label is entered from these two as well, or, if it is the same label again,
        # from the blank alone.
        label_before = tf.pad(label_now, [[0, 0], [1, 0]], constant_values=_NEVER)
        entry = add(blank_now, label_before)
        onto_label = tf.where(same, blank_now[:, :-1], entry[:, :-1])
        label_now = add(label_now, onto_label)
        # Only the scale grows with the number of positions, so no digits are lost.
        peak = tf.reduce_max(tf.concat([entry, label_now], axis=1), 1, keepdims=True)
        peak = tf.where(peak > _NEVER, peak, 0.0)
        now = (entry - peak, label_now - peak, scale + peak)
        return tuple(tf.where(used, *pair) for pair in zip(now, state, strict=True))

    start = tf.concat([tf.zeros_like(length), num_labels - length], axis=0)
    first = tf.one_hot(start, num_labels + 1, on_value=0.0, off_value=_NEVER)
    first = (first, first[:, :-1], tf.zeros_like(first[:, :1]))
    steps = tf.scan(
        move,
        (
            both_ways(log_p_blank, 1),
            both_ways(log_p_label, 1, 2),
            both_ways(mask[..., None], 1),
        ),
        first,
    )
    blank, label, scale = (
        tf.concat([start[None], step], axis=0)
        for start, step in zip(first, steps, strict=True)
    )
    rows = tf.shape(is_label)[0]
    log_likelihood = scale[-1, :rows, 0] + tf.gather(
        blank[-1, :rows], length, batch_dims=1
    )

    def joint(states, log_p):
        forward, backward = states[:-2, :rows], states[:-2, rows:]
        states = forward + tf.reverse(backward, [0, 2])
        return tf.transpose(states, [1, 0, 2]) + log_p

    blank, label = joint(blank, log_p_blank), joint(label, log_p_label)
    blank = reduce(blank, axis=2, keepdims=True)
    return log_likelihood, tf.concat([blank, label], axis=2)


def time_first(x: tf.Tensor) -> tf.Tensor:
    """Exchanges the first two axes of a tensor of floats, booleans or ids below 2**24.

    oneDNN complains of all types but floats on standard error.
    """
    if x.dtype == tf.bool:  # TensorFlow would transpose before a cast of booleans.
        return time_first(tf.where(x, 1.0, 0.0)) > 0.0
    axes = [1, 0, *range(2, len(x.shape))]
    return tf.cast(tf.transpose(tf.cast(x, tf.float32), axes), x.dtype)
