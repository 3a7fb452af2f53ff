"""Graphs: functions of ids, traced once for each set of options."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_vqem.models import compiled


class Graphs:
    """Methods of a translator as graphs. TensorFlow would export a plain dict."""

    def __init__(self):
        self._by_options = {}
        self._called = set()

    def graph(
        self,
        method: Callable,
        options: dict[str, Any],
        inputs: tuple[str, ...] = ("source_ids",),
        jit_compile: bool = False,
    ) -> Callable:
        """Returns a method with options as a graph.

        Args:
            method: Bound method.
            options: Dict of its options.
            inputs: Names of its arguments that are ids, the first at its first place.
            jit_compile: Whether XLA compiles the parts of the graph.

        Returns:
            A `tf.function` of int32 tensors `[B, L]`, of any B and L, one per input.
        """
        key = _key(method, options, inputs, jit_compile)
        if key not in self._by_options:
            function = _function(method, options, inputs)
            self._by_options[key] = tf.function(
                compiled.within(function) if jit_compile else function,
                input_signature=[tf.TensorSpec([None, None], "int32")] * len(inputs),
                autograph=False,
            )
            # Traced now: `generate` would read what `generation_config` is by then.
            self._by_options[key].get_concrete_function()
        return self._by_options[key]

    def for_call(
        self,
        method: Callable,
        options: dict[str, Any],
        short: bool,
        inputs: tuple[str, ...] = ("source_ids",),
        jit_compile: bool = False,
    ) -> Callable:
        """Returns a method as it is for a short first call, and then as a graph.

        Tracing takes longer than several calls without a graph, and pays only for who
        calls again.

        Args:
            method: Bound method.
            options: Dict of its options.
            short: Whether one call without a graph is faster than tracing.
            inputs: Names of its arguments that are ids, as in `graph`.
            jit_compile: Whether XLA compiles the parts of the graph. Then the first
                call has a graph too.

        Returns:
            A function of the inputs.
        """
        key = _key(method, options, inputs, jit_compile)
        known = key in self._called or key in self._by_options
        self._called.add(key)
        if known or jit_compile or not short:
            return self.graph(method, options, inputs, jit_compile)
        return _function(method, options, inputs)


def _function(method, options, inputs):
    def function(first, *others):
        return method(first, **dict(zip(inputs[1:], others, strict=True)), **options)

    return function


def _key(method, options, inputs, jit_compile):
    key = (method.__name__, inputs, jit_compile, *sorted(options.items()))
    try:
        hash(key)
    except TypeError:
        raise ValueError(
            f"The options {options} cannot be used here, because one of them is "
            f"not hashable. Call `translate_ids` to pass one limit per row."
        ) from None
    return key
