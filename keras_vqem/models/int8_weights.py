"""Int8Weights: the matrices of a model in int8, for an export of a quarter the size."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Layers, their matrices, and the axis over which one channel extends: each output of
# a dense layer has a scale, and each id of an embedding, also where it makes logits.
MATRICES = (
    (keras.layers.Dense, "kernel", 0),
    (keras.layers.Embedding, "embeddings", 1),
)


class Int8Weights:
    """The matrices of dense and embedding layers in int8, and graphs that use them.

    Each matrix is stored as int8 and a float32 scale per channel: the largest
    magnitude of the channel divided by 127. An entry is off by at most half a scale.
    Biases, normalisation and codebooks stay as they are.

    The graph multiplies both at the start of each call, before any loop, and computes
    in float32 with the result. So this saves space on disk and on the way to a server.
    It saves neither time nor memory during a call.

    Args:
        *models: Built models in float32. They stay as they are.

    Example:

    >>> model = keras.Sequential([keras.layers.Dense(2, use_bias=False)])
    >>> model.build((None, 3))
    >>> model.set_weights([np.array([[1.0, 0.0], [-0.25, 0.0], [0.02, 4.0]])])
    >>> rounded = Int8Weights(model).wrap(model)
    >>> rounded(np.eye(3)).numpy().round(3)
    array([[ 1.   ,  0.   ],
           [-0.252,  0.   ],
           [ 0.024,  4.   ]], dtype=float32)
    """

    def __init__(self, *models: keras.Model):
        self._stored = [
            (matrix, *(tf.Variable(part, trainable=False) for part in parts))
            for model in models
            for matrix, axis in _matrices(model)
            for parts in [quantized(matrix.numpy(), axis)]
        ]

    def wrap(self, function: Callable) -> Callable:
        """Returns a function that computes as another, with the rounded matrices.

        Args:
            function: Function that calls the models, in Python or in a graph.
        """

        def rounded(*inputs: Any):
            mapping = [
                (matrix, tf.cast(numbers, "float32") * scales)
                for matrix, numbers, scales in self._stored
            ]
            with keras.StatelessScope(state_mapping=mapping):
                return function(*inputs)

        return rounded


def quantized(matrix: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Rounds a matrix to int8 with a scale per channel.

    Args:
        matrix: Floats `[M, N]`.
        axis: Axis over which one channel extends.

    Returns:
        A tuple `(numbers, scales)`: int8 `[M, N]` from -127 to 127, and float32
        `[1, N]` or `[M, 1]`. Their product is the rounded matrix.
    """
    matrix = np.asarray(matrix, "float32")
    scales = np.abs(matrix).max(axis=axis, keepdims=True) / np.float32(127)
    scales = np.where(scales > 0, scales, np.float32(1))  # A channel of zeros.
    return np.round(matrix / scales).clip(-127, 127).astype("int8"), scales


def _matrices(model) -> Iterator[tuple[keras.Variable, int]]:
    for layer in model._flatten_layers():
        for kind, name, axis in MATRICES:
            if isinstance(layer, kind):
                yield getattr(layer, name), axis
