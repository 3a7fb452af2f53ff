"""Functions that a run needs for its data: fingerprint, shapes, validation set."""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import tensorflow as tf


class Batches(Protocol):
    """Training data of a run, such as `TokenBatches` or `ArrayBatches`."""

    steps_per_epoch: int

    def epoch(self, number: int) -> Iterator[dict[str, np.ndarray]]:
        """Yields the batches of an epoch, counted from 0."""

    def dataset(self, first_epoch: int = 0) -> tf.data.Dataset:
        """Returns the batches of one epoch after another."""

    def summary(self) -> str:
        """Returns a text about the batches."""


def fingerprint(batches: Batches) -> str:
    """Computes the SHA-256 hash of all batches of the first epoch.

    Args:
        batches: Object whose `epoch(0)` yields dicts of arrays.

    Returns:
        The hash in hexadecimal digits.
    """
    found = hashlib.sha256()
    for batch in batches.epoch(0):
        for name in sorted(batch):
            array = np.ascontiguousarray(batch[name])
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(array)
    return found.hexdigest()


def first_of_each_shape(
    batches: Batches, epoch: int = 0, first_batch: int = 0
) -> list[int]:
    """Finds the steps of an epoch whose batch has a new shape.

    In the first epoch of a process, XLA compiles in these steps.

    Args:
        batches: Object whose `epoch(number)` yields dicts of arrays.
        epoch: Number of the epoch, counted from 0.
        first_batch: Number of batches to leave out at the start of the epoch.

    Returns:
        A list of step numbers, counted from 0.

    Example:

    >>> from keras_vqem.text import TokenBatches
    >>> ids = [[3, 1], [4, 1], [5, 6, 7, 8, 1]]
    >>> batches = TokenBatches(
    ...     ids, ids, 8, boundaries=[(2, 8), (5, 8)], batch_multiple=1, shuffle=False)
    >>> [batch["source_ids"].shape for batch in batches.epoch(0)]
    [(1, 2), (1, 2), (1, 5)]
    >>> first_of_each_shape(batches)
    [0, 2]
    """
    seen = {}
    rest = itertools.islice(batches.epoch(epoch), first_batch, None)
    for step, batch in enumerate(rest, first_batch):
        seen.setdefault(tuple(array.shape for array in batch.values()), step)
    return list(seen.values())


def validation_set(
    arrays: Mapping[str, np.ndarray], batch_size: int
) -> tf.data.Dataset:
    """Returns arrays as a finite dataset of full batches, in order.

    Examples that do not fill a last batch are left out.

    Args:
        arrays: Dict of arrays with one row per example.
        batch_size: Number of examples per batch.

    Returns:
        A `tf.data.Dataset` of dicts, for `fit(validation_data=...)`.

    Raises:
        ValueError: If there are fewer examples than `batch_size`.
    """
    number = len(next(iter(arrays.values())))
    if number < batch_size:
        raise ValueError(
            f"There are {number} examples to validate on, fewer than one batch of "
            f"{batch_size}. Lower the batch size, or hold out more examples."
        )
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    return dataset.batch(batch_size, drop_remainder=True)
