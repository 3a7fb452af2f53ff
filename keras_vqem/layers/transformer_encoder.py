"""TransformerEncoder: a stack of blocks with self-attention."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.cached_attention import causal_bias, padding_bias
from keras_vqem.layers.transformer_stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_vqem")
class TransformerEncoder(TransformerStack):
    """A stack of Transformer blocks with self-attention.

    Each block has self-attention and a feed-forward network, each after a layer
    normalisation; another layer normalisation follows the last block.

    Args:
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads per block.
        intermediate_dim: Size of the hidden layer of the feed-forward networks.
        dropout: Dropout rate after each attention and feed-forward network.
        causal: Whether a position attends only to itself and to earlier positions.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[B, T, D]` that include a position signal.
        mask: Booleans `[B, T]`, False for padding. A causal encoder does not use it:
            padding comes last, where no other position attends to it.
        training: Whether to apply dropout.

    Returns:
        Normalised vectors `[B, T, D]`.

    Example:

    >>> layer = keras_vqem.layers.TransformerEncoder(
    ...     num_layers=2, num_heads=2, intermediate_dim=16)
    >>> layer(np.ones((2, 5, 8), "float32")).shape
    TensorShape([2, 5, 8])
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.0,
        causal: bool = False,
        **kwargs: Any,
    ):
        super().__init__(num_layers, num_heads, intermediate_dim, dropout, **kwargs)
        self.causal = causal

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        x = inputs
        bias = causal_bias(ops.shape(x)[1]) if self.causal else padding_bias(mask)
        for block in self.blocks:
            x = block(x, bias, training=training)
        return self.norm(x)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "causal": self.causal}
