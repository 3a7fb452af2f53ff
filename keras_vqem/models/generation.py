"""Options of `generate`: those that a model stores, and what every search does."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.ids import PAD_ID
from keras_vqem.models import compiled


def with_generation_config(generate: Callable) -> Callable:
    """Decorates `generate` to take missing options from `generation_config`.

    A row of `source_ids` without any ids also gets no translation, whatever the
    decoder would write without a source.
    """

    names = ("__module__", "__name__", "__qualname__", "__doc__")

    @functools.wraps(generate, assigned=names)
    def merged(self, source_ids: ArrayLike, **options: Any) -> dict[str, tf.Tensor]:
        source_ids = compiled.padded(source_ids)
        found = generate(self, source_ids, **{**self.generation_config, **options})
        there = ops.any(source_ids != PAD_ID, axis=1)
        for name, nothing in self._nothing.items():
            axes = [1] * (len(found[name].shape) - 1)
            rows = ops.reshape(there, (-1, *axes))
            found[name] = tf.where(rows, found[name], nothing)
        return found

    merged.options = list(inspect.signature(generate).parameters)[2:]
    # `tf.function` would read defaults off the original and pass them as if given.
    del merged.__wrapped__
    return merged


class Generation:
    """Part of a translator that stores options of `generate`.

    A subclass decorates its `generate` with `with_generation_config`.
    """

    # What `generate` returns for a row without a source.
    _nothing = {"target_ids": PAD_ID, "scores": -1e9}

    @property
    def generation_options(self) -> list[str]:
        """Names of the options of `generate`."""
        return self.generate.options

    @property
    def generation_config(self) -> dict[str, Any]:
        """Options of `generate` that apply where a call does not pass them."""
        return dict(self._generation_config)

    @generation_config.setter
    def generation_config(self, options):
        options = options or {}
        unknown = sorted(options.keys() - set(self.generation_options))
        if unknown:
            raise ValueError(
                f"`generation_config` has {unknown}, which are not options of "
                f"{type(self).__name__}. Its options are {self.generation_options}."
            )
        for name, value in options.items():
            # They are stored with the model: a rescorer would become a part of it.
            if not isinstance(value, (bool, int, float, str, type(None))):
                raise ValueError(
                    f"`generation_config` holds numbers, booleans and names, and "
                    f"{name!r} is a {type(value).__name__}. Pass it to each call "
                    f"instead."
                )
        if options.get("num_return_sequences") is not None:
            raise ValueError(
                "`generation_config` must not hold `num_return_sequences`, with which "
                "`translate` returns lists. Pass it to each call instead."
            )
        if options.get("target_prefix") is not None:
            raise ValueError(
                "`generation_config` must not hold `target_prefix`, which belongs to "
                "a text. Pass it to each call instead."
            )
        self._generation_config = dict(options)
