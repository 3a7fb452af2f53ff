"""ConvolutionBlock: residual convolutions over a padded sequence."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.replica_dropout import ReplicaDropout
from keras_vqem.layers.row_dense import RowDense


class ConvolutionBlock(keras.layers.Layer):
    """Residual convolutions of kernel size 3, `x + dropout(convolutions(x))`.

    Each convolution follows a layer normalisation and a ReLU, and padding is set to 0
    before it. A convolution is written as a dense layer over each position and its two
    neighbours. On short sequences that is one matrix product, and XLA on a CPU does not
    fall back to its slow general convolution.

    Args:
        dropout: Dropout rate after the last convolution.
        convolutions: Number of convolutions.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        x: Vectors `[B, T, D]`.
        mask: Floats `[B, T, 1]` in the dtype of `x`, 0 for padding and 1 elsewhere.
        training: Whether to apply dropout.

    Returns:
        Vectors `[B, T, D]`.
    """

    def __init__(self, dropout: float, convolutions: int = 2, **kwargs: Any):
        super().__init__(**kwargs)
        self.convolutions = convolutions
        self.supports_masking = True
        self.dropout = ReplicaDropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        width = input_shape[-1]
        self.norms, self.denses = [], []
        for i in range(self.convolutions):
            norm = keras.layers.LayerNormalization(
                epsilon=1e-6, name=f"norm_{i}", dtype=self.dtype_policy
            )
            dense = RowDense(width, name=f"dense_{i}", dtype=self.dtype_policy)
            norm.build(input_shape)
            dense.build((*input_shape[:-1], 3 * width))
            self.norms.append(norm)
            self.denses.append(dense)
        self.built = True

    def call(
        self, x: tf.Tensor, mask: tf.Tensor, training: bool | None = None
    ) -> tf.Tensor:
        y = x
        for norm, dense in zip(self.norms, self.denses, strict=True):
            # Padding is 0, like the positions beyond the ends of the sequence.
            y = ops.pad(ops.relu(norm(y)) * mask, [[0, 0], [1, 1], [0, 0]])
            y = dense(ops.concatenate([y[:, :-2], y[:, 1:-1], y[:, 2:]], axis=-1))
        return x + self.dropout(y, training=training)
