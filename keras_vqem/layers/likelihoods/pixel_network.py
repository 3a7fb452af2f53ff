"""PixelNetwork: residual convolutions on cells, for one group of pixels per image."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.image_block import ImageBlock


class PixelNetwork(keras.layers.Layer):
    """From what is known of cells to parameters of one pixel per cell.

    All groups share the residual blocks. The maps before and after them differ from
    group to group, as what is known and where the pixel lies differ.

    Args:
        num_groups: Number of groups.
        units: Number of parameters per pixel.
        channels: Number of channels.
        num_blocks: Number of residual blocks.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Features of cells `[B, rows, columns, C]`.
        groups: int32 `[B]`, the group of each image.

    Returns:
        Float32 `[B, rows, columns, units]`.
    """

    def __init__(
        self,
        num_groups: int,
        units: int,
        channels: int,
        num_blocks: int,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_groups = num_groups
        self.units = units
        self.channels = channels
        self.num_blocks = num_blocks

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        policy, cells = self.dtype_policy, (None, None, None)
        self.inward = GroupDense(
            self.num_groups, self.channels, name="inward", dtype=policy
        )
        self.inward.build(input_shape)
        self.blocks = []
        for i in range(self.num_blocks):
            block = ImageBlock(name=f"block_{i}", dtype=policy)
            block.build((*cells, self.channels))
            self.blocks.append(block)
        self.outward = GroupDense(
            self.num_groups,
            self.units,
            kernel_initializer="zeros",
            name="outward",
            dtype="float32",
        )
        self.outward.build((*cells, self.channels))
        self.built = True

    def call(self, inputs: tf.Tensor, groups: tf.Tensor) -> tf.Tensor:
        x = self.inward(inputs, groups)
        for block in self.blocks:
            x = block(x)
        return self.outward(ops.relu(x), groups)


class GroupDense(keras.layers.Layer):
    """A dense layer with a kernel and a bias per group; each image has its group.

    Args:
        num_groups: Number of groups.
        units: Number of outputs.
        kernel_initializer: Initializer of the kernels.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Features `[B, rows, columns, C]`.
        groups: int32 `[B]`, the group of each image.

    Returns:
        Features `[B, rows, columns, units]`.
    """

    def __init__(
        self,
        num_groups: int,
        units: int,
        kernel_initializer: str = "glorot_uniform",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_groups = num_groups
        self.units = units
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        size = input_shape[-1]
        # As one matrix, so that initializers see the true number of inputs.
        self.kernel = self.add_weight(
            name="kernel",
            shape=(size, self.num_groups * self.units),
            initializer=self.kernel_initializer,
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.num_groups, self.units), initializer="zeros"
        )
        self.built = True

    def call(self, inputs: tf.Tensor, groups: tf.Tensor) -> tf.Tensor:
        batch, rows, columns, size = ops.shape(inputs)
        # The sum with one 1 is a choice whose gradient is a matrix, not a sparse table.
        choice = ops.one_hot(groups, self.num_groups, dtype=inputs.dtype)
        kernel = ops.reshape(self.kernel, (size, self.num_groups, self.units))
        kernel = ops.einsum("bg,igo->bio", choice, kernel)
        bias = ops.matmul(choice, self.bias)
        x = ops.matmul(ops.reshape(inputs, (batch, rows * columns, size)), kernel)
        return ops.reshape(x + bias[:, None], (batch, rows, columns, self.units))
