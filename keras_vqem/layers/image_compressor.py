"""ImageCompressor: an image to a grid of vectors, as in the paper."""

import keras
from keras import ops

from keras_vqem.layers.image_block import ImageBlock


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageCompressor(keras.layers.Layer):
    """Strided convolutions, residual blocks and a dense layer.

    Args:
        code_dim: Size of the vectors, for all codes of a cell together.
        channels: Of the convolutions.
        num_compress_steps: How many convolutions of stride 2; 2 make 8 x 8 of 32 x 32.
        num_blocks: How many residual blocks.
        kernel_size: Of the strided convolutions.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Images [B, H, W, 3], from -1 to 1.

    Returns:
        [B, H / 2 ** num_compress_steps, W / 2 ** num_compress_steps, code_dim].

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.code_dim = code_dim
        self.channels = channels
        self.num_compress_steps = num_compress_steps
        self.num_blocks = num_blocks
        self.kernel_size = kernel_size

    def build(self, input_shape):
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

    def call(self, inputs):
        x = inputs
        for i, stage in enumerate(self.stages):
            x = stage(ops.relu(x) if i else x)
        for block in self.residuals:
            x = block(x)
        return self.dense(ops.relu(x))

    def get_config(self):
        return {
            **super().get_config(),
            "code_dim": self.code_dim,
            "channels": self.channels,
            "num_compress_steps": self.num_compress_steps,
            "num_blocks": self.num_blocks,
            "kernel_size": self.kernel_size,
        }


def check_divisible(shape, factor):
    """Raises unless height and width of an image's shape, if known, can be cut."""
    if any(size is not None and size % factor for size in shape[1:3]):
        raise ValueError(
            f"Height and width of the images must be multiples of {factor}, received "
            f"shape {tuple(shape)}. Resize or crop them, or choose smaller cells."
        )
