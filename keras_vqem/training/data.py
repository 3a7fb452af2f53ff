"""What a run asks of its data: a fingerprint, the shapes, a set to validate on."""

import hashlib

import numpy as np
import tensorflow as tf


def fingerprint(batches):
    """The SHA-256 hash of all batches of the first epoch.

    Args:
        batches: Object whose `epoch(0)` yields dicts of arrays.
    """
    found = hashlib.sha256()
    for batch in batches.epoch(0):
        for name in sorted(batch):
            array = np.ascontiguousarray(batch[name])
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(array)
    return found.hexdigest()


def first_of_each_shape(batches, epoch=0):
    """Steps of an epoch whose batch has a shape that none before it had.

    In the first epoch of a process these are the steps in which XLA compiles.

    Args:
        batches: Object whose `epoch(number)` yields dicts of arrays.
        epoch: Number of the epoch, counting from 0.

    Returns:
        A list of step numbers, counting from 0.

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
    for step, batch in enumerate(batches.epoch(epoch)):
        seen.setdefault(tuple(array.shape for array in batch.values()), step)
    return list(seen.values())


def validation_set(arrays, batch_size):
    """A finite dataset of arrays, in order, without a last batch that is not full.

    Args:
        arrays: Dict of arrays with one row per example.
        batch_size: Number of examples per batch.

    Returns:
        A `tf.data.Dataset` of dicts, for `fit(validation_data=...)`.

    Raises:
        ValueError: If there are fewer examples than one batch takes.
    """
    number = len(next(iter(arrays.values())))
    if number < batch_size:
        raise ValueError(
            f"There are {number} examples to validate on, fewer than one batch of "
            f"{batch_size}. Lower the batch size, or hold out more examples."
        )
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    return dataset.batch(batch_size, drop_remainder=True)
