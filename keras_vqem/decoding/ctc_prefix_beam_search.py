"""ctc_prefix_beam_search: finds probable sequences by summing over alignments."""

import numpy as np
import tensorflow as tf

from keras_vqem.checks import whole_number
from keras_vqem.decoding.ctc_best_path import kept_first
from keras_vqem.layers.ctc_loss import checked_positions, time_first

# The log of 0. Finite, so that differences are numbers; far below any log probability,
# and far enough from the end of float32 to be added up at every position.
_NEVER = -1e30


def ctc_prefix_beam_search(
    logits: np.ndarray | tf.Tensor,
    end_id: int | None,
    logit_mask: np.ndarray | tf.Tensor | None = None,
    blank_id: int = 0,
    num_beams: int = 8,
    top_k: int = 8,
    length_bonus: float = 0.0,
    length_penalty: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the most probable sequences, summing over their alignments.

    Each position takes one id. Merging runs of equal ids and then dropping blanks turns
    the ids of all positions into a sequence. The search goes through the positions and
    keeps the `num_beams` best prefixes per row. A prefix knows the probability of its
    alignments that end in a blank and of those that do not. Alignments of the same
    prefix are added up, whichever way they came about.

    Prefixes are ranked by `log p + length_bonus * length`, and the results by
    `(log p + length_bonus * length) / ((5 + length) / 6) ** length_penalty`, where `p`
    is the probability of the prefix and `length` counts `end_id`.

    With enough beams and symbols the search is exact. Else alignments whose prefixes
    were dropped are missing in `p`. The result of a row does not depend on the other
    rows of the batch. It compiles under XLA.

    Args:
        logits: Floats `[B, T, V]`, as in `keras_vqem.layers.ctc_loss`.
        end_id: Id that ends a row. What comes after it is dropped, so that all that
            may follow counts as the same sequence. With None, rows go on to their last
            position.
        logit_mask: Booleans `[B, T]`. False leaves a position out, as if it were not
            there. None uses all positions.
        blank_id: Id of the blank, from 0 to `V - 1`.
        num_beams: Number of prefixes per row.
        top_k: Number of most probable ids per position by which prefixes grow, the
            blank apart. More than `V - 1` means all.
        length_bonus: Number to add to the log probability for each id of a sequence.
            Positive values favour longer sequences.
        length_penalty: Exponent of the length in the final ranking, as in
            `keras_vqem.decoding.beam_search`. Larger values favour longer sequences.

    Returns:
        A tuple `(ids, scores)`:

        - `ids`: int32 `[B, num_beams, T]`, best first. Each sequence ends with
          `end_id`, or where its row ends, and is filled up with 0.
        - `scores`: float32 `[B, num_beams]`, the log probabilities without bonus and
          penalty. Where there are fewer sequences than beams, the score is minus
          infinity and all ids are 0.

    Example:

    >>> p = np.array([[[0.6, 0.4], [0.6, 0.4]]], "float32")
    >>> keras_vqem.decoding.ctc_best_path(np.log(p), end_id=None).numpy().tolist()
    [[0, 0]]
    >>> ids, scores = keras_vqem.decoding.ctc_prefix_beam_search(
    ...     np.log(p), end_id=None, num_beams=2)
    >>> ids.numpy().tolist()
    [[[1, 0], [0, 0]]]
    >>> np.round(100 * np.exp(scores)).tolist()  # 0.4 * 0.4 + 2 * 0.4 * 0.6, 0.6 ** 2.
    [[64.0, 36.0]]

    References:
        - [Graves and Jaitly, 2014](https://proceedings.mlr.press/v32/graves14.html)
        - [Hannun et al., 2014](https://arxiv.org/abs/1408.2873)
    """
    logits, mask, blank_id = checked_positions(logits, logit_mask, blank_id)
    num_beams = whole_number("num_beams", num_beams, 1)
    top_k = whole_number("top_k", top_k, 1)
    if logits.shape[2] is None:
        raise ValueError(
            f"`logits` must have a static V, received shape {logits.shape}. Set it "
            f"with `tf.ensure_shape`."
        )
    if not length_penalty >= 0:
        raise ValueError(
            f"`length_penalty` must be at least 0, received {length_penalty!r}. Use 0 "
            f"to compare plain log probabilities."
        )
    batch_size, num_positions = tf.unstack(tf.shape(logits)[:2])
    order = kept_first(mask)
    symbols, log_p, log_p_of = _symbols(logits, mask, order, blank_id, top_k)
    width = symbols.shape[2]
    places = tf.range(num_positions)

    def extend(position, prefixes, length, last, blank, label):
        """Reads one position.

        Args:
            position: The position, a scalar.
            prefixes: int32 `[B, beams, T]`, filled up with 0.
            length: int32 `[B, beams]`.
            last: int32 `[B, beams]`, the last id of each prefix; `blank_id` if empty.
            blank: Log probability of all alignments that end in a blank, `[B, beams]`.
            label: Log probability of those that do not.
        """
        ids, log_p_ids = tf.gather(symbols, position), tf.gather(log_p, position)
        total = _log_add(blank, label)
        ended = last == (-1 if end_id is None else end_id)

        # By the same id again a prefix grows only after a blank; else it stays.
        again = last[:, :, None] == ids[:, None]
        growth = tf.where(again, blank[:, :, None], total[:, :, None])
        # Growing may lead to another prefix of the beam: find out which prefix j is
        # prefix i and one id more. Then its probability goes to j.
        cut = tf.where(places == length[:, :, None] - 1, 0, prefixes)
        is_parent = tf.reduce_all(prefixes[:, :, None] == cut[:, None], axis=3)
        is_parent &= length[:, :, None] + 1 == length[:, None]
        is_parent &= total[:, None] > 0.5 * _NEVER
        taken = tf.reduce_any(is_parent[..., None] & again[:, None], axis=2)
        growth = tf.where(taken | ended[:, :, None], _NEVER, growth)
        growth += log_p_ids[:, None]
        from_parent = tf.where(
            last[:, :, None] == last[:, None], blank[:, :, None], total[:, :, None]
        )
        from_parent = tf.reduce_max(tf.where(is_parent, from_parent, _NEVER), axis=1)

        # A prefix stays by a blank or by its last id; one that has ended, by anything.
        stay = tf.where(ended, 0.0, log_p_ids[:, :1])
        blank = total + stay
        label = _log_add(tf.where(ended, _NEVER, label), from_parent)
        label += log_p_of(position, last)

        # The first symbol is the blank, in whose place a prefix stays as it is.
        rank = tf.concat([_log_add(blank, label)[..., None], growth[..., 1:]], axis=2)
        if length_bonus:
            grown = tf.cast(tf.range(width) > 0, tf.float32)
            rank += length_bonus * (tf.cast(length, tf.float32)[..., None] + grown)
        _, chosen = tf.math.top_k(
            tf.reshape(rank, [batch_size, num_beams * width]), num_beams
        )
        parent, symbol = chosen // width, chosen % width
        grows = symbol > 0
        symbol = tf.gather(ids, symbol, batch_dims=1)

        def chosen_of(x):
            return tf.gather(x, parent, batch_dims=1)

        growth = tf.reshape(growth, [batch_size, num_beams * width])
        growth = tf.gather(growth, chosen, batch_dims=1)
        prefixes, length = chosen_of(prefixes), chosen_of(length)
        here = grows[..., None] & (places == length[..., None])
        return (
            position + 1,
            tf.where(here, symbol[..., None], prefixes),
            length + tf.cast(grows, tf.int32),
            tf.where(grows, symbol, chosen_of(last)),
            tf.where(grows, _NEVER, chosen_of(blank)),
            tf.where(grows, growth, chosen_of(label)),
        )

    def reading(position, *state):
        return position < last_position

    # Masked positions come last, and add nothing where another row has more.
    last_position = tf.reduce_max(
        tf.concat([[0], tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)], axis=0)
    )
    empty = tf.zeros([batch_size, num_beams], tf.int32)
    alone = tf.one_hot(0, num_beams, on_value=0.0, off_value=_NEVER)
    _, ids, length, _, blank, label = tf.while_loop(
        reading,
        extend,
        (
            tf.constant(0),
            tf.zeros([batch_size, num_beams, num_positions], tf.int32),
            empty,
            empty + blank_id,
            tf.broadcast_to(alone, [batch_size, num_beams]),
            tf.fill([batch_size, num_beams], _NEVER),
        ),
    )
    scores = _log_add(blank, label)
    exists = scores > 0.5 * _NEVER
    length = tf.cast(length, tf.float32)
    rank = scores + length_bonus * length
    rank = tf.where(exists, rank / ((5.0 + length) / 6.0) ** length_penalty, _NEVER)
    scores = tf.where(exists, scores, -float("inf"))
    ids = tf.where(exists[..., None], ids, 0)
    order = tf.math.top_k(rank, num_beams).indices
    return tf.gather(ids, order, batch_dims=1), tf.gather(scores, order, batch_dims=1)


def _symbols(logits, mask, order, blank_id, top_k):
    """The ids by which prefixes grow, and their log probabilities.

    Args:
        logits: Floats `[B, T, V]`.
        mask: Booleans `[B, T]`.
        order: int32 `[B, T]`, the order in which positions are read.
        blank_id: Id of the blank.
        top_k: Number of ids beside the blank.

    Returns:
        A tuple of the ids int32 `[T, B, N]`, the blank first; their log probabilities
        `[T, B, N]`, where masked positions are certainly blank; and a function from a
        position and ids `[B, beams]` to log probabilities.
    """
    logits = tf.cast(logits, tf.float32)
    normalizers = tf.reduce_logsumexp(logits, axis=2, keepdims=True)
    # One more than asked for, in case the blank is among them; else the last is one too
    # many. It is not cut off, because XLA would then sort all V ids.
    best, ids = tf.math.top_k(logits, min(top_k + 1, logits.shape[2]))
    grows = ids != blank_id
    grows &= tf.cumsum(tf.cast(grows, tf.int32), axis=2) <= top_k
    best = tf.where(grows & mask[..., None], best - normalizers, _NEVER)
    blank = logits[..., blank_id : blank_id + 1] - normalizers
    blank = tf.where(mask[..., None], blank, 0.0)
    ids = tf.concat([tf.fill(tf.shape(blank), blank_id), ids], axis=2)
    log_p = tf.maximum(tf.concat([blank, best], axis=2), _NEVER)

    def in_order(x):
        return time_first(tf.gather(x, order, batch_dims=1))

    rows = tf.range(tf.shape(logits)[0])[:, None]
    times, used = time_first(order), in_order(mask[..., None])
    normalizers = in_order(normalizers)

    def log_p_of(position, ids):
        time = tf.broadcast_to(tf.gather(times, position)[:, None], tf.shape(ids))
        where = tf.stack([tf.broadcast_to(rows, tf.shape(ids)), time, ids], axis=2)
        found = tf.gather_nd(logits, where) - tf.gather(normalizers, position)
        return tf.maximum(tf.where(tf.gather(used, position), found, _NEVER), _NEVER)

    return in_order(ids), in_order(log_p), log_p_of


def _log_add(a, b):
    """`log(exp(a) + exp(b))`, of finite numbers."""
    high = tf.maximum(a, b)
    return high + tf.math.log1p(tf.exp(tf.minimum(a, b) - high))
