"""Training on several machines: TensorFlow's MultiWorkerMirroredStrategy in `fit`.

Keras 3 says that it does not support this strategy. Two functions of its trainer stand
in the way, which `mend_keras` replaces in the one minor version that it was tried with.
"""

import functools
import hashlib
import json
import os
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import trainer

# Minor versions of Keras that tests/training/test_multi_worker.py has trained with.
TESTED = ("3.15",)
EXAMPLE = (
    'TF_CONFIG=\'{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
    '"task": {"type": "worker", "index": 0}}\''
)


def worker() -> tuple[int, int]:
    """Reads from `TF_CONFIG` which worker this process is.

    Returns:
        A tuple of the number of the worker, counted from 0, and the number of workers.
        Worker 0 is the chief, which writes the files of a run.

    Raises:
        ValueError: If `TF_CONFIG` is missing or is not that of a worker.
    """
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        chiefs, workers = cluster.get("chief", []), cluster.get("worker", [])
        index = int(task["index"]) + (len(chiefs) if task["type"] == "worker" else 0)
        good = {*cluster} <= {"chief", "worker"} and task["type"] in cluster
        good = good and 0 <= index < len(chiefs) + len(workers)
    except (AttributeError, KeyError, TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            f"'multi_worker' needs TF_CONFIG in the environment of each process, with "
            f"the addresses of all workers and the number of this one; received "
            f"{text!r}. Set, for example, {EXAMPLE}. See docs/scaling.md."
        )
    return index, len(chiefs) + len(workers)


@functools.cache
def make_strategy() -> tf.distribute.Strategy:
    """Returns the strategy of the workers in `TF_CONFIG`, one per process.

    It waits until all workers are there.
    """
    worker()
    mend_keras()
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise RuntimeError(
            "'multi_worker' must be set up before TensorFlow runs anything. Call "
            "strategy_scope('multi_worker'), or open the Run, first."
        ) from error


def mend_keras() -> None:
    """Replaces the two functions of Keras that fail with several workers.

    Raises:
        RuntimeError: If this version of Keras has not been tried.
    """
    version = keras.version()
    if version.rpartition(".")[0] not in TESTED:
        raise RuntimeError(
            f"'multi_worker' changes two functions inside Keras, and was tried with "
            f"Keras {', '.join(TESTED)} only; this is Keras {version}. Install that "
            f"version, or use 'mirrored' on one machine."
        )
    if trainer.reduce_per_replica is not _reduce_per_replica:
        trainer.reduce_per_replica = _reduce_per_replica
        trainer.TensorFlowTrainer._maybe_symbolic_build = _maybe_symbolic_build


_keras_reduce = trainer.reduce_per_replica
_keras_build = trainer.TensorFlowTrainer._maybe_symbolic_build


def _is_multi_worker(strategy):
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def _reduce_per_replica(values, strategy, reduction):
    """Averages logs over replicas; Keras takes the mean of a scalar along axis 0."""
    if not _is_multi_worker(strategy) or reduction not in ("auto", "mean"):
        return _keras_reduce(values, strategy, reduction)
    return tf.nest.map_structure(
        lambda value: strategy.reduce("MEAN", value, axis=None), values
    )


def _maybe_symbolic_build(self, iterator=None, data_batch=None):
    """Builds a model for the shape of a batch; Keras averages it over workers."""
    strategy = self.distribute_strategy
    if not _is_multi_worker(strategy) or iterator is None:
        return _keras_build(self, iterator, data_batch)
    for _, _, batches in iterator:
        data_batch = tf.nest.map_structure(
            lambda x: strategy.experimental_local_results(x)[0], next(batches)
        )
        break
    with strategy.scope():
        self._symbolic_build(data_batch=data_batch)


def _sum(strategy, vector):
    """Sums an integer vector over workers."""

    def on_replica(vector):
        context = tf.distribute.get_replica_context()
        # The first replica of each worker speaks for it.
        here = len(strategy.extended.worker_devices)
        mine = tf.equal(context.replica_id_in_sync_group % here, 0)
        vector = tf.where(mine, vector, tf.zeros_like(vector))
        return context.all_reduce(tf.distribute.ReduceOp.SUM, vector)

    summed = tf.function(lambda x: strategy.run(on_replica, args=(x,)))(vector)
    return strategy.experimental_local_results(summed)[0].numpy()


def check_agreement(
    strategy: tf.distribute.Strategy, name: str, text: str, remedy: str
) -> None:
    """Raises unless a text is the same on all workers.

    Args:
        strategy: Strategy of the run, of any kind.
        name: Name of what the text stands for.
        text: Text of this worker, such as a hash of its data.
        remedy: Sentence for the error message.
    """
    if not _is_multi_worker(strategy):
        return
    index, count = worker()
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])
    numbers = np.zeros(count, "int64")
    numbers[index] = number
    found = _sum(strategy, tf.constant(numbers)).tolist()
    others = [i for i in range(count) if found[i] != found[0]]
    if others:
        raise ValueError(
            f"The {name} of workers {others} differ from those of worker 0. {remedy}"
        )


def share_state(model: keras.Model, numbers: Sequence[float] = ()) -> list[float]:
    """Gives all workers the state of the chief, so that only it reads checkpoints.

    Args:
        model: A built and compiled model. Its weights, seeds and optimizer become those
            of the chief, to the bit.
        numbers: Numbers of this worker, such as that of complete epochs.

    Returns:
        The numbers of the chief, of the same types. Without several workers nothing
        changes.
    """
    strategy = model.distribute_strategy
    if not _is_multi_worker(strategy):
        return list(numbers)
    variables = [*model.variables, *model.optimizer.variables]
    # The tensor of a mirrored variable is that of the first replica.
    values = [tf.convert_to_tensor(variable.value).numpy() for variable in variables]
    values.append(np.array(numbers, "float64"))
    data = b"".join(value.tobytes() for value in values)
    data += bytes(-len(data) % 4)
    # As integers, zeros of the other workers change no bit.
    bits = np.frombuffer(data, "int32")
    if worker()[0]:
        bits = np.zeros_like(bits)
    data, place = _sum(strategy, tf.constant(bits)).tobytes(), 0
    for i, value in enumerate(values):
        received = np.frombuffer(data, value.dtype, value.size, place)
        values[i] = received.reshape(value.shape)
        place += value.nbytes
    for variable, value in zip(variables, values, strict=False):
        variable.assign(value)
    received = values[-1].tolist()
    return [type(mine)(x) for mine, x in zip(numbers, received, strict=True)]


LOST = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)


def explain(strategy: tf.distribute.Strategy, error: BaseException | None) -> None:
    """Raises one sentence for what TensorFlow raises when a worker is lost.

    Args:
        strategy: Strategy of the run, of any kind.
        error: Error that ends the run, or None. Other errors are left alone.
    """
    if _is_multi_worker(strategy) and isinstance(error, LOST):
        index, count = worker()
        raise RuntimeError(
            f"Worker {index} of {count} lost the others: one of them has stopped, or "
            f"cannot be reached. Its own message says why. Start all workers again "
            f"with --resume. TensorFlow says: {str(error).splitlines()[0]}"
        ) from error
