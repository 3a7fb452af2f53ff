"""Parts of a batch that a training step works through one after the other.

A step that goes through its batch in parts holds the activations of one part at a time.
Layers whose state changes once per step ask this module which part they see.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

# Per thread, because each replica is a thread.
_local = threading.local()


@contextlib.contextmanager
def part(number: int, count: int, sums: dict) -> Iterator[None]:
    """Marks what is called in the block as one part of a step.

    Args:
        number: Number of the part, counted from 0.
        count: Number of parts of the step.
        sums: Dict of the step, empty at first, for `sum_over_parts`.
    """
    outer = _current()
    _local.part = (number, count, sums)
    try:
        yield
    finally:
        _local.part = outer


def subparts(count: int) -> list[contextlib.AbstractContextManager]:
    """Divides the current part, or the whole batch, into parts.

    Args:
        count: Number of parts.

    Returns:
        List of `count` contexts, to be entered one after the other.
    """
    number, parts, sums = _current()
    # The sums of a whole batch end with it.
    sums = sums if parts > 1 else {}
    return [part(number * count + i, parts * count, sums) for i in range(count)]


def _current():
    return getattr(_local, "part", (0, 1, {}))


def num_parts() -> int:
    """Returns the number of parts of the step, or 1 outside `part`."""
    return _current()[1]


def is_last() -> bool:
    """Returns whether this is the last part, or the whole batch."""
    number, count, _ = _current()
    return number == count - 1


def sum_over_parts(owner: object, tensors: list[tf.Tensor]) -> list[tf.Tensor] | None:
    """Sums tensors over the parts of a step.

    Args:
        owner: Object that the tensors belong to. It calls this once in each part.
        tensors: List of tensors of this part.

    Returns:
        List of the sums in the last part, None in earlier ones.
    """
    number, count, sums = _current()
    if count == 1:
        return tensors
    key: Any = id(owner)
    if key in sums:
        tensors = [a + b for a, b in zip(sums[key], tensors, strict=True)]
    sums[key] = tensors
    return tensors if number == count - 1 else None
