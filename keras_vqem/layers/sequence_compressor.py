"""SequenceCompressor: makes a sequence 2, 4, 8, ... times shorter."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.cached_attention import CachedAttention, padding_bias
from keras_vqem.layers.convolution_block import ConvolutionBlock
from keras_vqem.layers.row_dense import RowDense


@keras.saving.register_keras_serializable(package="keras_vqem")
class SequenceCompressor(keras.layers.Layer):
    """Halves the length of a sequence several times.

    Each step applies residual convolutions, merges each pair of positions into one with
    a dense layer, and normalises the result. A codebook therefore finds the output
    vectors on the same scale throughout training. Padding changes nothing: a sequence
    gives the same vectors whatever length it is padded to.

    Args:
        num_compress_steps: Number of times the length is halved; `n_c` in the paper.
        dropout: Dropout rate after the residual convolutions.
        num_heads: Number of heads of an attention to a memory, which comes before the
            first step. None for no such attention.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[B, T, D]`. `T` must be a multiple of
            `2 ** num_compress_steps`.
        mask: Booleans `[B, T]`, False for padding. Padding must come last.
        memory: Vectors to attend to, `[B, S, D]`; used only with `num_heads`.
        memory_mask: Booleans `[B, S]`, False for padding of the memory.
        training: Whether to apply dropout.

    Returns:
        Vectors `[B, T / 2 ** num_compress_steps, D]`.

    Example:

    >>> layer = keras_vqem.layers.SequenceCompressor(num_compress_steps=3)
    >>> layer(np.ones((2, 16, 8), "float32")).shape
    TensorShape([2, 2, 8])
    """

    def __init__(
        self,
        num_compress_steps: int,
        dropout: float = 0.0,
        num_heads: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_compress_steps = num_compress_steps
        self.dropout = dropout
        self.num_heads = num_heads
        self.supports_masking = True

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        policy, width = self.dtype_policy, input_shape[-1]

        def made(layer, shape=input_shape):
            layer.build(shape)
            return layer

        def norm(name):
            return made(
                keras.layers.LayerNormalization(epsilon=1e-6, name=name, dtype=policy)
            )

        steps = range(self.num_compress_steps)
        self.convolutions = [
            made(ConvolutionBlock(self.dropout, name=f"convolution_{i}", dtype=policy))
            for i in steps
        ]
        self.halves = [
            made(
                RowDense(width, name=f"halve_{i}", dtype=policy),
                (*input_shape[:-1], 2 * width),
            )
            for i in steps
        ]
        self.norms = [norm(f"norm_{i}") for i in steps]
        if self.num_heads is not None:
            self.attention_norm = norm("attention_norm")
            self.attention = made(
                CachedAttention(self.num_heads, name="attention", dtype=policy)
            )
        self.built = True

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        memory: tf.Tensor | None = None,
        memory_mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        x = inputs
        if mask is None:
            mask = ops.ones(ops.shape(x)[:2], dtype="bool")
        mask = ops.cast(mask, x.dtype)[..., None]
        if self.num_heads is not None:
            if memory is None:
                raise ValueError(
                    f"This layer attends to a memory (num_heads={self.num_heads}), "
                    f"but received none. Call it with `memory`, or create it without "
                    f"`num_heads`."
                )
            found = self.attention(
                self.attention_norm(x), memory, padding_bias(memory_mask)
            )
            x = x + found
        for convolution, halve, norm in zip(
            self.convolutions, self.halves, self.norms, strict=True
        ):
            x = convolution(x, mask, training=training) * mask
            batch, length, width = ops.shape(x)
            x = norm(halve(ops.reshape(x, (batch, length // 2, 2 * width))))
            # A pair is padding if its first position is, because padding comes last.
            mask = mask[:, ::2]
        return x

    def compute_mask(
        self, inputs: tf.Tensor, mask: tf.Tensor | None = None
    ) -> tf.Tensor | None:
        return None if mask is None else mask[:, :: 2**self.num_compress_steps]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_compress_steps": self.num_compress_steps,
            "dropout": self.dropout,
            "num_heads": self.num_heads,
        }
