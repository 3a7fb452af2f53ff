"""Strategy objects: choices that a layer is given as an object, and saves with it."""

from typing import Any

import keras


class Strategy:
    """A choice that a layer is given as an object.

    A subclass with arguments returns them from `get_config`.
    """

    def get_config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Strategy":
        return cls(**config)


def get(
    argument: str,
    value: str | Strategy | dict[str, Any],
    base: type[Strategy],
    names: dict[str, type[Strategy]],
) -> Strategy:
    """Returns the strategy that an argument of a layer asks for.

    Args:
        argument: Name of the argument, for the error message.
        value: Name, strategy, or serialized strategy.
        base: Class of the strategies that the argument takes.
        names: Strategies that have a name, by their names.

    Returns:
        A strategy of the class `base`.
    """
    found = value
    if isinstance(value, dict):
        found = keras.saving.deserialize_keras_object(value)
    elif isinstance(value, str) and value in names:
        found = names[value]()
    if isinstance(found, base):
        return found
    choices = f"one of {', '.join(map(repr, names))}, or " if names else ""
    raise ValueError(
        f"`{argument}` must be {choices}an object of a subclass of {base.__name__}. "
        f"Received {value!r}."
    )


def serialize(
    strategy: Strategy, names: dict[str, type[Strategy]]
) -> str | dict[str, Any]:
    """Returns a strategy as a value for `get_config`, which `get` accepts.

    Args:
        strategy: Strategy of a layer.
        names: Strategies that have a name, by their names.

    Returns:
        The name, or the serialized strategy if it has none.
    """
    for name, kind in names.items():
        if type(strategy) is kind:
            return name
    return keras.saving.serialize_keras_object(strategy)


def of_number(
    argument: str, value: float | Strategy | dict[str, Any], default: type[Strategy]
) -> Strategy:
    """Returns the strategy of an argument that may also be a number.

    Args:
        argument: Name of the argument, for the error message.
        value: Number, strategy, or serialized strategy.
        default: Class of the strategy that a number stands for, and base of all others.

    Returns:
        A strategy of the class `default`.
    """
    if isinstance(value, (dict, default)):
        return get(argument, value, default, {})
    return default(value)


def number_or_config(
    strategy: Strategy, default: type[Strategy]
) -> float | dict[str, Any]:
    """Returns a strategy as a value for `get_config`, which `of_number` accepts.

    Args:
        strategy: Strategy of a layer.
        default: Class of the strategy that a number stands for.

    Returns:
        The number, or the serialized strategy if it is of another class.
    """
    if type(strategy) is default:
        [number] = strategy.get_config().values()
        return number
    return keras.saving.serialize_keras_object(strategy)
