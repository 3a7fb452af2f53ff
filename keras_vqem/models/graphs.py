"""Graphs: functions of `source_ids`, traced once for each set of options."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


class Graphs:
    """Methods of a translator as graphs. TensorFlow would export a plain dict."""

    def __init__(self):
        self._by_options = {}
        self._called = set()

    def graph(self, method: Callable, options: dict[str, Any]) -> Callable:
        """Returns a method with options as a graph.

        Args:
            method: Bound method that takes `source_ids`.
            options: Dict of its options.

        Returns:
            A `tf.function` of `source_ids` `[B, S]`, of any B and S.
        """
        key = _key(method, options)
        if key not in self._by_options:
            self._by_options[key] = tf.function(
                lambda source_ids: method(source_ids, **options),
                input_signature=[tf.TensorSpec([None, None], "int32")],
                autograph=False,
            )
            # Traced now: `generate` would read what `generation_config` is by then.
            self._by_options[key].get_concrete_function()
        return self._by_options[key]

    def for_call(
        self, method: Callable, options: dict[str, Any], short: bool
    ) -> Callable:
        """Returns a method as it is for a short first call, and then as a graph.

        Tracing takes longer than several calls without a graph, and pays only for who
        calls again.

        Args:
            method: Bound method that takes `source_ids`.
            options: Dict of its options.
            short: Whether one call without a graph is faster than tracing.

        Returns:
            A function of `source_ids`.
        """
        key = _key(method, options)
        known = key in self._called or key in self._by_options
        self._called.add(key)
        if known or not short:
            return self.graph(method, options)
        return lambda source_ids: method(source_ids, **options)


def _key(method, options):
    key = (method.__name__, *sorted(options.items()))
    try:
        hash(key)
    except TypeError:
        raise ValueError(
            f"The options {options} cannot be used here, because one of them is "
            f"not hashable. Call `translate_ids` to pass one limit per row."
        ) from None
    return key
