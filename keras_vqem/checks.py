"""Checks of arguments, with the remedy in the error."""

import numbers

import keras


def whole_number(name, value, least, remedy=None):
    """`value` as an int of at least `least`, or a ValueError."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if number and value % 1 == 0 and value >= least:
        return int(value)
    raise ValueError(
        f"`{name}` must be a whole number of at least {least}, received {value!r}."
        + (f" {remedy}" if remedy else "")
    )


def integers(name, values, most):
    """`values` as a tensor, or a ValueError unless they are integers."""
    values = keras.ops.convert_to_tensor(values)
    dtype = keras.backend.standardize_dtype(values.dtype)
    if "int" not in dtype:
        raise ValueError(
            f"`{name}` must be integers from 0 to {most}, received {dtype}. Pass them "
            f"as they are stored, not scaled, or cast them with "
            f"keras.ops.cast({name}, 'int32')."
        )
    return values


def concrete(method, value):
    """Refuses symbolic tensors, with which methods beside `call` cannot work."""
    if isinstance(value, keras.KerasTensor):
        raise ValueError(
            f"`{method}` takes tensors and arrays, not the symbolic tensors of a "
            f"Functional model. Call the layer itself there, or call `{method}` in the "
            f"`call` of a layer or model of your own."
        )
