"""Endpoints of exported grid models, and what other endpoints that draw take."""

from typing import TYPE_CHECKING

import tensorflow as tf
from keras import ops

if TYPE_CHECKING:
    from keras_vqem.models.grid_model import GridModel

# One seed per row, so that a server can batch requests.
SEED = tf.TensorSpec([None, 2], "int32", name="seed")


def labels(model: "GridModel") -> list[tf.TensorSpec]:
    """Returns the last input of endpoints of a model with classes, or nothing."""
    if model.num_classes is None:
        return []
    return [tf.TensorSpec([None], "int32", name="labels")]


def given(model: "GridModel", labels: tf.Tensor | None) -> dict[str, tf.Tensor]:
    """Returns the labels of a request by name: a class that does not exist is clipped.

    Otherwise it would fail the other rows of its batch.
    """
    if labels is None:
        return {}
    return {"labels": ops.clip(labels, 0, model.num_classes - 1)}


def of_symbols(
    model: "GridModel", temperature: float, top_p: float | None
) -> dict[str, tuple]:
    """Returns the endpoints of a `GridModel`; see its `export`."""
    name = model.input_name

    def serve(symbols, labels=None):
        # Nor does a symbol that does not exist.
        symbols = ops.clip(symbols, 0, model.num_symbols - 1)
        return {"logits": model({name: symbols, **given(model, labels)})}

    def sample(seed, labels=None):
        count, options = ops.shape(seed)[0], given(model, labels)
        return {name: model.sample(count, seed, temperature, top_p=top_p, **options)}

    symbols = tf.TensorSpec([None, *model.grid], model.symbol_dtype, name=name)
    return {
        "serve": (serve, [symbols, *labels(model)]),
        "sample": (sample, [SEED, *labels(model)]),
    }
