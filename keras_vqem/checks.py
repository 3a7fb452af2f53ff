"""Checks of arguments, whose errors say what to do instead."""

import numbers
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import ArrayLike


def whole_number(name: str, value: Any, least: int, remedy: str | None = None) -> int:
    """Returns a whole number as an int, or raises a `ValueError`.

    Args:
        name: Name of the argument, for the error message.
        value: Value to check. Floats without a fraction, such as `2.0`, are allowed.
        least: Smallest allowed value.
        remedy: Sentence to add to the error message.

    Returns:
        `value` as an int.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if number and value % 1 == 0 and value >= least:
        return int(value)
    raise ValueError(
        f"`{name}` must be a whole number of at least {least}, received {value!r}."
        + (f" {remedy}" if remedy else "")
    )


def integers(name: str, values: ArrayLike, most: int) -> tf.Tensor:
    """Returns integers as a tensor, or raises a `ValueError` for any other dtype.

    Args:
        name: Name of the argument, for the error message.
        values: Array or tensor to check.
        most: Largest meaningful value, for the error message. It is not checked.

    Returns:
        `values` as a tensor of the same dtype.
    """
    values = keras.ops.convert_to_tensor(values)
    dtype = keras.backend.standardize_dtype(values.dtype)
    if "int" not in dtype:
        raise ValueError(
            f"`{name}` must be integers from 0 to {most}, received {dtype}. Pass the "
            f"stored values without scaling them, or cast them with "
            f"keras.ops.cast({name}, 'int32')."
        )
    return values


def concrete(method: str, value: Any) -> None:
    """Raises a `ValueError` for symbolic tensors, which only `call` can handle.

    Args:
        method: Name of the method that received the value, for the error message.
        value: Value to check.
    """
    if isinstance(value, keras.KerasTensor):
        raise ValueError(
            f"`{method}` takes tensors and arrays, not the symbolic tensors of a "
            f"Functional model. In a Functional model, call the layer itself, or write "
            f"a layer whose `call` uses `{method}`."
        )


def nonfinite_weight(model: keras.Model) -> str | None:
    """Returns the path of a weight with NaN or infinite values, or None.

    Args:
        model: A built model.
    """
    for weight in model.weights:
        # The tensor of a mirrored variable is that of the first replica.
        value = tf.convert_to_tensor(weight.value)
        if value.dtype.is_floating and not tf.reduce_all(tf.math.is_finite(value)):
            return weight.path
    return None
