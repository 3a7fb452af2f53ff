"""TransformerEncoder: a stack of pre-norm self-attention blocks."""

import keras

from keras_vqem.layers.cached_attention import padding_bias
from keras_vqem.layers.transformer_block import TransformerBlock


@keras.saving.register_keras_serializable(package="keras_vqem")
class TransformerEncoder(keras.layers.Layer):
    """Blocks of self-attention and a feed-forward layer, each behind a normalisation.

    Args:
        depth: How many blocks.
        heads: Of the attention.
        filter_width: Of the feed-forward layers.
        dropout: After each attention and feed-forward layer.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: [B, T, D], positions added.
        mask: Booleans [B, T], False for padding.

    Returns:
        [B, T, D], normalised.

    Example:

    >>> layer = keras_vqem.layers.TransformerEncoder(2, heads=2, filter_width=16)
    >>> layer(np.ones((2, 5, 8), "float32")).shape
    TensorShape([2, 5, 8])
    """

    def __init__(self, depth, heads, filter_width, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        self.depth = depth
        self.heads = heads
        self.filter_width = filter_width
        self.dropout = dropout
        self.supports_masking = True
        self.blocks = [
            TransformerBlock(
                heads,
                filter_width,
                dropout,
                **self._block_options(),
                name=f"block_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(depth)
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
            "depth": self.depth,
            "heads": self.heads,
            "filter_width": self.filter_width,
            "dropout": self.dropout,
        }
