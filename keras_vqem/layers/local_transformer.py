"""LocalTransformer: a causal stack for long sequences, whole or step by step."""

import keras
import tensorflow as tf

from keras_vqem.layers.transformer_stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_vqem")
class LocalTransformer(TransformerStack):
    """Blocks of masked local self-attention and a feed-forward layer.

    Called on whole sequences it trains; `step` goes on position by position, with the
    same results.

    Args:
        num_layers: How many Transformer blocks.
        num_heads: Of the attention.
        intermediate_dim: Of the feed-forward layers.
        block_length: Positions in a block of the attention; see `LocalAttention`.
        dropout: After each attention and feed-forward layer.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: [B, T, D], positions added.

    Returns:
        [B, T, D], normalised.

    Example:

    >>> layer = keras_vqem.layers.LocalTransformer(
    ...     2, num_heads=2, intermediate_dim=16, block_length=4)
    >>> x = np.random.default_rng(0).normal(size=(1, 11, 8)).astype("float32")
    >>> whole, caches = layer(x), layer.empty_caches(1)
    >>> for t in range(11):
    ...     last, caches = layer.step(x[:, t : t + 1], caches)
    >>> bool(np.allclose(whole[:, 10:], last, atol=1e-5))
    True
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        block_length: int,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(
            num_layers,
            num_heads,
            intermediate_dim,
            dropout,
            block={"block_length": block_length},
            **kwargs,
        )
        self.block_length = block_length

    def call(self, inputs, training=None):
        x = inputs
        for block in self.blocks:
            x = block(x, training=training)
        return self.norm(x)

    def step(
        self, x: tf.Tensor, caches: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """One position: `x` [N, 1, D] after those in `caches`.

        Returns:
            The normalised outputs [N, 1, D], and the caches for the next step.
        """
        kept = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block.step(x, cache)
            kept.append(cache)
        return self.norm(x), kept

    def get_config(self):
        return {**super().get_config(), "block_length": self.block_length}
