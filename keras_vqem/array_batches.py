"""ArrayBatches: shuffled batches of arrays, the same again after a resume."""

import itertools
import operator

import numpy as np
import tensorflow as tf


class ArrayBatches:
    """Batches of rows of arrays, each epoch in another random order.

    The batches of an epoch depend only on the seed and the number of the epoch: a run
    that is resumed at an epoch sees what it would have seen. The rows that do not fill
    a batch are left out; each epoch leaves out others.

    Args:
        arrays: A dict of arrays with one row an example. They are not copied.
        batch_size: Rows in a batch.
        seed: Of the order.
        steps: Batches of an epoch, if not as many as there are: for epochs that would
            take too long otherwise. Each takes other rows.

    Example:

    >>> from keras_vqem.array_batches import ArrayBatches
    >>> codes = np.zeros((100, 8, 8, 10), "uint8")
    >>> batches = ArrayBatches({"symbols": codes}, 32)
    >>> print(batches.summary())
    100 examples, 3 batches of 32 an epoch
    >>> batches.dataset().element_spec["symbols"].shape
    TensorShape([32, 8, 8, 10])
    """

    def __init__(self, arrays, batch_size, seed=0, steps=None):
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}
        counts = {name: len(array) for name, array in self.arrays.items()}
        if len(set(counts.values())) != 1:
            raise ValueError(
                f"All arrays need as many rows, one an example; received {counts}."
            )
        self.examples = next(iter(counts.values()))
        self.batch_size = operator.index(batch_size)
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
        if self.examples < self.batch_size:
            raise ValueError(
                f"There are {self.examples} {'/'.join(counts)}, too few for one batch "
                f"of {self.batch_size}. Lower batch_size, or pass more."
            )
        self.seed = operator.index(seed)
        most = self.examples // self.batch_size
        self.steps_per_epoch = most if steps is None else operator.index(steps)
        if not 1 <= self.steps_per_epoch <= most:
            raise ValueError(
                f"There are {most} batches of {self.batch_size}: an epoch can have "
                f"from 1 to {most} steps, not {steps}."
            )

    def summary(self):
        """What there is, in a line."""
        return (
            f"{self.examples:,} examples, {self.steps_per_epoch:,} batches of "
            f"{self.batch_size} an epoch"
        )

    def epoch(self, number):
        """Yield the batches of one epoch, dicts of arrays.

        Args:
            number: Of the epoch, from 0.
        """
        rng = np.random.default_rng([self.seed % 2**64, operator.index(number)])
        order = rng.permutation(self.examples)
        change = self._changes(rng)
        for step in range(self.steps_per_epoch):
            rows = order[step * self.batch_size : (step + 1) * self.batch_size]
            yield change(
                {name: array[rows] for name, array in self.arrays.items()}, rows
            )

    def _changes(self, rng):
        """What happens to a batch before it is given out, with noise of `rng`."""
        return lambda batch, rows: batch

    def dataset(self, first_epoch=0):
        """The batches of epoch after epoch, without end, as a `tf.data.Dataset`.

        For `model.fit(dataset, steps_per_epoch=batches.steps_per_epoch, ...)`.

        Args:
            first_epoch: The number of the epoch to start with.

        Returns:
            A dataset of dicts as those of `epoch`, with static shapes.
        """
        if operator.index(first_epoch) < 0:
            raise ValueError(f"first_epoch must be 0 or more, not {first_epoch}.")

        # A generator leaves the arrays where they are: as tensors of the dataset they
        # would be held twice, and be a constant in the graphs that Keras makes of it.
        def generate():
            for number in itertools.count(first_epoch):
                yield from self.epoch(number)

        signature = {
            name: tf.TensorSpec([self.batch_size, *array.shape[1:]], array.dtype)
            for name, array in self.arrays.items()
        }
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        # Keras then asks for `steps_per_epoch` instead of fitting forever.
        dataset = dataset.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return dataset.prefetch(4)
