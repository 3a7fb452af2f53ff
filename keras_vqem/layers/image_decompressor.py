"""ImageDecompressor: a grid of vectors to features of every pixel, as in the paper."""

import keras
from keras import ops

from keras_vqem.layers.image_block import ImageBlock


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageDecompressor(keras.layers.Layer):
    """A dense layer, residual blocks and transposed convolutions of stride 2.

    Args:
        channels: Of the convolutions, and of the features that come out.
        num_decompress_steps: How many transposed convolutions.
        num_blocks: How many residual blocks.
        kernel_size: Of the transposed convolutions.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: [B, rows, columns, D].

    Returns:
        Features [B, H, W, channels], and a first guess of the pixels [B, H, W, 3]:
        mid-grey, 0, everywhere. `PatchDecompressor` makes a better one.

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.channels = channels
        self.num_decompress_steps = num_decompress_steps
        self.num_blocks = num_blocks
        self.kernel_size = kernel_size

    def build(self, input_shape):
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

    def call(self, inputs):
        x = self.dense(inputs)
        for block in self.residuals:
            x = block(x)
        for stage in self.stages:
            x = stage(ops.relu(x))
        return ops.relu(x), ops.zeros((*ops.shape(x)[:-1], 3), dtype=x.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "channels": self.channels,
            "num_decompress_steps": self.num_decompress_steps,
            "num_blocks": self.num_blocks,
            "kernel_size": self.kernel_size,
        }
