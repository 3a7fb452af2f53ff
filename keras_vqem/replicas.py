"""What layers need to know of tf.distribute: sums over replicas, noise per replica."""

import threading

import keras
import tensorflow as tf
from keras import ops


def _context():
    # The replica context is None while a model is built in a strategy's scope.
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    return context


def num_replicas():
    """How many replicas share this step; 1 outside a strategy's replica context."""
    context = _context()
    return 1 if context is None else context.num_replicas_in_sync


def replica_id():
    """This replica's place among them, from 0."""
    context = _context()
    return 0 if context is None else context.replica_id_in_sync_group


def sum_over_replicas(x):
    """The tensor, or list of tensors, `x` summed over all replicas; itself on one."""
    context = _context()
    if context is None:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def gather_scalars(x):
    """[num_replicas]: every replica's value of the float32 scalar `x`, in order."""
    place = ops.one_hot(replica_id(), num_replicas(), dtype="float32")
    return sum_over_replicas(place * x)


class LossesByThread:
    """The list behind `Layer.add_loss`, one for every thread.

    Replicas are threads that take turns at each collective. Keras keeps one list a
    layer, so a layer that sums over replicas inside `call` would find the losses of
    other replicas among its own.
    """

    def __init__(self):
        self._local = threading.local()

    def _mine(self):
        return self._local.__dict__.setdefault("losses", [])

    def extend(self, losses):
        self._mine().extend(losses)

    def clear(self):
        self._mine().clear()

    def __getitem__(self, index):
        return self._mine()[index]


@keras.saving.register_keras_serializable(package="keras_vqem")
class ReplicaSeedGenerator(keras.random.SeedGenerator):
    """A `keras.random.SeedGenerator` whose replicas draw different noise.

    Under `tf.distribute` Keras' own generator hands every replica the same seed, and
    so the same noise for different data. This one moves the first word of the seed by
    the replica's id; on one replica it draws exactly what Keras' generator draws.
    """

    def next(self, ordered=True):
        seed = super().next(ordered=ordered)
        # A large step, so that replica 1 of seed 0 is not replica 0 of seed 1.
        shift = ops.cast(replica_id() * 1_000_003, seed.dtype)
        shift = ops.stack([shift, ops.zeros_like(shift)])
        return seed + shift
