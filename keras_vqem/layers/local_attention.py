"""LocalAttention: causal self-attention within a block and the block before it."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_vqem.layers.cached_attention import NEVER, CachedAttention, at_least_float32


@keras.saving.register_keras_serializable(package="keras_vqem")
class LocalAttention(CachedAttention):
    """Causal self-attention for long sequences: masked local 1-D attention.

    The sequence is cut into blocks. A position attends to itself, to the earlier
    positions of its block, and to the whole previous block: to between `block_length`
    and `2 * block_length` positions, except near the start. Time and memory grow
    linearly with the length of the sequence, not with its square.

    Args:
        num_heads: Number of attention heads. It must divide `D`, the size of the
            vectors.
        block_length: Number of positions per block.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        query: Vectors `[B, T, D]`. Padding must come last.
        memory, bias: Must be None. They are here because `CachedAttention` has them;
            local attention is self-attention and needs no bias.

    Returns:
        Vectors `[B, T, D]`.

    Example:

    >>> layer = keras_vqem.layers.LocalAttention(num_heads=2, block_length=4)
    >>> layer(np.ones((1, 10, 8), "float32")).shape
    TensorShape([1, 10, 8])

    References:
        - Parmar et al., 2018. Image Transformer. arXiv:1802.05751.
    """

    def __init__(self, num_heads: int, block_length: int, **kwargs: Any):
        super().__init__(num_heads, **kwargs)
        if block_length < 1:
            raise ValueError(
                f"`block_length` must be at least 1, received {block_length!r}. Pass "
                f"the number of positions per block."
            )
        self.block_length = block_length

    def call(
        self,
        query: tf.Tensor,
        memory: tf.Tensor | None = None,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        if memory is not None or bias is not None:
            raise ValueError(
                "LocalAttention attends only to `query` itself, but it received "
                "`memory` or `bias`. Leave them out, or use CachedAttention."
            )
        batch, length, width = ops.shape(query)
        scale = (width // self.num_heads) ** -0.5
        block_length = self.block_length
        if isinstance(length, int):
            block_length = min(block_length, length)
        # Padding at the end changes nothing: no earlier position attends to it.
        padded = ops.pad(query, [[0, 0], [0, -length % block_length], [0, 0]])
        keys, values = ops.split(self.to_keys_values(padded), 2, axis=-1)
        query = self._blocks(self.to_query(padded) * scale, block_length)
        keys, values = (self._with_before(x, block_length) for x in (keys, values))
        scores = ops.matmul(query, ops.transpose(keys, (0, 1, 2, 4, 3)))
        scores = at_least_float32(scores)
        bias = _bias(block_length, ops.shape(scores)[1])
        scores = scores + ops.cast(bias, scores.dtype)
        weights = ops.cast(tf.nn.softmax(scores, axis=-1), values.dtype)
        found = ops.transpose(ops.matmul(weights, values), (0, 1, 3, 2, 4))
        found = ops.reshape(found, ops.shape(padded))[:, :length]
        return self.to_output(found)

    def _blocks(self, x, block_length):
        """Returns [B, T, D] as [B, T / block, heads, block, D / heads]."""
        batch, length, width = ops.shape(x)
        shape = (
            batch,
            length // block_length,
            block_length,
            self.num_heads,
            width // self.num_heads,
        )
        return ops.transpose(ops.reshape(x, shape), (0, 1, 3, 2, 4))

    def _with_before(self, x, block_length):
        """Returns each block after its predecessor, [B, blocks, heads, 2 block, d]."""
        x = self._blocks(x, block_length)
        before = ops.pad(x[:, :-1], [[0, 0], [1, 0], [0, 0], [0, 0], [0, 0]])
        return ops.concatenate([before, x], axis=3)

    def extend(
        self,
        cache: tuple[tf.Tensor, tf.Tensor],
        keys_values: tuple[tf.Tensor, tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # A cache of two full blocks drops the first: the next position starts a third.
        full = ops.shape(cache[0])[2] >= 2 * self.block_length
        first = ops.where(full, self.block_length, 0)
        return super().extend(tuple(x[:, :, first:] for x in cache), keys_values)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "block_length": self.block_length}


def _bias(block_length, blocks):
    """Returns the bias of the scores, [blocks, 1, block, 2 block]."""
    here, there = (
        np.arange(block_length)[:, None],
        np.arange(2 * block_length)[None] - block_length,
    )
    seen = ops.convert_to_tensor((there <= here)[None])
    # The first block has no predecessor.
    first = (ops.arange(blocks) == 0)[:, None, None]
    seen = seen & ~(first & ops.convert_to_tensor((there < 0)[None]))
    return ops.where(seen, 0.0, NEVER)[:, None]
