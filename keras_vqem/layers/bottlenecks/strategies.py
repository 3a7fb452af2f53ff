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
    raise ValueError(
        f"`{argument}` must be one of {', '.join(map(repr, names))}, or an object of a "
        f"subclass of {base.__name__}. Received {value!r}."
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
