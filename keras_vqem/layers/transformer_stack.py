"""TransformerStack: base class of the stacks of Transformer blocks."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.transformer_block import TransformerBlock


class TransformerStack(keras.layers.Layer):
    """Transformer blocks and a final layer normalisation.

    Subclasses define `call`, and with it what the blocks attend to.

    Args:
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads in each attention.
        intermediate_dim: Size of the hidden layer of the feed-forward networks.
        dropout: Dropout rate after each attention and feed-forward network.
        block: Dict of further arguments of `TransformerBlock`.
        **kwargs: Other arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float,
        block: dict | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.supports_masking = True
        self.blocks = [
            TransformerBlock(
                num_heads,
                intermediate_dim,
                dropout,
                **(block or {}),
                name=f"block_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(num_layers)
        ]
        self.norm = keras.layers.LayerNormalization(
            epsilon=1e-6, name="norm", dtype=self.dtype_policy
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        for layer in [*self.blocks, self.norm]:
            layer.build(input_shape)
        self._width = input_shape[-1]
        self.built = True

    def empty_caches(
        self, rows: int | tf.Tensor, length: int | tf.Tensor = 0
    ) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Returns the caches to start decoding with.

        Args:
            rows: Number of sequences, an integer or a scalar tensor.
            length: Number of positions for which there is room, for steps that are
                given their `position`. 0 for caches that grow.

        Returns:
            List of tuples of keys and values, zeros
            `[rows, num_heads, length, D / num_heads]`, with one tuple per block.
        """
        shape = (rows, self.num_heads, length, self._width // self.num_heads)
        empty = ops.zeros(shape, dtype=self.compute_dtype)
        return [(empty, empty) for _ in self.blocks]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
        }
