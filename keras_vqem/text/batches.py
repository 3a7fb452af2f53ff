"""TokenBatches: sentence pairs in padded batches of a few fixed shapes."""

import math
import operator

import numpy as np
import tensorflow as tf

from keras_vqem.ids import PAD_ID

# Shapes are sought among at most this many lengths a side.
GRID = 64
CLEANING = (
    "remove long pairs with keras_vqem.text.clean(corpus, tokenizer=tokenizer, "
    "max_tokens=...)"
)


class TokenBatches:
    """Batches of sentence pairs that are alike in length.

    Every batch has one of a few shapes, found from the data so that little of it is
    padding. Short pairs come in batches of many rows, long ones of few, so that all
    batches hold about `tokens_per_batch` tokens a side. With few shapes, XLA compiles
    few programs. The last batch of a shape is filled up with rows that are padding
    alone: no pair is dropped, and no batch has another shape.

    The batches of an epoch, and their order, depend only on the seed and the number
    of the epoch: a run that is resumed at an epoch sees what it would have seen.

    Args:
        source_ids: A list of integer arrays, each ended by the end symbol.
        target_ids: The same for the other side of the pairs.
        tokens_per_batch: Bound on rows times length, for the longer side.
        boundaries: A list of shapes (source length, target length), each a pair of
            integers; None finds them from the data.
        max_shapes: At most this many shapes are found.
        length_multiple: Target lengths are multiples of it: 2 ** n_c for a model that
            halves the target n_c times.
        batch_multiple: Rows are multiples of it, so that replicas get equal shares.
        shuffle: Whether pairs and batches are in random order.
        seed: Of that order.

    Example:

    >>> from keras_vqem.text import TokenBatches
    >>> source_ids = [[7, 8, 1], [9, 1], [5, 6, 7, 8, 9, 1]]
    >>> target_ids = [[4, 1], [5, 5, 1], [6, 7, 8, 9, 9, 9, 9, 9, 1]]
    >>> boundaries = [(4, 8), (8, 16)]
    >>> batches = TokenBatches(source_ids, target_ids, 32, boundaries, shuffle=False)
    >>> batches.shapes
    [(4, 4, 8), (2, 8, 16)]
    >>> next(batches.epoch(0))["source_ids"]
    array([[7, 8, 1, 0],
           [9, 1, 0, 0],
           [0, 0, 0, 0],
           [0, 0, 0, 0]], dtype=int32)
    """

    def __init__(
        self,
        source_ids,
        target_ids,
        tokens_per_batch,
        boundaries=None,
        max_shapes=8,
        length_multiple=8,
        batch_multiple=2,
        shuffle=True,
        seed=0,
    ):
        if len(source_ids) != len(target_ids) or not len(source_ids):
            raise ValueError(
                f"source_ids has {len(source_ids)} sentences, target_ids has "
                f"{len(target_ids)}. Pass lists of the same length, at least 1."
            )
        for name, value in (
            ("tokens_per_batch", tokens_per_batch),
            ("max_shapes", max_shapes),
            ("length_multiple", length_multiple),
            ("batch_multiple", batch_multiple),
        ):
            if operator.index(value) < 1:
                raise ValueError(f"{name} must be at least 1, not {value}.")
        self.tokens_per_batch = operator.index(tokens_per_batch)
        self.length_multiple = operator.index(length_multiple)
        self.batch_multiple = operator.index(batch_multiple)
        self.shuffle = shuffle
        self.seed = operator.index(seed)
        lengths = np.stack([_lengths(source_ids), _lengths(target_ids)], axis=1)
        self._tokens = int(lengths.sum())
        if boundaries is None:
            boundaries = self._find_boundaries(lengths, operator.index(max_shapes))
        else:
            boundaries = self._checked_boundaries(boundaries)
        bucket_of_pair = _assign(lengths, boundaries)
        if (bucket_of_pair < 0).any():
            pair = int(np.argmin(bucket_of_pair))
            raise ValueError(
                f"Pair {pair} has {lengths[pair, 0]} source and {lengths[pair, 1]} "
                f"target tokens and fits none of the boundaries {boundaries.tolist()} "
                f"({np.sum(bucket_of_pair < 0)} pairs do not). Add a larger boundary, "
                f"or {CLEANING}."
            )
        self._buckets = []
        for number, (source_length, target_length) in enumerate(boundaries.tolist()):
            members = np.flatnonzero(bucket_of_pair == number)
            if len(members):
                pairs = {
                    "source_ids": _pad(source_ids, members, source_length),
                    "target_ids": _pad(target_ids, members, target_length),
                }
                rows = int(self._rows(source_length, target_length))
                self._buckets.append((rows, pairs))

    @property
    def shapes(self):
        """The shapes of batches: (rows, source length, target length) of each."""
        return [
            (rows, pairs["source_ids"].shape[1], pairs["target_ids"].shape[1])
            for rows, pairs in self._buckets
        ]

    @property
    def steps_per_epoch(self):
        """The number of batches of an epoch, the same for all epochs."""
        return sum(self._counts())

    @property
    def padding_waste(self):
        """The share of padding in all batches of an epoch, filler rows included."""
        slots = sum(
            count * rows * (source + target)
            for count, (rows, source, target) in zip(
                self._counts(), self.shapes, strict=True
            )
        )
        return 1 - self._tokens / slots

    def epoch(self, number):
        """Yield the batches of one epoch.

        Args:
            number: Of the epoch, from 0.

        Yields:
            Dicts of int32 arrays, `source_ids` [rows, source length] and
            `target_ids` [rows, target length].
        """
        rng = np.random.default_rng([self.seed % 2**64, operator.index(number)])
        plan, orders = [], []
        for bucket, (rows, pairs) in enumerate(self._buckets):
            order = np.arange(len(pairs["source_ids"]))
            orders.append(rng.permutation(order) if self.shuffle else order)
            plan += [(bucket, start) for start in range(0, len(order), rows)]
        if self.shuffle:
            plan = [plan[i] for i in rng.permutation(len(plan))]
        for bucket, start in plan:
            rows, pairs = self._buckets[bucket]
            chosen = orders[bucket][start : start + rows]
            batch = {}
            for name, ids in pairs.items():
                batch[name] = np.full((rows, ids.shape[1]), PAD_ID, np.int32)
                batch[name][: len(chosen)] = ids[chosen]
            yield batch

    def dataset(self, first_epoch=0, epochs=None):
        """The batches of epoch after epoch, as a `tf.data.Dataset`.

        For `model.fit(dataset, steps_per_epoch=batches.steps_per_epoch, ...)`; with
        `epochs=1` for validation.

        Args:
            first_epoch: The number of the epoch to start with.
            epochs: How many epochs; None for no end.

        Returns:
            A dataset of dicts as those of `epoch`. Its static shapes are unknown, so
            that a `tf.function` is traced once for all; XLA compiles each real shape.
        """

        def generate():
            number = first_epoch
            while epochs is None or number < first_epoch + epochs:
                yield from self.epoch(number)
                number += 1

        spec = tf.TensorSpec([None, None], tf.int32)
        signature = {"source_ids": spec, "target_ids": spec}
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        if epochs is not None:
            # Lets Keras know the number of steps of validation before it starts.
            cardinality = epochs * self.steps_per_epoch
            dataset = dataset.apply(
                tf.data.experimental.assert_cardinality(cardinality)
            )
        return dataset.prefetch(4)

    def summary(self):
        """A table of the shapes, as a string."""
        lines = [
            f"{'rows':>6} {'source':>7} {'target':>7} {'pairs':>9} {'batches':>8}"
            f" {'padding':>8}"
        ]
        total = 0
        for count, (rows, pairs) in zip(self._counts(), self._buckets, strict=True):
            source, target = pairs["source_ids"], pairs["target_ids"]
            tokens = np.count_nonzero(source) + np.count_nonzero(target)
            waste = 1 - tokens / (count * rows * (source.shape[1] + target.shape[1]))
            lines.append(
                f"{rows:>6} {source.shape[1]:>7} {target.shape[1]:>7} "
                f"{len(source):>9} {count:>8} {waste:>8.1%}"
            )
            total += len(source)
        lines.append(
            f"{'all':>6} {'':>7} {'':>7} {total:>9} {self.steps_per_epoch:>8} "
            f"{self.padding_waste:>8.1%}"
        )
        return "\n".join(lines)

    def _counts(self):
        return [-(-len(pairs["source_ids"]) // rows) for rows, pairs in self._buckets]

    def _rows(self, source_length, target_length):
        longest = max(source_length, target_length)
        rows = self.tokens_per_batch // longest // self.batch_multiple
        if not rows:
            raise ValueError(
                f"tokens_per_batch is {self.tokens_per_batch}, too small for "
                f"{self.batch_multiple} rows (batch_multiple) of {longest} tokens. "
                f"Raise it, or {CLEANING}."
            )
        return rows * self.batch_multiple

    def _find_boundaries(self, lengths, max_shapes):
        """Shapes, at most `max_shapes`, with which little is padding."""
        unit = np.array([1, self.length_multiple])
        lengths = -(-lengths // unit) * unit
        self._rows(*lengths.max(axis=0).tolist())  # Says so if a pair is too long.
        # Lengths are told apart only so far that the search takes seconds.
        step = unit * -(-lengths.max(axis=0) // (unit * GRID))
        cells = np.minimum(-(-lengths // step) * step, lengths.max(axis=0))
        cells, members = np.unique(cells, axis=0, return_counts=True)

        def slots(boxes):
            """Tokens and padding of an epoch."""
            assigned = _assign(cells, boxes)
            if (assigned < 0).any():
                return math.inf
            pairs = np.bincount(assigned, members, len(boxes))
            rows = self.tokens_per_batch // boxes.max(axis=1)
            rows = rows // self.batch_multiple * self.batch_multiple
            return np.ceil(pairs / rows) * rows @ boxes.sum(axis=1)

        starts = _equal_boxes(cells, members, max_shapes)
        boxes = min((_moved(boxes, cells, slots) for boxes in starts), key=slots)
        assigned = _assign(lengths, boxes)
        # A box may be larger than the pairs in it, or have none.
        return _sorted([lengths[assigned == i].max(0) for i in np.unique(assigned)])

    def _checked_boundaries(self, boundaries):
        boundaries = np.asarray(boundaries)
        if boundaries.ndim != 2 or boundaries.shape[1] != 2 or boundaries.min() < 1:
            raise ValueError(
                "boundaries must be a list of pairs (source length, target length), "
                f"not {boundaries.tolist()}."
            )
        if (boundaries[:, 1] % self.length_multiple).any():
            raise ValueError(
                f"The target lengths {boundaries[:, 1].tolist()} of boundaries must "
                f"be multiples of length_multiple, {self.length_multiple}."
            )
        return _sorted(boundaries)


def _lengths(sentences):
    lengths = np.array([len(ids) for ids in sentences])
    if not lengths.all():
        raise ValueError(
            f"Sentence {np.argmin(lengths)} has no ids, not even an end symbol. Make "
            "them with SentencePieceTokenizer.encode_lines, which ends each with it."
        )
    return lengths


def _pad(sentences, members, length):
    rows = [np.asarray(sentences[i]) for i in members]
    real = np.arange(length) < np.array([len(row) for row in rows])[:, None]
    padded = np.full(real.shape, PAD_ID, np.int32)
    padded[real] = np.concatenate(rows)
    if (padded[real] <= PAD_ID).any():
        raise ValueError(
            f"A sentence holds the id {padded[real].min()}; ids must be above "
            f"{PAD_ID}, which means padding. Pass ids without padding, as "
            "SentencePieceTokenizer.encode_lines makes them."
        )
    return padded


def _sorted(boxes):
    """From short to long."""
    return np.array(sorted(map(tuple, boxes), key=lambda box: (sum(box), box)))


def _assign(lengths, boxes):
    """For each pair the number of the smallest box that holds it, or -1."""
    assigned = np.full(len(lengths), -1)
    # The smallest box comes last and so overrides the others.
    for number in np.argsort(-boxes.sum(axis=1), kind="stable"):
        assigned[(lengths <= boxes[number]).all(axis=1)] = number
    return assigned


def _equal_boxes(cells, members, max_shapes):
    """Yield sets of 1, 2, ... boxes that hold equal shares of the pairs, by length."""
    order = np.argsort(cells.sum(axis=1), kind="stable")
    share = np.cumsum(members[order]) / members.sum()
    for count in range(1, max_shapes + 1):
        box_of_cell = np.ceil(share * count).astype(int)
        boxes = [cells[order[box_of_cell == box]] for box in range(1, count + 1)]
        yield np.array([box.max(axis=0) for box in boxes if len(box)])


def _moved(boxes, cells, slots):
    """Move one box at a time, as long as this saves padding."""
    sides = [np.unique(cells[:, side]) for side in range(2)]
    # One side of a box changes, or the whole box goes to another place.
    places = cells[:: -(-len(cells) // (2 * GRID))]
    least, before = slots(boxes), math.inf
    while least < before:
        before = least
        for number in range(len(boxes)):
            moves = [(length, boxes[number, 1]) for length in sides[0]]
            moves += [(boxes[number, 0], length) for length in sides[1]]
            for place in [*moves, *places]:
                moved = boxes.copy()
                moved[number] = place
                cost = slots(moved)
                if cost < least:
                    boxes, least = moved, cost
    return boxes
