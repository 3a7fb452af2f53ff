"""Parts of a translation as programs of XLA, one per shape of what they are given.

A short translation is hundreds of small operations, and to start one takes about as
long as to compute it. XLA makes few programs of them. It needs shapes that depend on
nothing but the shapes of the input, so what cuts sentences to their real lengths stays
outside, and sentences are padded to few lengths.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from keras import ops

# Number of tokens of which lengths are multiples.
LENGTH_MULTIPLE = 8

_scope = threading.local()


def is_compiling() -> bool:
    """Returns whether parts are compiled that this thread calls now."""
    return getattr(_scope, "enabled", False)


@contextlib.contextmanager
def compiling(enabled: bool = True) -> Iterator[None]:
    """Context in which `part` compiles, if it is enabled."""
    before, _scope.enabled = is_compiling(), enabled
    try:
        yield
    finally:
        _scope.enabled = before


def part(function: Callable, *inputs: Any) -> Any:
    """Calls a function of tensors, as a compiled program within `compiling`.

    Args:
        function: Function whose shapes depend on those of its inputs alone.
        *inputs: Its inputs, tensors or None.

    Returns:
        What the function returns.
    """
    if not is_compiling():
        return function(*inputs)
    with compiling(False):  # Parts of this part are in the same program.
        return tf.function(function, autograph=False, jit_compile=True)(*inputs)


def within(function: Callable) -> Callable:
    """Returns a function that calls another one within `compiling`."""

    def calls(*inputs):
        with compiling():
            return function(*inputs)

    return calls


def padded(ids: tf.Tensor) -> tf.Tensor:
    """Pads ids `[B, L]` to a multiple of `LENGTH_MULTIPLE`, if parts are compiled."""
    if not is_compiling():
        return ids
    return ops.pad(ids, [[0, 0], [0, -ops.shape(ids)[1] % LENGTH_MULTIPLE]])
