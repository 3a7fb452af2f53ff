"""TokenBatches: sentence pairs in padded batches of a few fixed shapes."""

import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_vqem.array_batches import check_first, made_ahead
from keras_vqem.text.boundaries import assign, find_boundaries, sort
from keras_vqem.text.token_ids import TokenIds, as_token_ids, checked_lengths

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
        source_ids: Source sentences as `TokenIds` or as a list of integer arrays, each
            with the end symbol at its end. A memory map stays one: batches are padded
            when they are asked for.
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
        fertilities: Numbers of target tokens per source token, from
            `WordAligner.fertilities`, for a model that learns them. Batches then have
            `fertilities` as well, with the shape of `source_ids`. None leaves them out.

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
        source_ids: TokenIds | Sequence[Sequence[int] | np.ndarray],
        target_ids: TokenIds | Sequence[Sequence[int] | np.ndarray],
        tokens_per_batch: int,
        boundaries: Sequence[tuple[int, int]] | None = None,
        max_shapes: int = 8,
        length_multiple: int = 8,
        batch_multiple: int = 2,
        shuffle: bool = True,
        seed: int = 0,
        fertilities: TokenIds | Sequence[Sequence[int] | np.ndarray] | None = None,
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
        self._sides = {
            "source_ids": as_token_ids(source_ids),
            "target_ids": as_token_ids(target_ids),
        }
        lengths = [checked_lengths(side) for side in self._sides.values()]
        lengths = np.stack(lengths, axis=1)
        if fertilities is not None:
            sides = self._sides.values()
            self._sides["fertilities"] = _checked_fertilities(fertilities, *sides)
        self._tokens = int(lengths.sum())
        if boundaries is None:
            boundaries = self._find_boundaries(lengths, operator.index(max_shapes))
        else:
            boundaries = self._checked_boundaries(boundaries)
        bucket_of_pair = assign(lengths, boundaries)
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
                rows = self._rows(source_length, target_length)
                tokens = int(lengths[members].sum())
                shape = (rows, source_length, target_length)
                self._buckets.append(_Bucket(shape, members, tokens))

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """Shapes of the batches, a list of `(rows, source length, target length)`."""
        return [bucket.shape for bucket in self._buckets]

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch, the same for all epochs."""
        return sum(bucket.num_batches for bucket in self._buckets)

    @property
    def padding_waste(self) -> float:
        """Fraction of padding in the batches of an epoch, rows of padding included."""
        return 1 - self._tokens / sum(bucket.slots for bucket in self._buckets)

    def epoch(
        self, number: int, first_step: int = 0
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of one epoch.

        Args:
            number: Number of the epoch, counted from 0.
            first_step: Number of the batch to start with, counted from 0.

        Yields:
            Dicts of int32 arrays, `source_ids` `[rows, source length]`, `target_ids`
            `[rows, target length]`, and `fertilities`, if there are any, with the shape
            of `source_ids`.
        """
        orders, plan = self._plan(number)
        for bucket, start in plan[first_step:]:
            rows, source_length, target_length = self._buckets[bucket].shape
            chosen = orders[bucket][start : start + rows]
            lengths = {"target_ids": target_length}
            yield {
                name: side.padded(chosen, (rows, lengths.get(name, source_length)))
                for name, side in self._sides.items()
            }

    def epoch_shapes(self, number: int) -> list[tuple[int, int, int]]:
        """Returns the shapes of the batches of one epoch, without making the batches.

        Args:
            number: Number of the epoch, counted from 0.

        Returns:
            List of `(rows, source length, target length)`, one per batch.
        """
        return [self._buckets[bucket].shape for bucket, _ in self._plan(number)[1]]

    def _plan(self, number):
        """Returns the pairs of each bucket in order, and the order of the batches.

        A batch is a tuple of its bucket and the place of its first pair there.
        """
        rng = np.random.default_rng([self.seed % 2**64, operator.index(number)])
        orders, plan = [], []
        for bucket, (shape, members, _) in enumerate(self._buckets):
            orders.append(rng.permutation(members) if self.shuffle else members)
            plan += [(bucket, start) for start in range(0, len(members), shape[0])]
        if self.shuffle:
            plan = [plan[i] for i in rng.permutation(len(plan))]
        return orders, plan

    def dataset(
        self,
        first_epoch: int = 0,
        epochs: int | None = None,
        first_step: int = 0,
    ) -> tf.data.Dataset:
        """Returns the batches of one epoch after another.

        Use it as `model.fit(dataset, steps_per_epoch=batches.steps_per_epoch, ...)`,
        and with `epochs=1` as validation data.

        Args:
            first_epoch: Number of the epoch to start with, counted from 0.
            epochs: Number of epochs. None makes the dataset infinite.
            first_step: Number of the batch of the first epoch to start with, counted
                from 0. The batches before it are not made.

        Returns:
            A `tf.data.Dataset` of dicts like those of `epoch`. Its static shapes are
            unknown, so that a `tf.function` is traced only once; XLA compiles each
            actual shape.
        """
        check_first(first_epoch, first_step, self.steps_per_epoch)

        def generate():
            numbers = itertools.count() if epochs is None else range(epochs)
            for number in numbers:
                first = 0 if number else first_step
                yield from self.epoch(first_epoch + number, first)

        spec = tf.TensorSpec([None, None], tf.int32)
        signature = dict.fromkeys(self._sides, spec)
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        if epochs is not None:
            # Tells Keras the number of validation steps before it starts.
            cardinality = epochs * self.steps_per_epoch - first_step
            dataset = dataset.apply(
                tf.data.experimental.assert_cardinality(cardinality)
            )
        return made_ahead(dataset)

    def summary(self) -> str:
        """Returns a table of the shapes, with pairs, batches and padding of each."""
        lines = [
            f"{'rows':>6} {'source':>7} {'target':>7} {'pairs':>9} {'batches':>8}"
            f" {'padding':>8}"
        ]
        for bucket in self._buckets:
            rows, source, target = bucket.shape
            lines.append(
                f"{rows:>6} {source:>7} {target:>7} {len(bucket.members):>9} "
                f"{bucket.num_batches:>8} {1 - bucket.tokens / bucket.slots:>8.1%}"
            )
        total = sum(len(bucket.members) for bucket in self._buckets)
        lines.append(
            f"{'all':>6} {'':>7} {'':>7} {total:>9} {self.steps_per_epoch:>8} "
            f"{self.padding_waste:>8.1%}"
        )
        return "\n".join(lines)

    def _rows_of(self, boxes):
        rows = self.tokens_per_batch // np.max(boxes, axis=-1)
        return rows // self.batch_multiple * self.batch_multiple

    def _rows(self, source_length, target_length):
        longest = max(source_length, target_length)
        rows = int(self._rows_of([source_length, target_length]))
        if not rows:
            raise ValueError(
                f"tokens_per_batch is {self.tokens_per_batch}, too small for "
                f"{self.batch_multiple} rows (batch_multiple) of {longest} tokens. "
                f"Raise tokens_per_batch, or {CLEANING}."
            )
        return rows

    def _find_boundaries(self, lengths, max_shapes):
        unit = (1, self.length_multiple)
        self._rows(*(-(-lengths.max(axis=0) // unit) * unit).tolist())  # May raise.
        return find_boundaries(lengths, unit, max_shapes, self._rows_of)

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
        return sort(boundaries)


class _Bucket(NamedTuple):
    """Pairs of one shape: their numbers, and how many tokens they have."""

    shape: tuple[int, int, int]
    members: np.ndarray
    tokens: int

    @property
    def num_batches(self):
        """Number of batches per epoch."""
        return -(-len(self.members) // self.shape[0])

    @property
    def slots(self):
        """Number of tokens per epoch, padding included."""
        rows, source_length, target_length = self.shape
        return self.num_batches * rows * (source_length + target_length)


def _checked_fertilities(fertilities, source_ids, target_ids):
    fertilities = (
        fertilities if isinstance(fertilities, TokenIds) else _joined(fertilities)
    )
    if not np.array_equal(fertilities.offsets, source_ids.offsets):
        raise ValueError(
            "fertilities must have one number per source token: sentences as many and "
            "as long as those of source_ids. Make them with "
            "keras_vqem.text.WordAligner.fertilities."
        )
    sums = np.add.reduceat(fertilities.ids, fertilities.offsets[:-1])
    wrong = np.flatnonzero(sums != target_ids.lengths)
    if len(wrong):
        pair = wrong[0]
        raise ValueError(
            f"The fertilities of pair {pair} sum to {sums[pair]}, but its target has "
            f"{target_ids.lengths[pair]} tokens. The same holds for {len(wrong)} of "
            f"{len(sums)} pairs. Make them with "
            f"keras_vqem.text.WordAligner.fertilities from the same pairs."
        )
    return fertilities


def _joined(rows):
    """TokenIds of numbers that may be 0, which ids may not."""
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return TokenIds(np.concatenate(rows).astype(np.int32), offsets)
