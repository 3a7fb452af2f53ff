"""ImageTransformer: the autoregressive baseline, pixel by pixel."""

from typing import Any

import keras
import numpy as np

from keras_vqem.models.grid_model import GridModel


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageTransformer(GridModel):
    """Predicts the red, green and blue value of each pixel in turn.

    Each of the three has 256 values. A prediction depends on the values before it as
    in `GridTransformer`.

    Args:
        image_height: Height of the images in pixels.
        image_width: Width of the images in pixels.
        hidden_dim: Size of embeddings and hidden states.
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        block_length: Number of positions per block of the local attention.
        dropout: Dropout rate after embeddings, attention and feed-forward layers.
        vector_dim: Size of a value's vector.
        context: Values whose vectors a position sees directly, besides what attention
            brings: `"neighbours"`, or `"previous"`, the one before it alone.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: Dict with `images`, uint8 `[B, image_height, image_width, 3]`.

    Returns:
        Logits `[B, image_height, image_width, 3, 256]`.

    Metrics:
        - `bits_per_dim`: Cross entropy in bits per dimension.

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
        context: str = "neighbours",
        **kwargs: Any,
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
            context,
            **kwargs,
        )

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        # Vectors start as waves over the values, so similar values have similar ones.
        values = (np.arange(self.num_symbols) + 0.5) / self.num_symbols
        waves = np.cos(np.pi * values[:, None] * np.arange(1, self.vector_dim + 1))
        self.vectors.assign(np.tile(2**0.5 * waves, (self.grid[2], 1, 1)))

    def get_config(self) -> dict[str, Any]:
        height, width, _ = self.grid
        return {
            **super().get_config(),
            "image_height": height,
            "image_width": width,
        }
