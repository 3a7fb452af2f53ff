"""with_generation_config: what every `generate` does around its search."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.ids import PAD_ID


def with_generation_config(generate: Callable) -> Callable:
    """Decorates `generate` to take missing options from `generation_config`.

    A row of `source_ids` without any ids also gets no translation, whatever the
    decoder would write without a source.
    """

    names = ("__module__", "__name__", "__qualname__", "__doc__")

    @functools.wraps(generate, assigned=names)
    def merged(self, source_ids: ArrayLike, **options: Any) -> dict[str, tf.Tensor]:
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
