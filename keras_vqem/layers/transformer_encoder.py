"""TransformerEncoder: a stack of pre-norm self-attention blocks."""

import keras

from keras_vqem.layers.cached_attention import padding_bias
from keras_vqem.layers.transformer_block import TransformerBlock


@keras.saving.register_keras_serializable(package="keras_vqem")
class TransformerEncoder(keras.layers.Layer):
    """Blocks of self-attention and a feed-forward layer, each behind a normalisation.

    Args:
        num_layers: How many blocks.
        num_heads: Of the attention.
        intermediate_dim: Of the feed-forward layers.
        dropout: After each attention and feed-forward layer.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: [B, T, D], positions added.
        mask: Booleans [B, T], False for padding.

    Returns:
        [B, T, D], normalised.

    Example:

    >>> layer = keras_vqem.layers.TransformerEncoder(
    ...     num_layers=2, num_heads=2, intermediate_dim=16)
    >>> layer(np.ones((2, 5, 8), "float32")).shape
    TensorShape([2, 5, 8])
    """

    def __init__(self, num_layers, num_heads, intermediate_dim, dropout=0.0, **kwargs):
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
                **self._block_options(),
                name=f"block_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(num_layers)
        ]
        self.norm = keras.layers.LayerNormalization(
            epsilon=1e-6, name="norm", dtype=self.dtype_policy
        )

    def _block_options(self):
        """Of `TransformerBlock`, in which subclasses differ."""
        return {}

    def build(self, input_shape):
        for layer in [*self.blocks, self.norm]:
            layer.build(input_shape)
        self.built = True

    def call(self, inputs, mask=None, training=None):
        x, bias = inputs, padding_bias(mask)
        for block in self.blocks:
            x = block(x, bias, training=training)
        return self.norm(x)

    def get_config(self):
        return {
            **super().get_config(),
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
        }
