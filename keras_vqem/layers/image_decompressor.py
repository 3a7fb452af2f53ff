"""ImageDecompressor: from a grid of vectors to features per pixel, as in the paper."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.image_block import ImageBlock


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageDecompressor(keras.layers.Layer):
    """Turns a grid of vectors into features of every pixel of a larger image.

    A dense layer, then residual blocks, then transposed convolutions of stride 2, each
    of which doubles height and width.

    Args:
        channels: Number of channels of the convolutions and of the output.
        num_decompress_steps: Number of transposed convolutions of stride 2.
        num_blocks: Number of residual blocks.
        kernel_size: Kernel size of the transposed convolutions.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[B, rows, columns, D]`.

    Returns:
        A tuple `(features, base)`:

        - `features`: `[B, H, W, channels]`, where `H` and `W` are
          `2 ** num_decompress_steps` times the numbers of rows and columns.
        - `base`: First guess of the pixels `[B, H, W, 3]`: mid-grey, which is 0,
          everywhere. `PatchDecompressor` makes a better guess.

    Example:

    >>> layer = keras_vqem.layers.ImageDecompressor(channels=16)
    >>> features, base = layer(np.zeros((1, 8, 8, 40), "float32"))
    >>> features.shape
    TensorShape([1, 32, 32, 16])
    """

    def __init__(
        self,
        channels: int = 512,
        num_decompress_steps: int = 2,
        num_blocks: int = 2,
        kernel_size: int = 5,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.channels = channels
        self.num_decompress_steps = num_decompress_steps
        self.num_blocks = num_blocks
        self.kernel_size = kernel_size

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        policy = self.dtype_policy
        self.dense = keras.layers.Dense(self.channels, name="dense", dtype=policy)
        self.dense.build(input_shape)
        shape = (None, None, None, self.channels)
        self.residuals, self.stages = [], []
        for i in range(self.num_blocks):
            block = ImageBlock(name=f"block_{i}", dtype=policy)
            block.build(shape)
            self.residuals.append(block)
        for i in range(self.num_decompress_steps):
            layer = keras.layers.Conv2DTranspose(
                self.channels,
                self.kernel_size,
                strides=2,
                padding="same",
                name=f"convolution_{i}",
                dtype=policy,
            )
            layer.build(shape)
            self.stages.append(layer)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = self.dense(inputs)
        for block in self.residuals:
            x = block(x)
        for stage in self.stages:
            x = stage(ops.relu(x))
        return ops.relu(x), ops.zeros((*ops.shape(x)[:-1], 3), dtype=x.dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "channels": self.channels,
            "num_decompress_steps": self.num_decompress_steps,
            "num_blocks": self.num_blocks,
            "kernel_size": self.kernel_size,
        }
