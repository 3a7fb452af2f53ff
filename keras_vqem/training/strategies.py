"""Distribution strategies by name, as a recipe's argument gives them."""

import re

import tensorflow as tf


def strategy_scope(name):
    """The `tf.distribute` strategy of a name.

    Args:
        name: `"none"`: one device. `"mirrored"`: a replica on each GPU, or on each
            logical CPU device where there is no GPU (one unless configured).
            `"mirrored:2"`: two replicas, on the first two GPUs, or on two logical CPU
            devices, which are set up here if they can still be.

    Returns:
        A strategy. Build and compile the model within its `scope()`.

    Raises:
        ValueError: If the name is another, or there are fewer GPUs.
        RuntimeError: If TensorFlow has set up its CPU devices before, and too few.

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
    """See to `count` logical CPU devices (None: those that are); their number."""
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
            f"{name!r} needs {count} logical CPU devices, but TensorFlow has set up "
            f"{available} already, which it does once, when a first tensor, variable "
            f"or model is made. Call strategy_scope({name!r}) before."
        ) from error
    return count
