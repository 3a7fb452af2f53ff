"""CTC decoders in plain Python: by all alignments, and with a dict of prefixes."""

import itertools
from collections import defaultdict

import numpy as np


def merged(path, end_id, blank_id=0):
    """The sequence of an alignment: no repeats, no blanks, nothing after the end."""
    ids = [int(id_) for id_, _ in itertools.groupby(path) if id_ != blank_id]
    return ids[: ids.index(end_id) + 1] if end_id in ids else ids


def log_softmax(logits):
    logits = logits.astype("float64")
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def all_sequences(logits, end_id, mask, blank_id=0):
    """Probabilities of all sequences: a dict from tuples of ids."""
    p = np.exp(log_softmax(logits[mask]))
    found = defaultdict(float)
    for path in itertools.product(range(p.shape[1]), repeat=len(p)):
        sequence = merged(path, end_id, blank_id)
        found[tuple(sequence)] += np.prod(p[np.arange(len(p)), path])
    return dict(found)


def prefix_search(logits, end_id, mask, num_beams, top_k, bonus=0.0, blank_id=0):
    """Pairs (ids, log probability), best first."""
    beam = {(): (1.0, 0.0)}
    for log_p in log_softmax(logits[mask]):
        p = np.exp(log_p)
        order = [id_ for id_ in np.argsort(-log_p, kind="stable") if id_ != blank_id]
        grown = defaultdict(lambda: [0.0, 0.0])
        for prefix, (blank, label) in beam.items():
            if prefix and prefix[-1] == end_id:
                grown[prefix][0] += blank + label
                continue
            grown[prefix][0] += (blank + label) * p[blank_id]
            if prefix:
                grown[prefix][1] += label * p[prefix[-1]]
            children = {q[-1] for q in beam if q and q[:-1] == prefix}
            for id_ in {*order[:top_k], *children}:
                same = prefix and prefix[-1] == id_
                before = blank if same else blank + label
                grown[(*prefix, int(id_))][1] += before * p[id_]

        def rank(item):
            total = sum(item[1])
            return -np.inf if total == 0 else np.log(total) + bonus * len(item[0])

        beam = dict(sorted(grown.items(), key=rank, reverse=True)[:num_beams])
    return [(list(ids), np.log(sum(both))) for ids, both in beam.items() if sum(both)]
