"""PatchCompressor: patches of an image to vectors, linearly and a little more."""

import keras
from keras import ops

from keras_vqem.layers.image_block import ImageBlock
from keras_vqem.layers.image_compressor import check_divisible


@keras.saving.register_keras_serializable(package="keras_vqem")
class PatchCompressor(keras.layers.Layer):
    """A linear map of each patch, plus what a network makes of it and its neighbours.

    The linear map alone can be the principal components of patches, which is most of
    what can be said in few numbers: `ImageVQVAE.init_from_patches` sets it. The
    network starts at 0 and learns a correction.

    Args:
        code_dim: Size of the vectors, for all codes of a cell together.
        patch_size: Height and width of a patch.
        channels: Of the network.
        num_blocks: How many residual blocks it has; 0 for none at all.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Images [B, H, W, 3], from -1 to 1.

    Returns:
        [B, H / patch, W / patch, code_dim].

    Example:

    >>> layer = keras_vqem.layers.PatchCompressor(code_dim=40, channels=16)
    >>> layer(np.zeros((1, 32, 32, 3), "float32")).shape
    TensorShape([1, 8, 8, 40])
    """

    def __init__(
        self,
        code_dim: int,
        patch_size: int = 4,
        channels: int = 128,
        num_blocks: int = 2,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.code_dim = code_dim
        self.patch_size = patch_size
        self.channels = channels
        self.num_blocks = num_blocks

    def build(self, input_shape):
        policy, cells = self.dtype_policy, (None, None, None)
        check_divisible(input_shape, self.patch_size)
        size = 3 * self.patch_size**2
        self.linear = keras.layers.Dense(self.code_dim, name="linear", dtype=policy)
        self.linear.build((*cells, size))
        self.residuals = []
        if self.num_blocks:
            self.inward = keras.layers.Dense(self.channels, name="inward", dtype=policy)
            self.inward.build((*cells, size))
            self.outward = keras.layers.Dense(
                self.code_dim,
                kernel_initializer="zeros",
                name="outward",
                dtype=policy,
            )
            self.outward.build((*cells, self.channels))
        for i in range(self.num_blocks):
            block = ImageBlock(name=f"block_{i}", dtype=policy)
            block.build((*cells, self.channels))
            self.residuals.append(block)
        self.built = True

    def call(self, inputs):
        patches = to_patches(inputs, self.patch_size)
        vectors = self.linear(patches)
        if self.num_blocks:
            x = self.inward(patches)
            for block in self.residuals:
                x = block(x)
            vectors = vectors + self.outward(ops.relu(x))
        return vectors

    def get_config(self):
        return {
            **super().get_config(),
            "code_dim": self.code_dim,
            "patch_size": self.patch_size,
            "channels": self.channels,
            "num_blocks": self.num_blocks,
        }


def to_patches(images, patch_size):
    """[B, H, W, C] to [B, H / patch, W / patch, patch * patch * C]."""
    batch, height, width, channels = ops.shape(images)
    rows, columns = height // patch_size, width // patch_size
    x = ops.reshape(images, (batch, rows, patch_size, columns, patch_size, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (batch, rows, columns, patch_size * patch_size * channels))


def from_patches(patches, patch_size):
    """The other way round."""
    batch, rows, columns, size = ops.shape(patches)
    channels = size // patch_size**2
    x = ops.reshape(patches, (batch, rows, columns, patch_size, patch_size, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (batch, rows * patch_size, columns * patch_size, channels))
