"""LocalTransformer: a causal stack of blocks with local attention."""

from typing import Any

import keras
import tensorflow as tf

from keras_vqem.layers.transformer_stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_vqem")
class LocalTransformer(TransformerStack):
    """A causal stack of Transformer blocks with local attention, for long sequences.

    Each block has masked local self-attention and a feed-forward network, each after a
    layer normalisation; another layer normalisation follows the last block. For
    training, call the layer on whole sequences. To generate position by position, call
    `step`, which gives the same results.

    Args:
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads per block.
        intermediate_dim: Size of the hidden layer of the feed-forward networks.
        block_length: Number of positions per block of the attention; see
            `LocalAttention`.
        dropout: Dropout rate after each attention and feed-forward network.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[B, T, D]` that include a position signal.
        training: Whether to apply dropout.

    Returns:
        Normalised vectors `[B, T, D]`.

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
        **kwargs: Any,
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

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        x = inputs
        for block in self.blocks:
            x = block(x, training=training)
        return self.norm(x)

    def step(
        self, x: tf.Tensor, caches: list[tuple[tf.Tensor, tf.Tensor]]
    ) -> tuple[tf.Tensor, list[tuple[tf.Tensor, tf.Tensor]]]:
        """Computes the output of the next position.

        Args:
            x: Vectors `[N, 1, D]` of the position, including the position signal.
            caches: List of caches, from `empty_caches` or from the previous step.

        Returns:
            A tuple `(outputs, caches)`: normalised vectors `[N, 1, D]`, and the caches
            for the next step.
        """
        kept = []
        for block, cache in zip(self.blocks, caches, strict=True):
            x, cache = block.step(x, cache)
            kept.append(cache)
        return self.norm(x), kept

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "block_length": self.block_length}
