"""PatchCompressor: from the patches of an image to vectors."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers.image_block import ImageBlock
from keras_vqem.layers.image_compressor import check_divisible


@keras.saving.register_keras_serializable(package="keras_vqem")
class PatchCompressor(keras.layers.Layer):
    """Turns each patch of an image into a vector, which a bottleneck can quantise.

    The vector is the sum of a linear map of the patch and the output of a network that
    also sees neighbouring patches. The linear map can be the principal components of
    patches, which already hold most of what few numbers can say about a patch;
    `ImageVQVAE.init_from_patches` sets it so. The output of the network starts at 0,
    so that the network learns a correction.

    Args:
        code_dim: Size of the vector of each patch. If a bottleneck with groups gives
            each patch several codes, this is the sum of their sizes.
        patch_size: Height and width of a patch, in pixels.
        channels: Number of channels of the network.
        num_blocks: Number of residual blocks of the network. 0 leaves out the network.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Images `[B, H, W, 3]` with values from -1 to 1. `H` and `W` must be
            multiples of `patch_size`.

    Returns:
        Vectors `[B, H / patch_size, W / patch_size, code_dim]`.

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
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.code_dim = code_dim
        self.patch_size = patch_size
        self.channels = channels
        self.num_blocks = num_blocks

    def build(self, input_shape: tuple[int | None, ...]) -> None:
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

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        patches = to_patches(inputs, self.patch_size)
        vectors = self.linear(patches)
        if self.num_blocks:
            x = self.inward(patches)
            for block in self.residuals:
                x = block(x)
            vectors = vectors + self.outward(ops.relu(x))
        return vectors

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "code_dim": self.code_dim,
            "patch_size": self.patch_size,
            "channels": self.channels,
            "num_blocks": self.num_blocks,
        }


def to_patches(images: ArrayLike, patch_size: int) -> tf.Tensor:
    """Cuts images into patches.

    Args:
        images: Images `[B, H, W, C]`.
        patch_size: Height and width of a patch.

    Returns:
        Patches `[B, H / patch_size, W / patch_size, patch_size * patch_size * C]`.
    """
    batch, height, width, channels = ops.shape(images)
    rows, columns = height // patch_size, width // patch_size
    x = ops.reshape(images, (batch, rows, patch_size, columns, patch_size, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (batch, rows, columns, patch_size * patch_size * channels))


def from_patches(patches: ArrayLike, patch_size: int) -> tf.Tensor:
    """Joins patches into images: the inverse of `to_patches`.

    Args:
        patches: Patches `[B, rows, columns, patch_size * patch_size * C]`.
        patch_size: Height and width of a patch.

    Returns:
        Images `[B, rows * patch_size, columns * patch_size, C]`.
    """
    batch, rows, columns, size = ops.shape(patches)
    channels = size // patch_size**2
    x = ops.reshape(patches, (batch, rows, columns, patch_size, patch_size, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (batch, rows * patch_size, columns * patch_size, channels))
