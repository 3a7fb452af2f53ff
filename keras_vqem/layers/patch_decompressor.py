"""PatchDecompressor: from vectors to patches, and to features per pixel."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.image_block import ImageBlock
from keras_vqem.layers.patch_compressor import from_patches


@keras.saving.register_keras_serializable(package="keras_vqem")
class PatchDecompressor(keras.layers.Layer):
    """Turns a vector per patch into a first guess of the pixels and features of them.

    The guess is a linear map of each vector, the counterpart of the linear map of
    `PatchCompressor`. The features, from which the guess can be corrected, come from a
    network in two parts. The first part works on patches, where many channels are
    cheap. The second part works on pixels, where it sees the edges between patches.

    Args:
        patch_size: Height and width of a patch, in pixels.
        channels: Number of channels of the network on patches.
        num_blocks: Number of residual blocks of the network on patches.
        pixel_channels: Number of channels of the network on pixels and of the features.
        num_pixel_blocks: Number of residual blocks of the network on pixels.
        unit: Factor by which the inputs are multiplied, to bring them to the scale of
            pixels from -1 to 1. If it is about the size of the error that quantisation
            leaves, distances between codes are about 1 for any images, and a step of
            the optimizer is small compared with them.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[B, rows, columns, D]`, one per patch.

    Returns:
        A tuple `(features, base)`, where `H` and `W` are `patch_size` times the numbers
        of rows and columns:

        - `features`: `[B, H, W, pixel_channels]`.
        - `base`: First guess of the pixels, `[B, H, W, 3]`, from -1 to 1 or slightly
          beyond.

    Example:

    >>> layer = keras_vqem.layers.PatchDecompressor(channels=16, pixel_channels=8)
    >>> features, base = layer(np.zeros((1, 8, 8, 40), "float32"))
    >>> features.shape, base.shape
    (TensorShape([1, 32, 32, 8]), TensorShape([1, 32, 32, 3]))
    """

    def __init__(
        self,
        patch_size: int = 4,
        channels: int = 128,
        num_blocks: int = 2,
        pixel_channels: int = 32,
        num_pixel_blocks: int = 2,
        unit: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.channels = channels
        self.num_blocks = num_blocks
        self.pixel_channels = pixel_channels
        self.num_pixel_blocks = num_pixel_blocks
        self.unit = unit

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        policy, cells = self.dtype_policy, (None, None, None)

        def dense(name, units, size):
            layer = keras.layers.Dense(units, name=name, dtype=policy)
            layer.build((*cells, size))
            return layer

        def stack(name, number, channels):
            layers = [
                ImageBlock(name=f"{name}_{i}", dtype=policy) for i in range(number)
            ]
            for layer in layers:
                layer.build((*cells, channels))
            return layers

        width, area = input_shape[-1], self.patch_size**2
        self.linear = dense("linear", 3 * area, width)
        self.inward = dense("inward", self.channels, width)
        self.cell_stack = stack("cell_block", self.num_blocks, self.channels)
        self.spread = dense("spread", area * self.pixel_channels, self.channels)
        self.from_base = dense("from_base", self.pixel_channels, 3)
        self.pixel_stack = stack(
            "pixel_block", self.num_pixel_blocks, self.pixel_channels
        )
        self.built = True

    def call(self, inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        inputs = inputs * self.unit
        base = from_patches(self.linear(inputs), self.patch_size)
        x = self.inward(inputs)
        for block in self.cell_stack:
            x = block(x)
        x = from_patches(self.spread(ops.relu(x)), self.patch_size) + self.from_base(
            base
        )
        for block in self.pixel_stack:
            x = block(x)
        return ops.relu(x), base

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "patch_size": self.patch_size,
            "channels": self.channels,
            "num_blocks": self.num_blocks,
            "pixel_channels": self.pixel_channels,
            "num_pixel_blocks": self.num_pixel_blocks,
            "unit": self.unit,
        }
