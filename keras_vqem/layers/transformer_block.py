"""TransformerBlock: attention and a feed-forward network."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.cached_attention import CachedAttention
from keras_vqem.layers.feed_forward import FeedForward
from keras_vqem.layers.local_attention import LocalAttention
from keras_vqem.layers.replica_dropout import ReplicaDropout


class TransformerBlock(keras.layers.Layer):
    """Self-attention, optional cross-attention to a memory, and a feed-forward network.

    Each part follows a layer normalisation (pre-norm), and its output goes through
    dropout before it is added to its input.

    Args:
        num_heads: Number of attention heads.
        intermediate_dim: Size of the hidden layer of the feed-forward network.
        dropout: Dropout rate after each attention and after the feed-forward network.
        cross: Whether the block attends to a memory.
        block_length: Number of positions per block of local self-attention. None for
            ordinary self-attention.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        x: Vectors `[B, T, D]`.
        bias: Bias of the scores of the self-attention, or None.
        memory: Vectors to attend to, `[B, S, D]`; used only with `cross=True`.
        memory_bias: Bias of the scores of the cross-attention, or None.
        training: Whether to apply dropout.

    Returns:
        Vectors `[B, T, D]`.
    """

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        dropout: float,
        cross: bool = False,
        block_length: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        policy = self.dtype_policy

        def norm(name):
            return keras.layers.LayerNormalization(
                epsilon=1e-6, name=name, dtype=policy
            )

        self.norm = norm("norm")
        settings = {"name": "attention", "dtype": policy}
        self.attention = (
            CachedAttention(num_heads, **settings)
            if block_length is None
            else LocalAttention(num_heads, block_length, **settings)
        )
        self.cross_norm = norm("cross_norm") if cross else None
        self.cross = (
            CachedAttention(num_heads, name="cross", dtype=policy) if cross else None
        )
        self.last_norm = norm("last_norm")
        self.feed_forward = FeedForward(
            intermediate_dim, name="feed_forward", dtype=policy
        )
        self.dropout = ReplicaDropout(dropout, dtype=policy)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        for layer in (
            self.norm,
            self.attention,
            self.cross_norm,
            self.cross,
            self.last_norm,
            self.feed_forward,
        ):
            if layer is not None:
                layer.build(input_shape)
        self.built = True

    def call(
        self,
        x: tf.Tensor,
        bias: tf.Tensor | None = None,
        memory: tf.Tensor | None = None,
        memory_bias: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        found = self.attention(self.norm(x), bias=bias)
        x = x + self.dropout(found, training=training)
        if self.cross is not None:
            found = self.cross(self.cross_norm(x), memory, memory_bias)
            x = x + self.dropout(found, training=training)
        found = self.feed_forward(self.last_norm(x))
        return x + self.dropout(found, training=training)

    def step(
        self,
        x: tf.Tensor,
        cache: tuple[tf.Tensor, tf.Tensor],
        memory: tuple[tf.Tensor, tf.Tensor] | None = None,
        memory_bias: tf.Tensor | None = None,
        num_beams: int = 1,
        position: int | tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Computes the output of the next position.

        Args:
            x: Vectors `[N, 1, D]` of the position.
            cache: Keys and values of the earlier positions.
            memory: Keys and values of the memory, from `CachedAttention.keys_values`;
                used only with `cross=True`.
            memory_bias: Bias of the scores of the cross-attention, or None.
            num_beams: Number of adjacent rows of `x` for each row of the memory.
            position: Place of the position in a cache of fixed length. None appends it
                to the cache.

        Returns:
            A tuple `(outputs, cache)`: vectors `[N, 1, D]`, and the cache with this
            position added.
        """
        normed = self.norm(x)
        own, bias = self.attention.keys_values(normed), None
        if position is None:
            cache = self.attention.extend(cache, own)
        else:
            cache, bias = self.attention.replace(cache, own, position)
        x = x + self.attention.attend(normed, *cache, bias)
        if self.cross is not None:
            # Beams attend to their memory side by side, as if they were positions.
            query = ops.reshape(self.cross_norm(x), (-1, num_beams, x.shape[-1]))
            found = self.cross.attend(query, *memory, memory_bias)
            x = x + ops.reshape(found, (-1, 1, x.shape[-1]))
        return x + self.feed_forward(self.last_norm(x)), cache
