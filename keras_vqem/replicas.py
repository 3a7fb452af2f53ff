"""Support for tf.distribute in layers: sums over replicas, noise per replica."""

import threading
from collections.abc import Iterable

import keras
import tensorflow as tf
from keras import ops


def _context():
    # The replica context is None while a model is built in a strategy's scope.
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    return context


def num_replicas() -> int:
    """Returns the number of replicas, or 1 outside a strategy's replica context."""
    context = _context()
    return 1 if context is None else context.num_replicas_in_sync


def replica_id() -> int | tf.Tensor:
    """Returns the index of this replica, counted from 0."""
    context = _context()
    return 0 if context is None else context.replica_id_in_sync_group


def sum_over_replicas(x: tf.Tensor | list[tf.Tensor]) -> tf.Tensor | list[tf.Tensor]:
    """Sums a tensor, or each tensor of a list, over all replicas."""
    context = _context()
    if context is None:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def gather_scalars(x: tf.Tensor) -> tf.Tensor:
    """Collects the float32 scalar `x` of every replica.

    Returns:
        Float32 `[num_replicas]`, in the order of the replicas.
    """
    place = ops.one_hot(replica_id(), num_replicas(), dtype="float32")
    return sum_over_replicas(place * x)


class LossesByThread:
    """The list of losses behind `Layer.add_loss`, with one list per thread.

    Each replica is a thread, and the threads take turns at each collective. Keras keeps
    one list per layer. A layer that sums over replicas inside `call` would therefore
    find the losses of other replicas in its list.
    """

    def __init__(self):
        self._local = threading.local()

    def _mine(self):
        return self._local.__dict__.setdefault("losses", [])

    def extend(self, losses: Iterable[tf.Tensor]) -> None:
        self._mine().extend(losses)

    def clear(self) -> None:
        self._mine().clear()

    def __getitem__(self, index):
        return self._mine()[index]


@keras.saving.register_keras_serializable(package="keras_vqem")
class ReplicaSeedGenerator(keras.random.SeedGenerator):
    """A `keras.random.SeedGenerator` with different seeds on each replica.

    Under `tf.distribute`, Keras' own generator gives every replica the same seed, and
    so the same noise for different data. This generator adds a multiple of the replica
    id to the first word of the seed. With one replica, the seeds are exactly those of
    Keras' generator.

    Args:
        seed: Initial seed, an integer. None draws one at random.
        **kwargs: Other arguments of `keras.random.SeedGenerator`.
    """

    def next(self, ordered: bool = True) -> tf.Tensor:
        """Returns the next seed of this replica, two integers."""
        seed = super().next(ordered=ordered)
        # With a step of 1, replica 1 of seed 0 would draw like replica 0 of seed 1.
        shift = ops.cast(replica_id() * 1_000_003, seed.dtype)
        shift = ops.stack([shift, ops.zeros_like(shift)])
        return seed + shift
