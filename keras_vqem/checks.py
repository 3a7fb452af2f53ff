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


def in_range(name: str, values: ArrayLike, most: int) -> tf.Tensor:
    """Returns integers as a tensor, or raises if one is not from 0 to `most`.

    Inside a graph `tf.errors.InvalidArgumentError` is raised when it runs, but not if
    XLA compiled it.

    Args:
        name: Name of the argument, for the error message.
        values: Integers to check.
        most: Largest allowed value.

    Returns:
        `values` as a tensor of the same dtype.

    Raises:
        ValueError: If the values are known and one is out of range.
    """
    values = tf.convert_to_tensor(values)
    message = f"Values of `{name}` must be from 0 to {most}"
    known = tf.get_static_value(values)
    if known is not None:
        if known.size and not (0 <= known.min() and known.max() <= most):
            raise ValueError(
                f"{message}, those given are from {known.min()} to {known.max()}."
            )
        return values
    numbers = tf.cast(values, tf.int32)
    fits = tf.reduce_all((numbers >= 0) & (numbers <= most))
    with tf.control_dependencies([tf.debugging.Assert(fits, [message])]):
        return tf.identity(values)


def same_rows(**values: ArrayLike) -> list[tf.Tensor]:
    """Returns two tensors, or raises if they do not have the same number of rows.

    TensorFlow would repeat a single row. Inside a graph that takes any number of rows,
    an exported one included, `tf.errors.InvalidArgumentError` is raised when it runs.

    Args:
        **values: Two arrays or tensors by their names, for the error message.

    Returns:
        The two as tensors.

    Raises:
        ValueError: If the numbers of rows are known and differ.
    """
    one, other = (tf.convert_to_tensor(value) for value in values.values())
    message = "`{}` and `{}` must have the same number of rows".format(*values)
    rows = one.shape[0], other.shape[0]
    if None not in rows:
        if rows[0] != rows[1]:
            raise ValueError(
                f"{message}, received {rows[0]} and {rows[1]}. Pass one of each per "
                f"sentence."
            )
        return [one, other]
    equal = tf.debugging.assert_equal(
        tf.shape(one)[0], tf.shape(other)[0], f"{message}, one of each per sentence."
    )
    with tf.control_dependencies([equal]):
        return [tf.identity(one), tf.identity(other)]


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
