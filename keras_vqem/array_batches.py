"""ArrayBatches: shuffled batches of arrays, reproducible after a resume."""

import itertools
import operator
from collections.abc import Iterator

import numpy as np
import tensorflow as tf


class ArrayBatches:
    """Batches of rows of arrays, in a new random order each epoch.

    The batches of an epoch depend only on the seed and the number of the epoch, so a
    resumed run gets the same batches as one that was never interrupted. Rows left
    over after the last full batch are dropped, different ones each epoch.

    Args:
        arrays: Dict of arrays with one row per example. They are not copied.
        batch_size: Number of rows per batch.
        seed: Integer that sets the order of the rows.
        steps_per_epoch: Number of batches per epoch, to make epochs shorter than one
            pass over the data; each epoch then takes different rows. None takes all
            full batches.

    Example:

    >>> from keras_vqem.array_batches import ArrayBatches
    >>> codes = np.zeros((100, 8, 8, 10), "uint8")
    >>> batches = ArrayBatches({"symbols": codes}, 32)
    >>> print(batches.summary())
    100 examples, 3 batches of 32 per epoch
    >>> batches.dataset().element_spec["symbols"].shape
    TensorShape([32, 8, 8, 10])
    """

    def __init__(
        self,
        arrays: dict[str, np.ndarray],
        batch_size: int,
        seed: int = 0,
        steps_per_epoch: int | None = None,
    ):
        self.arrays = {name: np.asarray(array) for name, array in arrays.items()}
        counts = {name: len(array) for name, array in self.arrays.items()}
        if len(set(counts.values())) != 1:
            raise ValueError(
                "All arrays must have the same number of rows, one per example; "
                f"received {counts}."
            )
        self.examples = next(iter(counts.values()))
        self.batch_size = operator.index(batch_size)
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
        if self.examples < self.batch_size:
            raise ValueError(
                f"There are {self.examples} {'/'.join(counts)}, too few for one batch "
                f"of {self.batch_size}. Lower batch_size, or pass more examples."
            )
        self.seed = operator.index(seed)
        most = self.examples // self.batch_size
        if steps_per_epoch is None:
            steps_per_epoch = most
        self.steps_per_epoch = operator.index(steps_per_epoch)
        if not 1 <= self.steps_per_epoch <= most:
            raise ValueError(
                f"steps_per_epoch must be from 1 to {most}, the number of full batches "
                f"of {self.batch_size} among {self.examples} examples, not "
                f"{steps_per_epoch}. Lower it, or pass None to take all."
            )

    def summary(self) -> str:
        """Returns the numbers of examples and batches as one line of text."""
        return (
            f"{self.examples:,} examples, {self.steps_per_epoch:,} batches of "
            f"{self.batch_size} per epoch"
        )

    def epoch(
        self, number: int, first_step: int = 0
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of one epoch.

        Args:
            number: Number of the epoch, counted from 0.
            first_step: Number of the batch to start with, counted from 0.

        Yields:
            Dicts of arrays with `batch_size` rows and the names of `arrays`.
        """
        rng = np.random.default_rng([self.seed % 2**64, operator.index(number)])
        order = rng.permutation(self.examples)
        change = self._changes(rng)
        for step in range(first_step, self.steps_per_epoch):
            rows = order[step * self.batch_size : (step + 1) * self.batch_size]
            yield change(
                {name: array[rows] for name, array in self.arrays.items()}, rows
            )

    def _changes(self, rng):
        """Returns a function that changes each batch, with random numbers of `rng`."""
        return lambda batch, rows: batch

    def epoch_shapes(self, number: int) -> list[tuple[int, ...]]:
        """Returns the shapes of the batches of one epoch, without making the batches.

        Args:
            number: Number of the epoch, counted from 0.

        Returns:
            List of `(batch size,)`, one per batch: no other size differs.
        """
        return [(self.batch_size,)] * self.steps_per_epoch

    def dataset(self, first_epoch: int = 0, first_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of one epoch after another, without end.

        Use it as `model.fit(dataset, steps_per_epoch=batches.steps_per_epoch, ...)`.

        Args:
            first_epoch: Number of the epoch to start with, counted from 0.
            first_step: Number of the batch of that epoch to start with, counted from 0.
                The batches before it are not made.

        Returns:
            An infinite `tf.data.Dataset` of dicts like those of `epoch`, with static
            shapes.
        """
        check_first(first_epoch, first_step, self.steps_per_epoch)

        # A generator leaves the arrays where they are. As tensors of the dataset they
        # would be in memory twice, and a constant in the graphs that Keras traces.
        def generate():
            yield from self.epoch(first_epoch, first_step)
            for number in itertools.count(first_epoch + 1):
                yield from self.epoch(number)

        signature = {
            name: tf.TensorSpec([self.batch_size, *array.shape[1:]], array.dtype)
            for name, array in self.arrays.items()
        }
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        # With this, Keras asks for `steps_per_epoch` instead of fitting forever.
        dataset = dataset.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return made_ahead(dataset)


def made_ahead(dataset: tf.data.Dataset, number: int = 4) -> tf.data.Dataset:
    """Returns a dataset that makes its next elements while the last one is used.

    Nothing in it is left to TensorFlow to tune. The thread that would look for
    something to tune sleeps for up to a minute, and a process that ends, such as a
    training that is stopped, would have to wait for it.

    Args:
        dataset: A `tf.data.Dataset`.
        number: Number of elements that are ready at most.

    Returns:
        A `tf.data.Dataset`.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.prefetch(number).with_options(options)


def check_first(first_epoch: int, first_step: int, steps_per_epoch: int) -> None:
    """Checks where a dataset of batches starts.

    Args:
        first_epoch: Number of the first epoch, counted from 0.
        first_step: Number of the first batch in it, counted from 0. After the last one
            comes the next epoch.
        steps_per_epoch: Number of batches per epoch.

    Raises:
        ValueError: If there is no such epoch or batch.
    """
    if operator.index(first_epoch) < 0:
        raise ValueError(f"first_epoch must be 0 or more, not {first_epoch}.")
    if not 0 <= operator.index(first_step) <= steps_per_epoch:
        raise ValueError(
            f"first_step must be from 0 to {steps_per_epoch}, the number of batches "
            f"per epoch, not {first_step}."
        )
