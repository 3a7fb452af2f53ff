"""strategy_scope: distribution strategies by name."""

import re

import tensorflow as tf


def strategy_scope(name: str) -> tf.distribute.Strategy:
    """Returns the `tf.distribute` strategy with a given name.

    Args:
        name: Name of the strategy. `"none"` is one device. `"mirrored"` is one replica
            per GPU, or without GPUs one per logical CPU device (one unless
            configured). `"mirrored:N"`, such as `"mirrored:2"`, is N replicas on the
            first N GPUs, or without GPUs on N logical CPU devices, which are set up
            if necessary.

    Returns:
        A strategy. Build and compile the model within its `scope()`.

    Raises:
        ValueError: If the name is unknown, or there are too few GPUs.
        RuntimeError: If TensorFlow has already set up too few CPU devices.

    Example:

    >>> from keras_vqem.training import strategy_scope
    >>> strategy = strategy_scope("none")
    >>> with strategy.scope():
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> strategy.num_replicas_in_sync
    1
    """
    match = re.fullmatch(r"mirrored(?::([1-9]\d*))?", name)
    if name == "none":
        return tf.distribute.get_strategy()
    if match is None:
        raise ValueError(
            f"Unknown strategy {name!r}. Choose 'none', 'mirrored' (all devices) or "
            f"'mirrored:N' for N replicas, such as 'mirrored:2'."
        )
    count = int(match[1]) if match[1] else None
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if count and count > len(gpus):
            raise ValueError(
                f"{name!r} needs {count} GPUs, this machine has {len(gpus)}. Choose "
                f"'mirrored:{len(gpus)}' or 'mirrored'."
            )
        return tf.distribute.MirroredStrategy(
            [f"GPU:{i}" for i in range(count or len(gpus))]
        )
    count = _logical_cpus(name, count)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(count)])


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
