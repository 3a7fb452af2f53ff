"""ImageCompressor: from an image to a grid of vectors, as in the paper."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.image_block import ImageBlock


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageCompressor(keras.layers.Layer):
    """Turns an image into a smaller grid of vectors, which a bottleneck can quantise.

    Convolutions of stride 2, then residual blocks, then a dense layer. Each convolution
    halves height and width: two of them turn 32 x 32 pixels into 8 x 8 vectors.

    Args:
        code_dim: Size of the vector at each grid position. If a bottleneck with groups
            gives each position several codes, this is the sum of their sizes.
        channels: Number of channels of the convolutions.
        num_compress_steps: Number of convolutions of stride 2.
        num_blocks: Number of residual blocks.
        kernel_size: Kernel size of the convolutions of stride 2.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Images `[B, H, W, 3]` with values from -1 to 1. `H` and `W` must be
            multiples of `2 ** num_compress_steps`.

    Returns:
        Vectors `[B, H / 2 ** num_compress_steps, W / 2 ** num_compress_steps,
        code_dim]`.

    Example:

    >>> layer = keras_vqem.layers.ImageCompressor(code_dim=40, channels=16)
    >>> layer(np.zeros((1, 32, 32, 3), "float32")).shape
    TensorShape([1, 8, 8, 40])
    """

    def __init__(
        self,
        code_dim: int,
        channels: int = 512,
        num_compress_steps: int = 2,
        num_blocks: int = 2,
        kernel_size: int = 5,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.code_dim = code_dim
        self.channels = channels
        self.num_compress_steps = num_compress_steps
        self.num_blocks = num_blocks
        self.kernel_size = kernel_size

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        policy, shape = self.dtype_policy, tuple(input_shape)
        check_divisible(shape, 2**self.num_compress_steps)
        self.stages = []
        for i in range(self.num_compress_steps):
            layer = keras.layers.Conv2D(
                self.channels,
                self.kernel_size,
                strides=2,
                padding="same",
                name=f"convolution_{i}",
                dtype=policy,
            )
            layer.build(shape)
            shape = (None, None, None, self.channels)
            self.stages.append(layer)
        self.residuals = []
        for i in range(self.num_blocks):
            block = ImageBlock(name=f"block_{i}", dtype=policy)
            block.build(shape)
            self.residuals.append(block)
        self.dense = keras.layers.Dense(self.code_dim, name="dense", dtype=policy)
        self.dense.build(shape)
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        x = inputs
        for i, stage in enumerate(self.stages):
            x = stage(ops.relu(x) if i else x)
        for block in self.residuals:
            x = block(x)
        return self.dense(ops.relu(x))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "code_dim": self.code_dim,
            "channels": self.channels,
            "num_compress_steps": self.num_compress_steps,
            "num_blocks": self.num_blocks,
            "kernel_size": self.kernel_size,
        }


def check_divisible(shape: tuple[int | None, ...], factor: int) -> None:
    """Raises a `ValueError` unless height and width, if known, can be divided evenly.

    Args:
        shape: Shape of images, `[B, H, W, C]`.
        factor: Number that must divide height and width.
    """
    if any(size is not None and size % factor for size in shape[1:3]):
        raise ValueError(
            f"Height and width of the images must be multiples of {factor}, received "
            f"shape {tuple(shape)}. Resize or crop the images, or use fewer "
            f"compression steps or smaller patches."
        )
