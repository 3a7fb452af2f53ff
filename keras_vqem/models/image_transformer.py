"""ImageTransformer: the autoregressive baseline, pixel by pixel."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.models.grid_model import GridModel


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageTransformer(GridModel):
    """Predicts the red, green and blue of each pixel in turn, 256 values each.

    Args:
        image_height, image_width: Size of the images in pixels.
        hidden_dim: Width of embeddings and hidden states.
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads in every block.
        intermediate_dim: Width of the feed-forward layers.
        block_length: Number of positions in a block of the local attention.
        dropout: Dropout rate after embeddings, attentions and feed-forward layers.
        vector_dim: Size of a value's vector.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: A dict with `images`, uint8 [B, height, width, 3].

    Returns:
        Logits [B, height, width, 3, 256].

    Metrics: `bits_per_dim`, bits per dimension.

    Example:

    >>> model = keras_vqem.models.ImageTransformer(
    ...     4, 4, hidden_dim=8, num_layers=1, num_heads=2, intermediate_dim=16,
    ...     block_length=8)
    >>> model.compile()
    >>> images = np.zeros((4, 4, 4, 3), "uint8")
    >>> history = model.fit({"images": images}, batch_size=2, verbose=0)
    >>> model.sample(2, seed=(0, 1)).shape
    TensorShape([2, 4, 4, 3])

    References:
        - Parmar et al., 2018. Image Transformer. arXiv:1802.05751.
    """

    input_name = "images"
    symbol_dtype = "uint8"
    metric_name = "bits_per_dim"

    def __init__(
        self,
        image_height: int,
        image_width: int,
        hidden_dim: int = 128,
        num_layers: int = 6,
        num_heads: int = 4,
        intermediate_dim: int = 512,
        block_length: int = 256,
        dropout: float = 0.0,
        vector_dim: int = 16,
        **kwargs,
    ):
        super().__init__(
            (image_height, image_width, 3),
            256,
            hidden_dim,
            num_layers,
            num_heads,
            intermediate_dim,
            block_length,
            dropout,
            vector_dim,
            **kwargs,
        )

    def build(self, input_shape=None):
        super().build(input_shape)
        # Waves over the values: those that are close start with vectors that are.
        values = (np.arange(self.num_symbols) + 0.5) / self.num_symbols
        waves = np.cos(np.pi * values[:, None] * np.arange(1, self.vector_dim + 1))
        self.vectors.assign(np.tile(2**0.5 * waves, (self.grid[2], 1, 1)))

    def sample(
        self,
        count: int,
        seed: ArrayLike,
        temperature: float = 1.0,
        prefix: ArrayLike | None = None,
    ) -> tf.Tensor:
        return ops.cast(super().sample(count, seed, temperature, prefix), "uint8")

    def get_config(self):
        height, width, _ = self.grid
        return {
            **super().get_config(),
            "image_height": height,
            "image_width": width,
        }
