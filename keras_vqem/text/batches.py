"""TokenBatches: sentence pairs in padded batches of a few fixed shapes."""

import math
import operator
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

PAD_ID = 0
# Maximum number of lengths per side among which boundaries are searched.
GRID = 64
CLEANING = (
    "remove long pairs with keras_vqem.text.clean(corpus, tokenizer=tokenizer, "
    "max_tokens=...)"
)


class TokenBatches:
    """Batches of sentence pairs of similar length.

    Every batch has one of a few shapes, chosen for the data so that there is little
    padding. Short pairs come in batches of many rows and long pairs in batches of few
    rows, so that all batches have about `tokens_per_batch` tokens per side. With few
    shapes, XLA compiles few programs. The last batch of each shape is filled with rows
    of padding: no pair is dropped, and no batch has any other shape.

    The batches of an epoch and their order depend only on the seed and the number of
    the epoch, so a resumed run gets the same batches as one that was never
    interrupted.

    Args:
        source_ids: Source sentences as a list of integer arrays, each with the end
            symbol at its end.
        target_ids: Target sentences, in the same form and order.
        tokens_per_batch: Maximum number of tokens per batch, padding included: rows
            times length of the longer side.
        boundaries: List of pairs `(source length, target length)`, one per shape. None
            chooses them for the data.
        max_shapes: Maximum number of shapes to choose if `boundaries` is None.
        length_multiple: Integer that divides all target lengths of batches. A model
            that halves the target `num_compress_steps` times needs
            `2 ** num_compress_steps`.
        batch_multiple: Integer that divides the number of rows of every batch, so that
            replicas get equal shares.
        shuffle: Whether to shuffle pairs and batches each epoch.
        seed: Integer that sets the random order.

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
        source_ids: Sequence[Sequence[int] | np.ndarray],
        target_ids: Sequence[Sequence[int] | np.ndarray],
        tokens_per_batch: int,
        boundaries: Sequence[tuple[int, int]] | None = None,
        max_shapes: int = 8,
        length_multiple: int = 8,
        batch_multiple: int = 2,
        shuffle: bool = True,
        seed: int = 0,
    ):
        if len(source_ids) != len(target_ids) or not len(source_ids):
            raise ValueError(
                f"source_ids has {len(source_ids)} sentences, target_ids has "
                f"{len(target_ids)}. Pass two lists of the same length, at least 1."
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
                f"target tokens and fits none of the boundaries {boundaries.tolist()}. "
                f"The same holds for {np.sum(bucket_of_pair < 0)} of {len(lengths)} "
                f"pairs. Add a larger boundary, or {CLEANING}."
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
    def shapes(self) -> list[tuple[int, int, int]]:
        """Shapes of the batches, a list of `(rows, source length, target length)`."""
        return [
            (rows, pairs["source_ids"].shape[1], pairs["target_ids"].shape[1])
            for rows, pairs in self._buckets
        ]

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch, the same for all epochs."""
        return sum(self._counts())

    @property
    def padding_waste(self) -> float:
        """Fraction of padding in the batches of an epoch, rows of padding included."""
        slots = sum(
            count * rows * (source + target)
            for count, (rows, source, target) in zip(
                self._counts(), self.shapes, strict=True
            )
        )
        return 1 - self._tokens / slots

    def epoch(self, number: int) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of one epoch.

        Args:
            number: Number of the epoch, counted from 0.

        Yields:
            Dicts of int32 arrays, `source_ids` `[rows, source length]` and
            `target_ids` `[rows, target length]`.
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

    def dataset(
        self, first_epoch: int = 0, epochs: int | None = None
    ) -> tf.data.Dataset:
        """Returns the batches of one epoch after another.

        Use it as `model.fit(dataset, steps_per_epoch=batches.steps_per_epoch, ...)`,
        and with `epochs=1` as validation data.

        Args:
            first_epoch: Number of the epoch to start with, counted from 0.
            epochs: Number of epochs. None makes the dataset infinite.

        Returns:
            A `tf.data.Dataset` of dicts like those of `epoch`. Its static shapes are
            unknown, so that a `tf.function` is traced only once; XLA compiles each
            actual shape.
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
            # Tells Keras the number of validation steps before it starts.
            cardinality = epochs * self.steps_per_epoch
            dataset = dataset.apply(
                tf.data.experimental.assert_cardinality(cardinality)
            )
        return dataset.prefetch(4)

    def summary(self) -> str:
        """Returns a table of the shapes, with pairs, batches and padding of each."""
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
                f"Raise tokens_per_batch, or {CLEANING}."
            )
        return rows * self.batch_multiple

    def _find_boundaries(self, lengths, max_shapes):
        """Chooses at most `max_shapes` boundaries that need little padding."""
        unit = np.array([1, self.length_multiple])
        lengths = -(-lengths // unit) * unit
        self._rows(*lengths.max(axis=0).tolist())  # Raises if a pair is too long.
        # Lengths are rounded up to a grid, so that the search takes only seconds.
        step = unit * -(-lengths.max(axis=0) // (unit * GRID))
        cells = np.minimum(-(-lengths // step) * step, lengths.max(axis=0))
        cells, members = np.unique(cells, axis=0, return_counts=True)

        def slots(boxes):
            """Number of tokens per epoch, padding included."""
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
        # Shrink each box to its pairs, and drop boxes without any.
        return _sorted([lengths[assigned == i].max(0) for i in np.unique(assigned)])

    def _checked_boundaries(self, boundaries):
        boundaries = np.asarray(boundaries)
        if boundaries.ndim != 2 or boundaries.shape[1] != 2 or boundaries.min() < 1:
            raise ValueError(
                "boundaries must be a list of pairs (source length, target length), "
                f"not {boundaries.tolist()}. Pass, for example, [(16, 16), (64, 64)]."
            )
        if (boundaries[:, 1] % self.length_multiple).any():
            raise ValueError(
                f"The target lengths {boundaries[:, 1].tolist()} of boundaries must "
                f"be multiples of length_multiple, {self.length_multiple}. Round them "
                "up, or lower length_multiple."
            )
        return _sorted(boundaries)


def _lengths(sentences):
    lengths = np.array([len(ids) for ids in sentences])
    if not lengths.all():
        raise ValueError(
            f"Sentence {np.argmin(lengths)} has no ids, not even the end symbol. Make "
            "ids with SentencePieceTokenizer.encode_lines, which adds the end symbol."
        )
    return lengths


def _pad(sentences, members, length):
    rows = [np.asarray(sentences[i]) for i in members]
    real = np.arange(length) < np.array([len(row) for row in rows])[:, None]
    padded = np.full(real.shape, PAD_ID, np.int32)
    padded[real] = np.concatenate(rows)
    if (padded[real] <= PAD_ID).any():
        raise ValueError(
            f"A sentence contains the id {padded[real].min()}, but ids must be above "
            f"{PAD_ID}, the id of padding. Pass ids without padding, such as those of "
            "SentencePieceTokenizer.encode_lines."
        )
    return padded


def _sorted(boxes):
    """Sorts boxes from short to long."""
    return np.array(sorted(map(tuple, boxes), key=lambda box: (sum(box), box)))


def _assign(lengths, boxes):
    """Returns, per pair, the number of the smallest box that it fits, or -1."""
    assigned = np.full(len(lengths), -1)
    # The smallest box comes last, and so overrides larger ones.
    for number in np.argsort(-boxes.sum(axis=1), kind="stable"):
        assigned[(lengths <= boxes[number]).all(axis=1)] = number
    return assigned


def _equal_boxes(cells, members, max_shapes):
    """Yields sets of 1, 2, ... boxes, each with an equal share of the sorted pairs."""
    order = np.argsort(cells.sum(axis=1), kind="stable")
    share = np.cumsum(members[order]) / members.sum()
    for count in range(1, max_shapes + 1):
        box_of_cell = np.ceil(share * count).astype(int)
        boxes = [cells[order[box_of_cell == box]] for box in range(1, count + 1)]
        yield np.array([box.max(axis=0) for box in boxes if len(box)])


def _moved(boxes, cells, slots):
    """Moves one box at a time, as long as this saves padding."""
    sides = [np.unique(cells[:, side]) for side in range(2)]
    # A move changes one side of a box, or takes the whole box to another place.
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
