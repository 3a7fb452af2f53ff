"""FeedForward: the two dense layers of a Transformer block."""

from typing import Any

import keras
import tensorflow as tf

from keras_vqem.layers.row_dense import RowDense


@keras.saving.register_keras_serializable(package="keras_vqem")
class FeedForward(keras.layers.Layer):
    """The feed-forward network of a Transformer block.

    A dense layer with ReLU of size `intermediate_dim`, then a dense layer back to the
    size of the inputs. It acts on each position separately.

    Args:
        intermediate_dim: Size of the hidden layer.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[B, T, D]`.

    Returns:
        Vectors `[B, T, D]`.

    Example:

    >>> keras_vqem.layers.FeedForward(intermediate_dim=32)(np.ones((2, 3, 8))).shape
    TensorShape([2, 3, 8])
    """

    def __init__(self, intermediate_dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.supports_masking = True

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        width = input_shape[-1]
        self.widen = RowDense(
            self.intermediate_dim,
            activation="relu",
            name="widen",
            dtype=self.dtype_policy,
        )
        self.widen.build((None, None, width))
        self.narrow = RowDense(width, name="narrow", dtype=self.dtype_policy)
        self.narrow.build((None, None, self.intermediate_dim))
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.narrow(self.widen(inputs))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "intermediate_dim": self.intermediate_dim}
