"""beam_search: the most probable sequences, several hypotheses side by side."""

import tensorflow as tf

from keras_vqem.checks import whole_number
from keras_vqem.decoding.loop import allowed, checked, growing, row_limits

_NEVER = -float("inf")


def beam_search(
    step,
    state,
    batch_size,
    start_id,
    end_id,
    max_length,
    min_length=0,
    num_beams=4,
    length_penalty=0.6,
    pad_id=0,
    best_only=False,
):
    """Searches for the most probable sequences, with `num_beams` hypotheses a row.

    A hypothesis has the score `log p / ((5 + length) / 6) ** length_penalty`, where
    p is its probability by the model and its length counts `end_id`. At each
    position the `num_beams` best continuations of the live hypotheses are looked at:
    those with `end_id` are finished and kept if they are among the `num_beams` best of
    the finished; the best without it live on. A row is done when none of its live
    hypotheses can still get among its `num_beams` finished ones.

    At its limit a row with fewer than `num_beams` finished hypotheses fills up with its
    best live ones, as they are, without `end_id`.

    A row of a batch gets what it would get alone. With `num_beams=1` and
    `length_penalty=0` this is `greedy_search`.

    Args:
        step: As in `keras_vqem.decoding.greedy_search`, with batch * beams rows: the
            hypotheses of one example are neighbours.
        state: As in `greedy_search`, with batch * beams rows. It is reordered along
            with the hypotheses. What the closure of `step` holds is not, and need
            not be where it is the same for all hypotheses of an example: repeat it
            once before the search, `keras.ops.repeat(memory, beams, axis=0)`.
        batch_size: The number of examples, an integer or a scalar tensor.
        start_id, end_id, max_length, min_length, pad_id: As in `greedy_search`.
            Where `end_id` is not yet allowed, scores still count it as possible.
        num_beams: The number of hypotheses, from 1 to V.
        length_penalty: 0 compares plain log probabilities, which favours short
            sequences; the larger, the longer the winners.
        best_only: Stop as soon as the first result is certain. It is the same; the
            others may not be the next best.

    Returns:
        A tuple:

        - ids [batch, beams, L] int32, best first, where L is the number of steps (a
          search can go on for longer than its longest result);
        - scores [batch, beams] float32. Minus infinity, with ids that are all
          `pad_id`, where there are fewer sequences than beams.

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
            f"`length_penalty` must be at least 0, received {length_penalty!r}. 0 "
            f"compares plain log probabilities."
        )
    limit = row_limits(max_length, batch_size)
    state = tf.nest.map_structure(tf.convert_to_tensor, state)
    first_rows = tf.range(batch_size)[:, None] * num_beams

    def penalty(length):
        return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** length_penalty

    # Log probabilities only fall and penalties only grow, so a live hypothesis can
    # at best keep its log probability and get the penalty of the limit.
    limit_penalty = penalty(limit)

    def running(position, ids, live_ids, live, ended_ids, ended, state):
        return tf.reduce_any(live[:, 0] > _NEVER)

    def write(position, ids, live_ids, live, ended_ids, ended, state):
        logits, state = step(ids, state, position)
        logits = checked(logits)
        if num_beams > logits.shape[-1]:
            raise ValueError(
                f"`num_beams` must be at most V, the number of ids, but it is "
                f"{num_beams} and `step` returned logits {logits.shape}: the first "
                f"position has only V continuations. Use fewer beams."
            )
        # Twice as many as beams, of which at most half end: enough live ones remain.
        # Ranked by logits, since rounding can make ties of log probabilities.
        own = min(2 * num_beams, logits.shape[-1])
        best, best_ids = tf.math.top_k(
            allowed(logits, position, end_id, min_length), own
        )
        own_log_p = tf.gather(tf.nn.log_softmax(logits), best_ids, batch_dims=1)
        best = tf.where(best > _NEVER, own_log_p, _NEVER) + tf.reshape(live, [-1, 1])
        log_p, chosen = tf.math.top_k(
            tf.reshape(best, [batch_size, num_beams * own]), min(2, own) * num_beams
        )
        parents = chosen // own
        tokens = tf.gather(
            tf.reshape(best_ids, [batch_size, num_beams * own]), chosen, batch_dims=1
        )
        written = tf.concat(
            [tf.gather(live_ids, parents, batch_dims=1), tokens[:, :, None]], axis=2
        )
        position += 1
        at_limit = position >= limit
        ends = tokens == (-1 if end_id is None else end_id)

        # Rank old and new finished hypotheses by score. At the limit live ones come
        # after all of these, in the order they have.
        rank = tf.range(log_p.shape[1])
        scores = log_p / penalty(position)
        behind = tf.where(
            at_limit[:, None] & (log_p > _NEVER),
            -1e30 * tf.cast(rank + 1, tf.float32),
            _NEVER,
        )
        keys = tf.where(ends, tf.where(rank < num_beams, scores, _NEVER), behind)
        kept = tf.math.top_k(tf.concat([ended, keys], axis=1), num_beams).indices
        ended = tf.gather(tf.concat([ended, scores], axis=1), kept, batch_dims=1)
        ended_ids = tf.pad(ended_ids, [[0, 0], [0, 0], [0, 1]], constant_values=pad_id)
        ended_ids = tf.gather(
            tf.concat([ended_ids, written], axis=1), kept, batch_dims=1
        )

        # A row that is done lives on with probability 0, and so changes no more.
        live, kept = tf.math.top_k(tf.where(ends, _NEVER, log_p), num_beams)
        bar = ended[:, 0 if best_only else -1]
        done = at_limit | (live[:, 0] / limit_penalty <= bar)
        live = tf.where(done[:, None], _NEVER, live)
        live_ids = tf.gather(written, kept, batch_dims=1)
        if num_beams > 1:
            rows = first_rows + tf.gather(parents, kept, batch_dims=1)
            rows = tf.reshape(rows, [-1])
            state = tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), state)
        ids = tf.reshape(live_ids[:, :, -1], [-1])
        return position, ids, live_ids, live, ended_ids, ended, state

    # One live hypothesis at first, since all are the same; none in a row without room.
    alone = tf.one_hot(0, num_beams, on_value=0.0, off_value=_NEVER)
    no_ids = tf.zeros([batch_size, num_beams, 0], tf.int32)
    any_ids = tf.TensorShape([None, num_beams, None])
    each = tf.TensorShape([None, num_beams])
    *_, ids, scores, _ = tf.while_loop(
        running,
        write,
        (
            tf.constant(0),
            tf.fill([batch_size * num_beams], tf.cast(start_id, tf.int32)),
            no_ids,
            tf.where(limit[:, None] > 0, alone, _NEVER),
            no_ids,
            tf.fill([batch_size, num_beams], _NEVER),
            state,
        ),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None]),
            any_ids,
            each,
            any_ids,
            each,
            growing(state),
        ),
    )
    # A row that filled up at its limit has live hypotheses last, whatever their score.
    scores, order = tf.math.top_k(scores, num_beams)
    ids = tf.gather(ids, order, batch_dims=1)
    rows = tf.get_static_value(batch_size)
    return tf.ensure_shape(ids, [rows, num_beams, None]), tf.ensure_shape(
        scores, [rows, num_beams]
    )
