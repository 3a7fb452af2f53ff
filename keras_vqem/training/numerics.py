"""The precision of numbers in a run: dtype policy, and no TF32."""

import contextlib
from collections.abc import Iterator

import keras
import tensorflow as tf


@contextlib.contextmanager
def numerics(precision: str | None = None) -> Iterator[None]:
    """Sets the dtype policy of Keras within a block, and turns TF32 off.

    GPUs from Ampere on shorten the factors of a float32 product to TF32, 10 bits after
    the point, unless told otherwise. The distances of a bottleneck are differences of
    such products: near codes would be confused. TensorFlow has one switch for all
    products. Those of half precision are not affected by it.

    Args:
        precision: Name of a dtype policy. None leaves the policy as it is.
    """
    policy = keras.config.dtype_policy()
    short = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    if precision is not None:
        keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        tf.config.experimental.enable_tensor_float_32_execution(short)
