"""TransformerDecoder: blocks that also attend to a memory, whole or step by step."""

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers.cached_attention import causal_bias, padding_bias
from keras_vqem.layers.transformer_stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_vqem")
class TransformerDecoder(TransformerStack):
    """A stack of blocks with attention to themselves and to a memory.

    Called on whole sequences it trains, or decodes all positions at once. To decode
    position by position, take `memories(memory)` and `empty_caches(N)` once, then
    call `step` for each position: the result is the same, without computing what came
    before again.

    Args:
        num_layers: How many blocks.
        num_heads: Of the attention.
        intermediate_dim: Of the feed-forward layers.
        dropout: After each attention and feed-forward layer.
        causal: Whether positions see only themselves and those before.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: [B, T, D], positions added.
        memory: [B, S, D].
        mask: Booleans [B, T], False for padding; not needed in a causal decoder, where
            padding comes last and nothing sees it.
        memory_mask: Booleans [B, S].

    Returns:
        [B, T, D], normalised.

    Example:

    >>> layer = keras_vqem.layers.TransformerDecoder(
    ...     num_layers=2, num_heads=2, intermediate_dim=16)
    >>> x = np.random.default_rng(0).normal(size=(1, 3, 8)).astype("float32")
    >>> whole = layer(x, x)
    >>> memories, caches = layer.memories(x), layer.empty_caches(1)
    >>> for t in range(3):
    ...     last, caches = layer.step(x[:, t : t + 1], caches, memories)
    >>> bool(np.allclose(whole[:, 2:], last, atol=1e-5))
    True
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.0,
        causal: bool = True,
        **kwargs,
    ):
        super().__init__(
            num_layers,
            num_heads,
            intermediate_dim,
            dropout,
            block={"cross": True},
            **kwargs,
        )
        self.causal = causal

    def call(self, inputs, memory, mask=None, memory_mask=None, training=None):
        x = inputs
        bias = causal_bias(ops.shape(x)[1]) if self.causal else padding_bias(mask)
        memory_bias = padding_bias(memory_mask)
        for block in self.blocks:
            x = block(x, bias, memory, memory_bias, training=training)
        return self.norm(x)

    def memories(self, memory: ArrayLike) -> list:
        """The keys and values of the memory, for each block."""
        return [
            block.cross.split(block.cross.keys_values(memory)) for block in self.blocks
        ]

    def step(
        self,
        x: tf.Tensor,
        caches: list[tf.Tensor],
        memories: list,
        memory_mask: ArrayLike | None = None,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """One position: `x` [N, 1, D] after those in `caches`.

        Args:
            x: [N, 1, D], position added.
            caches: From `empty_caches`, or the step before.
            memories: From `memories`.
            memory_mask: Booleans [N, S].

        Returns:
            The normalised outputs [N, 1, D], and the caches for the next step.
        """
        bias, kept = padding_bias(memory_mask), []
        for block, cache, memory in zip(self.blocks, caches, memories, strict=True):
            x, cache = block.step(x, cache, memory, bias)
            kept.append(cache)
        return self.norm(x), kept

    def get_config(self):
        return {**super().get_config(), "causal": self.causal}
