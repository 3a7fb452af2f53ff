"""A model whose logits depend on all ids before, and searches in plain Python."""

import keras
import numpy as np
import tensorflow as tf


class Model:
    """Logits are a bias of the example plus a random vector for each id so far."""

    def __init__(self, batch_size, vocabulary, seed=0, length=16):
        rng = np.random.default_rng(seed)
        # Wide enough that the rows of a batch go different ways.
        self.bias = rng.normal(0, 2, (batch_size, vocabulary)).astype("float32")
        table = rng.normal(size=(length, vocabulary, vocabulary))
        self.table = table.astype("float32")
        self.start_id = 1

    def state(self, rows):
        # The vectors are kept as a cache is: none at first, one more each step.
        return {"cache": [tf.zeros([rows, 0, self.table.shape[-1]])]}

    def step(self, bias=None, num_beams=1, dtype="float32"):
        bias = keras.ops.repeat(self.bias if bias is None else bias, num_beams, axis=0)

        def step(ids, state, position):
            vectors = tf.gather(tf.gather(self.table, position), ids)
            cache = tf.concat([state["cache"][0], vectors[:, None]], axis=1)
            logits = bias + keras.ops.sum(cache, axis=1)
            return tf.cast(logits, dtype), {"cache": [cache]}

        return step

    def logits(self, row, ids):
        before = [self.start_id, *ids]
        return self.bias[row] + sum(self.table[i, id_] for i, id_ in enumerate(before))

    def log_p(self, row, ids):
        logits = self.logits(row, ids).astype("float64")
        return logits - np.log(np.sum(np.exp(logits)))


def greedy(model, row, end_id, limit, min_length=0):
    ids = []
    while len(ids) < limit and (not ids or ids[-1] != end_id):
        logits = model.logits(row, ids)
        if end_id is not None and len(ids) < min_length:
            logits[end_id] = -np.inf
        ids.append(int(np.argmax(logits)))
    return ids


def score(log_p, length, length_penalty):
    return log_p / ((5 + length) / 6) ** length_penalty


def beam(model, row, end_id, limit, num_beams, length_penalty, min_length=0):
    """A list of pairs (score, ids), best first."""
    live, finished = [(0.0, [])], []
    for length in range(1, limit + 1):
        candidates = sorted(
            (
                (log_p + added, [*ids, id_])
                for log_p, ids in live
                for id_, added in enumerate(model.log_p(row, ids))
                if added > -np.inf and not (id_ == end_id and length <= min_length)
            ),
            reverse=True,
        )
        for log_p, ids in candidates[:num_beams]:
            if ids[-1] == end_id:
                finished.append((score(log_p, length, length_penalty), ids))
        finished = sorted(finished, reverse=True)[:num_beams]
        live = [pair for pair in candidates if pair[1][-1] != end_id][:num_beams]
        if not live:
            break
        bound = score(live[0][0], limit, length_penalty)
        if len(finished) == num_beams and bound <= finished[-1][0]:
            break
    else:
        for log_p, ids in live[: num_beams - len(finished)]:
            finished.append((score(log_p, limit, length_penalty), ids))
    return sorted(finished, reverse=True)


def padded(ids, length, pad_id=0):
    return [*ids, *[pad_id] * (length - len(ids))]
