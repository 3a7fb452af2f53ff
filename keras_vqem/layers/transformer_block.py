"""TransformerBlock: attention and a feed-forward layer, whole or step by step."""

import keras

from keras_vqem.layers.cached_attention import CachedAttention
from keras_vqem.layers.feed_forward import FeedForward
from keras_vqem.layers.local_attention import LocalAttention
from keras_vqem.layers.replica_dropout import ReplicaDropout


class TransformerBlock(keras.layers.Layer):
    """Pre-norm self-attention, attention to a memory if asked for, feed-forward.

    With `block_length` the self-attention is a `LocalAttention` of that length.
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        dropout,
        cross=False,
        block_length=None,
        **kwargs,
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

    def build(self, input_shape):
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

    def call(self, x, bias=None, memory=None, memory_bias=None, training=None):
        found = self.attention(self.norm(x), bias=bias)
        x = x + self.dropout(found, training=training)
        if self.cross is not None:
            found = self.cross(self.cross_norm(x), memory, memory_bias)
            x = x + self.dropout(found, training=training)
        found = self.feed_forward(self.last_norm(x))
        return x + self.dropout(found, training=training)

    def step(self, x, cache, memory=None, memory_bias=None):
        """One position: `x` [N, 1, D] after those in `cache` [N, t, 2 D].

        Args:
            memory: Keys and values of the memory, as `CachedAttention.split` gives.

        Returns:
            The outputs [N, 1, D], and the cache with this position added.
        """
        normed = self.norm(x)
        cache = self.attention.extend(cache, self.attention.keys_values(normed))
        x = x + self.attention.attend(normed, *self.attention.split(cache))
        if self.cross is not None:
            x = x + self.cross.attend(self.cross_norm(x), *memory, memory_bias)
        return x + self.feed_forward(self.last_norm(x)), cache
