"""Warnings about mistakes that would otherwise go unnoticed, each once per layer.

All of them are found in Python, when a layer is called or its graph is traced. Graphs
get no operations for them.
"""

import math
import warnings
import weakref
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

# Keras and TensorFlow know whether shapes are only inferred, and whether a tape is
# recording, but have no public functions that say so.
from tensorflow.python.eager import record

from keras_vqem import micro_batches, replicas

_told = weakref.WeakKeyDictionary()


def tell(
    layer: keras.layers.Layer,
    kind: str,
    message: str,
    log: Callable[[str], object] = warnings.warn,
) -> None:
    """Warns about a layer, unless it was warned about for this reason before.

    Args:
        layer: The layer that the warning is about.
        kind: Reason of the warning.
        message: Rest of the sentence that begins with the name of the layer.
        log: Function that takes the warning.
    """
    kinds = _told.setdefault(layer, set())
    if kinds.isdisjoint((kind, "leave")):
        kinds.add(kind)
        log(f"{type(layer).__name__} {layer.name!r} {message}")


def leave_to_outer(layer: keras.layers.Layer) -> None:
    """Never warns about a layer, because it is part of one that is warned about."""
    _told.setdefault(layer, set()).add("leave")


def look_at_shape(layer: keras.layers.Layer, shape: tuple[int | None, ...]) -> None:
    """Warns if vectors seem to lie along the second axis, as channels first."""
    if len(shape) != 4:
        return
    _, channels, height, width = shape
    # Images are mostly square: of [N, 64, 8, 8], axis 1 is no side of an image.
    square = None not in (channels, height) and channels != height == width
    if square or keras.config.image_data_format() == "channels_first":
        tell(
            layer,
            "channels first",
            f"takes vectors along the last axis, and inputs of shape {tuple(shape)} "
            f"seem to have them along axis 1, with channels first. Then move them, "
            f"here with keras.layers.Permute((2, 3, 1)) and back after the layer with "
            f"keras.layers.Permute((3, 1, 2)). If the vectors do lie along the last "
            f"axis, all is well.",
        )


def look_at_call(
    layer: keras.layers.Layer, inputs: tf.Tensor, training: bool | None
) -> None:
    """Warns if a call does not do what its caller probably wants.

    Args:
        layer: A built bottleneck.
        inputs: Vectors `[..., D]`.
        training: The argument of the call.
    """
    if in_symbolic_scope():
        return
    kinds = _told.setdefault(layer, set())
    first = "called" not in kinds
    kinds.add("called")
    if training is None and layer.trainable and record.could_possibly_record():
        tell(
            layer,
            "training",
            "is called while gradients are recorded, but was not told whether it is "
            "training. So it neither moves codes, nor draws noise, nor counts "
            "metrics. Write `def call(self, inputs, training=None)` in "
            "your model, so that Keras passes `training` on to its layers; in a "
            "training loop of your own call model(inputs, training=True). If this is "
            "not training, pass training=False.",
        )
    elif training:
        # In `fit` the size of a batch is often unknown here: see `CodebookWatch`.
        if layer.trainable and waiting(layer) and _batch_size(layer, inputs):
            look_at_batch(layer, _batch_size(layer, inputs))
    # Models are often called once to build or try them; `None` in a graph is an export.
    elif training is False or (tf.executing_eagerly() and not first):
        look_at_codebook(layer)


def look_at_codebook(
    layer: keras.layers.Layer, log: Callable[[str], object] = warnings.warn
) -> None:
    """Warns if codes are used that have no vector yet.

    Args:
        layer: A built bottleneck.
        log: Function that takes the warning.
    """
    number = waiting(layer)
    if number and number == layer.num_codes:
        tell(
            layer,
            "empty",
            "is used before its codebook has seen any data: all its vectors are 0. "
            "First train it (calls with training=True, as `fit` makes them), load "
            "weights, or pass a Keras initializer as `initializer`.",
            log,
        )
    elif number:
        tell(
            layer,
            "waiting",
            f"has {number} of {layer.num_codes} codes without a vector: it has been "
            f"trained on fewer vectors than it has codes. Train it on more data, or "
            f"choose a smaller `num_codes`.",
            log,
        )


def look_at_batch(
    layer: keras.layers.Layer, size: int, log: Callable[[str], object] = warnings.warn
) -> None:
    """Warns if the first batch has fewer vectors than there are codes to place.

    Args:
        layer: A built bottleneck with codes that wait for data.
        size: Number of vectors of the batch per codebook.
        log: Function that takes the warning.
    """
    if size < layer.num_codes:
        tell(
            layer,
            "batch",
            f"starts its codebook from data, and a batch has {size} vectors for "
            f"{layer.num_codes} codes. The next batches place the remaining codes. To "
            f"start with all of them, use larger batches, a smaller `num_codes`, or a "
            f"Keras initializer.",
            log,
        )


def waiting(layer: keras.layers.Layer) -> int | None:
    """Returns how many codes have no vector yet, or None if that is not known."""
    if replicas.num_replicas() > 1 or "full" in _told.get(layer, ()):
        return None
    # Of the bottlenecks whose codes may wait for data: 0 marks those that do.
    parts = [getattr(x, "counts", None) for x in getattr(layer, "quantizers", [layer])]
    parts = [counts for counts in parts if counts is not None]
    if not parts:
        return None
    # While a graph is traced, variables have the values that they have outside.
    with tf.init_scope():
        found = [np.asarray(tf.convert_to_tensor(counts.value)) for counts in parts]
    number = int(np.max(np.sum(np.concatenate(found) == 0, axis=-1)))
    if not number:
        # Codes never lose their vectors, so there is no need to look again.
        _told.setdefault(layer, set()).add("full")
    return number


def _batch_size(layer, inputs):
    """Returns the number of pieces of vectors per codebook, or None if unknown."""
    lead = inputs.shape[:-1]
    if None in lead:
        return None
    pieces = math.prod(lead) * micro_batches.num_parts() * layer.groups.num_groups
    return pieces // layer.groups.num_codebooks
