"""Distribution strategies by name, and the rows of a batch that each replica gets."""

import re

import tensorflow as tf

from keras_vqem.array_batches import made_ahead
from keras_vqem.training import multi_worker


def strategy_scope(name: str) -> tf.distribute.Strategy:
    """Returns the `tf.distribute` strategy with a given name.

    Args:
        name: Name of the strategy. `"none"` is one device. `"mirrored"` is one replica
            per GPU, or without GPUs one per logical CPU device (one unless
            configured). `"mirrored:N"`, such as `"mirrored:2"`, is N replicas on the
            first N GPUs, or without GPUs on N logical CPU devices, which are set up
            if necessary. `"auto"` is `"mirrored"` if there are several GPUs, otherwise
            `"none"`. `"multi_worker"` is one replica per GPU of several processes,
            or one per process without GPUs; each process has the environment variable
            `TF_CONFIG`.

    Returns:
        A strategy. Build and compile the model within its `scope()`.

    Raises:
        ValueError: If the name is unknown, there are too few GPUs, or `TF_CONFIG` is
            not as it should be.
        RuntimeError: If TensorFlow has already set up too few CPU devices.

    Example:

    >>> from keras_vqem.training import strategy_scope
    >>> strategy = strategy_scope("none")
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> strategy.num_replicas_in_sync
    1
    """
    if name == "multi_worker":
        return multi_worker.make_strategy()
    kind, count = _devices(name)
    if kind is None:
        return tf.distribute.get_strategy()
    if kind == "CPU":
        count = _logical_cpus(name, count)
    return tf.distribute.MirroredStrategy([f"{kind}:{i}" for i in range(count)])


def num_devices(name: str) -> int:
    """Returns the number of devices that a strategy uses on this machine.

    Args:
        name: Name of the strategy, as in `strategy_scope`. No device is set up.
    """
    return _devices("mirrored" if name == "multi_worker" else name)[1] or 1


def _devices(name):
    """Returns kind and number of devices; None for one device, or all CPU devices."""
    match = re.fullmatch(r"auto|none|mirrored(?::([1-9]\d*))?", name)
    if match is None:
        raise ValueError(
            f"Unknown strategy {name!r}. Choose 'auto', 'none', 'mirrored' (all "
            f"devices), 'mirrored:N' for N replicas, such as 'mirrored:2', or "
            f"'multi_worker'."
        )
    gpus = len(tf.config.list_physical_devices("GPU"))
    if name == "none" or (name == "auto" and gpus < 2):
        return None, None
    count = int(match[1]) if match[1] else None
    if not gpus:
        return "CPU", count
    if count and count > gpus:
        raise ValueError(
            f"{name!r} needs {count} GPUs, this machine has {gpus}. Choose "
            f"'mirrored:{gpus}' or 'mirrored'."
        )
    return "GPU", count or gpus


def _logical_cpus(name, count):
    """Sets up at least `count` logical CPU devices and returns the number to use."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    available = len(tf.config.get_logical_device_configuration(cpu) or [None])
    if count is None or count <= available:
        return count or available
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"{name!r} needs {count} logical CPU devices, but TensorFlow has already "
            f"set up {available}. It sets up devices once, for the first tensor, "
            f"variable or model. Call strategy_scope({name!r}) before."
        ) from error
    return count


def distribute_batches(
    dataset: tf.data.Dataset, strategy: tf.distribute.Strategy
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Divides the rows of each batch among the replicas of a strategy.

    Replicas get consecutive rows. Their numbers of rows differ by at most one. They may
    be 0 if the dataset has batches of several sizes. A batch thus has the same rows
    with any number of replicas. With several workers, the dataset must be the same in
    all of them.

    Args:
        dataset: A `tf.data.Dataset` of batches.
        strategy: Strategy of the model.

    Returns:
        Data for `fit` or `evaluate`: the dataset itself if there is one replica.

    Raises:
        ValueError: If all batches have fewer rows than there are replicas.

    Example:

    >>> from keras_vqem.training import distribute_batches, strategy_scope
    >>> strategy = strategy_scope("none")
    >>> dataset = distribute_batches(tf.data.Dataset.range(4).batch(2), strategy)
    >>> [batch.numpy().tolist() for batch in dataset]
    [[0, 1], [2, 3]]
    """
    count = strategy.num_replicas_in_sync
    if count == 1:
        return dataset
    rows = tf.nest.flatten(dataset.element_spec)[0].shape[0]
    if rows is not None and rows < count:
        # TensorFlow's convolutions have no gradient for a share without rows.
        raise ValueError(
            f"A batch of {rows} rows cannot be divided among {count} replicas. Use "
            f"batches of at least {count} rows, or fewer replicas."
        )

    def share(x, replica):
        rows = tf.shape(x, tf.int64)[0]
        part = x[rows * replica // count : rows * (replica + 1) // count]
        if x.shape[0] is not None and x.shape[0] % count == 0:
            part = tf.ensure_shape(part, [x.shape[0] // count, *x.shape[1:]])
        return part

    def pipeline(context):
        here = count // context.num_input_pipelines
        first = context.input_pipeline_id * here

        def divide(batch):
            return tf.data.Dataset.range(first, first + here).map(
                lambda replica: tf.nest.map_structure(
                    lambda x: share(x, replica), batch
                )
            )

        shares = dataset.flat_map(divide)
        # Where the end is known, TensorFlow need not ask for it at every step.
        steps = int(dataset.cardinality())
        if steps != tf.data.UNKNOWN_CARDINALITY:
            steps = steps if steps < 0 else steps * here
            shares = shares.apply(tf.data.experimental.assert_cardinality(steps))
        return made_ahead(shares, 2 * here)

    return strategy.distribute_datasets_from_function(pipeline)
