"""PatchCompressor: patches of an image to vectors, linearly and a little more."""

import keras
from keras import ops

from keras_vqem.layers.image_block import ImageBlock
from keras_vqem.layers.image_compressor import check_divisible


@keras.saving.register_keras_serializable(package="keras_vqem")
class PatchCompressor(keras.layers.Layer):
    """A linear map of each patch, plus what a network makes of it and its neighbours.

    The linear map alone can be the principal components of patches, which is most of
    what can be said in few numbers: `ImageVQVAE.start_from_patches` sets it. The
    network starts at 0 and learns a correction.

    Args:
        code_width: Size of the vectors, for all codes of a cell together.
        patch: Height and width of a patch.
        channels: Of the network.
        blocks: How many residual blocks it has; 0 for none at all.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Images [B, H, W, 3], from -1 to 1.

    Returns:
        [B, H / patch, W / patch, code_width].

    Example:

    >>> layer = keras_vqem.layers.PatchCompressor(code_width=40, channels=16)
    >>> layer(np.zeros((1, 32, 32, 3), "float32")).shape
    TensorShape([1, 8, 8, 40])
    """

    def __init__(self, code_width, patch=4, channels=128, blocks=2, **kwargs):
        super().__init__(**kwargs)
        self.code_width = code_width
        self.patch = patch
        self.channels = channels
        self.blocks = blocks

    def build(self, input_shape):
        policy, cells = self.dtype_policy, (None, None, None)
        check_divisible(input_shape, self.patch)
        size = 3 * self.patch**2
        self.linear = keras.layers.Dense(self.code_width, name="linear", dtype=policy)
        self.linear.build((*cells, size))
        self.residuals = []
        if self.blocks:
            self.inward = keras.layers.Dense(self.channels, name="inward", dtype=policy)
            self.inward.build((*cells, size))
            self.outward = keras.layers.Dense(
                self.code_width,
                kernel_initializer="zeros",
                name="outward",
                dtype=policy,
            )
            self.outward.build((*cells, self.channels))
        for i in range(self.blocks):
            block = ImageBlock(name=f"block_{i}", dtype=policy)
            block.build((*cells, self.channels))
            self.residuals.append(block)
        self.built = True

    def call(self, inputs):
        patches = to_patches(inputs, self.patch)
        vectors = self.linear(patches)
        if self.blocks:
            x = self.inward(patches)
            for block in self.residuals:
                x = block(x)
            vectors = vectors + self.outward(ops.relu(x))
        return vectors

    def get_config(self):
        return {
            **super().get_config(),
            "code_width": self.code_width,
            "patch": self.patch,
            "channels": self.channels,
            "blocks": self.blocks,
        }


def to_patches(images, patch):
    """[B, H, W, C] to [B, H / patch, W / patch, patch * patch * C]."""
    batch, height, width, channels = ops.shape(images)
    rows, columns = height // patch, width // patch
    x = ops.reshape(images, (batch, rows, patch, columns, patch, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (batch, rows, columns, patch * patch * channels))


def from_patches(patches, patch):
    """The other way round."""
    batch, rows, columns, size = ops.shape(patches)
    channels = size // patch**2
    x = ops.reshape(patches, (batch, rows, columns, patch, patch, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (batch, rows * patch, columns * patch, channels))
