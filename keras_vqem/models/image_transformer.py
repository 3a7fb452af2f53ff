"""ImageTransformer: the autoregressive baseline, pixel by pixel."""

import keras
import numpy as np
from keras import ops

from keras_vqem.checks import integers
from keras_vqem.models.grid_transformer import GridTransformer


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageTransformer(GridTransformer):
    """Predicts the red, green and blue of each pixel in turn, 256 values each.

    Args:
        image_height, image_width: Size of the images in pixels.
        **kwargs: Arguments of `GridTransformer`, except its grid and symbols.

    Call arguments:
        inputs: A dict with `images`, uint8 [B, height, width, 3].

    Returns:
        Logits [B, height, width, 3, 256].

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

    def __init__(self, image_height, image_width, block_length=256, **kwargs):
        super().__init__(
            (image_height, image_width, 3), 256, block_length=block_length, **kwargs
        )

    def build(self, input_shape=None):
        super().build(input_shape)
        # Waves over the values: those that are close start with vectors that are.
        values = (np.arange(self.num_symbols) + 0.5) / self.num_symbols
        waves = np.cos(np.pi * values[:, None] * np.arange(1, self.vector_dim + 1))
        self.vectors.assign(np.tile(2**0.5 * waves, (self.grid[2], 1, 1)))

    def call(self, inputs, training=None):
        images = integers("images", inputs["images"], self.num_symbols - 1)
        return super().call({"symbols": images}, training=training)

    def nats(self, inputs, logits):
        return super().nats({"symbols": inputs["images"]}, logits)

    def sample(self, count, seed, temperature=1.0, prefix=None):
        return ops.cast(super().sample(count, seed, temperature, prefix), "uint8")

    def get_config(self):
        config = super().get_config()
        height, width, _ = config.pop("grid")
        del config["num_symbols"]
        return {**config, "image_height": height, "image_width": width}
