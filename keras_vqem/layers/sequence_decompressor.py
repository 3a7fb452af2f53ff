"""SequenceDecompressor: makes a sequence 2, 4, 8, ... times longer."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.convolution_block import ConvolutionBlock
from keras_vqem.layers.row_dense import RowDense


@keras.saving.register_keras_serializable(package="keras_vqem")
class SequenceDecompressor(keras.layers.Layer):
    """Doubles the length of a sequence several times.

    Each step applies residual convolutions, then turns each position into two. For
    that, a dense layer of size `2 D` gives two vectors side by side, which is a
    transposed convolution of kernel size and stride 2. Padding changes nothing: a
    sequence gives the same vectors whatever length it is padded to.

    Args:
        num_decompress_steps: Number of times the length is doubled; `n_c` in the paper.
        dropout: Dropout rate after the residual convolutions.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[B, T, D]`.
        mask: Booleans `[B, T]`, False for padding.
        training: Whether to apply dropout.

    Returns:
        Vectors `[B, T * 2 ** num_decompress_steps, D]`.

    Example:

    >>> layer = keras_vqem.layers.SequenceDecompressor(num_decompress_steps=3)
    >>> layer(np.ones((2, 2, 8), "float32")).shape
    TensorShape([2, 16, 8])
    """

    def __init__(self, num_decompress_steps: int, dropout: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_decompress_steps = num_decompress_steps
        self.dropout = dropout
        self.supports_masking = True

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        policy, width = self.dtype_policy, input_shape[-1]
        self.convolutions, self.doubles = [], []
        for i in range(self.num_decompress_steps):
            convolution = ConvolutionBlock(
                self.dropout, name=f"convolution_{i}", dtype=policy
            )
            double = RowDense(2 * width, name=f"double_{i}", dtype=policy)
            convolution.build(input_shape)
            double.build(input_shape)
            self.convolutions.append(convolution)
            self.doubles.append(double)
        self.built = True

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        x = inputs
        if mask is None:
            mask = ops.ones(ops.shape(x)[:2], dtype="bool")
        mask = ops.cast(mask, x.dtype)[..., None]
        for convolution, double in zip(self.convolutions, self.doubles, strict=True):
            x = convolution(x, mask, training=training)
            batch, length, width = ops.shape(x)
            x = ops.reshape(double(x), (batch, 2 * length, width))
            mask = ops.repeat(mask, 2, axis=1)
        return x

    def compute_mask(
        self, inputs: tf.Tensor, mask: tf.Tensor | None = None
    ) -> tf.Tensor | None:
        return (
            None
            if mask is None
            else ops.repeat(mask, 2**self.num_decompress_steps, axis=1)
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_decompress_steps": self.num_decompress_steps,
            "dropout": self.dropout,
        }
