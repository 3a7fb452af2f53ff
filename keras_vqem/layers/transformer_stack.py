"""TransformerStack: what the stacks of Transformer blocks share."""

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.transformer_block import TransformerBlock


class TransformerStack(keras.layers.Layer):
    """Blocks and a last normalisation; subclasses say what the blocks attend to.

    Args:
        block: Arguments of `TransformerBlock` in which stacks differ.
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float,
        block: dict | None = None,
        **kwargs,
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

    def build(self, input_shape):
        for layer in [*self.blocks, self.norm]:
            layer.build(input_shape)
        self._width = input_shape[-1]
        self.built = True

    def empty_caches(self, rows: int | tf.Tensor) -> list[tf.Tensor]:
        """A cache [rows, 0, 2 D] for each block."""
        return [
            ops.zeros((rows, 0, 2 * self._width), dtype=self.compute_dtype)
            for _ in self.blocks
        ]

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
        }
