"""TransformerEncoder: a stack of pre-norm self-attention blocks."""

import keras

from keras_vqem.layers.cached_attention import padding_bias
from keras_vqem.layers.transformer_stack import TransformerStack


@keras.saving.register_keras_serializable(package="keras_vqem")
class TransformerEncoder(TransformerStack):
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

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(num_layers, num_heads, intermediate_dim, dropout, **kwargs)

    def call(self, inputs, mask=None, training=None):
        x, bias = inputs, padding_bias(mask)
        for block in self.blocks:
            x = block(x, bias, training=training)
        return self.norm(x)
