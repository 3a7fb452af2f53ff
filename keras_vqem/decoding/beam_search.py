"""beam_search: finds probable sequences with several hypotheses side by side."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vqem.checks import whole_number
from keras_vqem.decoding.loop import allowed, checked, row_limits, run

_NEVER = -float("inf")


def beam_search(
    step: Callable,
    state: Any,
    batch_size: int | tf.Tensor,
    start_id: int,
    end_id: int | None,
    max_length: int | np.ndarray | tf.Tensor,
    min_length: int = 0,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    pad_id: int = 0,
    best_only: bool = False,
    patience: float | None = None,
    memory: Any = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the most probable sequences, with `num_beams` hypotheses per row.

    The score of a hypothesis is `log p / ((5 + length) / 6) ** length_penalty`, where
    `p` is its probability under the model and `length` counts `end_id`. At each
    position the search ranks all continuations of the live hypotheses. Those among
    the `num_beams` best that end in `end_id` are finished; a row keeps its
    `num_beams` best finished hypotheses. The `num_beams` best continuations that do
    not end stay live. A row is done when none of its live hypotheses can still enter
    its `num_beams` best finished ones.

    If a row reaches `max_length` with fewer than `num_beams` finished hypotheses, its
    best live ones take the remaining places as they are, without `end_id`.

    The result of a row does not depend on the other rows of the batch. With
    `num_beams=1` and `length_penalty=0` it is the result of `greedy_search`.

    Args:
        step: Function `step(ids, state, position) -> (logits, state)`, as in
            `keras_vqem.decoding.greedy_search`, with `batch_size * num_beams` rows.
            The hypotheses of one example are adjacent rows.
        state: Nested lists, tuples and dicts of tensors, as in `greedy_search`, with
            `batch_size * num_beams` rows. The search reorders it along with the
            hypotheses. It does not reorder tensors in the closure of `step`.
        batch_size: Number of examples, an integer or a scalar tensor.
        start_id: Id that `step` gets at the first position; not part of the result.
        end_id: Id that ends a hypothesis. With None, all have `max_length` ids.
        max_length: Maximum number of ids per hypothesis, `end_id` included: an
            integer, a scalar tensor, or integers `[batch]` with one limit per row.
            With a tensor, a row whose limit is below 1 stays empty.
        min_length: Number of ids that must come before `end_id`. Scores use the
            model's probabilities as they are, also where `end_id` is not yet allowed.
        num_beams: Number of hypotheses per row, from 1 to the number of ids `V`.
        length_penalty: Exponent of the length in the score. 0 compares plain log
            probabilities, which favours short sequences; larger values favour longer
            ones.
        pad_id: Id that fills a hypothesis after its end. `step` never gets it.
        best_only: Whether to stop as soon as the best hypothesis of every row is
            certain. The first result stays the same; the others may not be the next
            best.
        patience: Factor, at least 1, by which a live hypothesis is assumed to grow
            at most before it ends. A row is then done as soon as its live hypotheses
            cannot enter its best finished ones within that length. The results may
            differ from those of None, with which hypotheses may grow to `max_length`
            and most rows go on until then.
        memory: Nested tensors `[batch_size, ...]`, as in `greedy_search`: one row per
            example, which its hypotheses share.

    Returns:
        A tuple `(ids, scores)`:

        - `ids`: int32 `[batch, num_beams, L]`, best first. `L` is the number of steps
          taken, which can exceed the length of the longest result.
        - `scores`: float32 `[batch, num_beams]`. Where there are fewer sequences than
          beams, the score is minus infinity and all ids are `pad_id`.

    Example:

    >>> def step(ids, state, position):  # 3 ends; 2 is likelier, but never ends.
    ...     after_2 = keras.ops.cast(ids == 2, "float32")[:, None]
    ...     p = after_2 * np.array([0, 0.5, 0.5, 0]) + (1 - after_2) * np.array(
    ...         [0, 0, 0.6, 0.4])
    ...     return keras.ops.log(p), state
    >>> ids, scores = keras_vqem.decoding.beam_search(
    ...     step, (), 1, start_id=0, end_id=3, max_length=2, num_beams=2)
    >>> ids.numpy().tolist()
    [[[3, 0], [2, 1]]]
    """
    num_beams = whole_number("num_beams", num_beams, 1)
    min_length = whole_number("min_length", min_length, 0)
    if not length_penalty >= 0:
        raise ValueError(
            f"`length_penalty` must be at least 0, received {length_penalty!r}. Use 0 "
            f"to compare plain log probabilities."
        )
    if patience is not None and not patience >= 1:
        raise ValueError(
            f"`patience` must be at least 1, received {patience!r}. Use 1 to stop as "
            f"early as possible, or None to find the best hypotheses."
        )

    def penalty(length):
        return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty

    def is_live(rows):
        return rows["live"][:, 0] > _NEVER

    def write(position, rows, state, memory):
        live, limit = rows["live"], rows["limit"]
        ids = tf.reshape(rows["ids"], [-1])
        logits, state = step(ids, state, position, *memory)
        logits = checked(logits)
        if num_beams > logits.shape[-1]:
            raise ValueError(
                f"`num_beams` must be at most V, the number of ids, because the first "
                f"position has only V continuations. Received num_beams={num_beams} "
                f"and logits of shape {logits.shape} from `step`. Use fewer beams."
            )
        # Each hypothesis has one continuation that ends, so the best 2 * num_beams
        # include at least num_beams that stay live. They are ranked by logits because
        # rounding can turn distinct logits into equal log probabilities.
        own = min(2 * num_beams, logits.shape[-1])
        best, best_ids = tf.math.top_k(
            allowed(logits, position, end_id, min_length), own
        )
        own_log_p = best - _log_sum_exp(logits)
        best = tf.where(best > _NEVER, own_log_p, _NEVER) + tf.reshape(live, [-1, 1])
        log_p, chosen = tf.math.top_k(
            tf.reshape(best, [-1, num_beams * own]), min(2, own) * num_beams
        )
        parents = chosen // own
        tokens = tf.gather(
            tf.reshape(best_ids, [-1, num_beams * own]), chosen, batch_dims=1
        )
        written = tf.concat(
            [tf.gather(rows["live_ids"], parents, batch_dims=1), tokens[:, :, None]],
            axis=2,
        )
        position += 1
        at_limit = position >= limit
        ends = tokens == (-1 if end_id is None else end_id)

        # Rank old and new finished hypotheses by score. At the limit, live hypotheses
        # rank behind all finished ones, in their own order.
        rank = tf.range(log_p.shape[1])
        scores = log_p / penalty(position)
        behind = tf.where(
            at_limit[:, None] & (log_p > _NEVER),
            -1e30 * tf.cast(rank + 1, tf.float32),
            _NEVER,
        )
        keys = tf.where(ends, tf.where(rank < num_beams, scores, _NEVER), behind)
        ended = rows["ended"]
        kept = tf.math.top_k(tf.concat([ended, keys], axis=1), num_beams).indices
        ended = tf.gather(tf.concat([ended, scores], axis=1), kept, batch_dims=1)
        ended_ids = tf.pad(
            rows["ended_ids"], [[0, 0], [0, 0], [0, 1]], constant_values=pad_id
        )
        ended_ids = tf.gather(
            tf.concat([ended_ids, written], axis=1), kept, batch_dims=1
        )

        # A row that is done stays live with probability 0, so nothing changes it.
        live, kept = tf.math.top_k(tf.where(ends, _NEVER, log_p), num_beams)
        bar = ended[:, 0 if best_only else -1]
        # Log probabilities only fall and penalties only grow, so a live hypothesis can
        # at best keep its log probability and get the penalty of the limit.
        most = penalty(limit)
        if patience is not None:
            longest = patience * tf.cast(position, tf.float32)
            most = tf.minimum(most, penalty(longest))
        done = at_limit | (live[:, 0] / most <= bar)
        live = tf.where(done[:, None], _NEVER, live)
        live_ids = tf.gather(written, kept, batch_dims=1)
        if num_beams > 1:
            first = tf.range(tf.shape(live)[0])[:, None] * num_beams
            order = tf.reshape(first + tf.gather(parents, kept, batch_dims=1), [-1])
            state = tf.nest.map_structure(lambda leaf: tf.gather(leaf, order), state)
        return {
            "ids": live_ids[:, :, -1],
            "live_ids": live_ids,
            "live": live,
            "ended_ids": ended_ids,
            "ended": ended,
            "limit": limit,
        }, state

    limit = row_limits(max_length, batch_size)
    # All hypotheses are equal at first, so only one is live; a row whose limit is 0
    # has none.
    alone = tf.one_hot(0, num_beams, on_value=0.0, off_value=_NEVER)
    no_ids = tf.zeros([batch_size, num_beams, 0], tf.int32)
    found = run(
        write,
        is_live,
        {
            "ids": tf.fill([batch_size, num_beams], tf.cast(start_id, tf.int32)),
            "live_ids": no_ids,
            "live": tf.where(limit[:, None] > 0, alone, _NEVER),
            "ended_ids": no_ids,
            "ended": tf.fill([batch_size, num_beams], _NEVER),
            "limit": limit,
        },
        state,
        memory,
        results={"ended_ids": pad_id, "ended": 0},
        num_beams=num_beams,
    )
    ids, scores = found["ended_ids"], found["ended"]
    # In a row that was filled up at its limit, live hypotheses come last regardless of
    # their score: sort once more.
    scores, order = tf.math.top_k(scores, num_beams)
    ids = tf.gather(ids, order, batch_dims=1)
    rows = tf.get_static_value(batch_size)
    return tf.ensure_shape(ids, [rows, num_beams, None]), tf.ensure_shape(
        scores, [rows, num_beams]
    )


def _log_sum_exp(logits):
    """Returns the log of the sum of exponentials of each row of [N, V], as [N, 1]."""
    # The softmax is the fastest pass over all ids. Its largest number is at least 1/V.
    log_share = tf.math.log(tf.reduce_max(tf.nn.softmax(logits), axis=1, keepdims=True))
    return tf.reduce_max(logits, axis=1, keepdims=True) - log_share
