"""ImageBlock: residual convolutions over an image."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops


class ImageBlock(keras.layers.Layer):
    """Residual convolutions, `x + convolution(relu(convolution(relu(x))))`.

    The kernel sizes are 3, then 1. The last convolution starts at 0, so that a deep
    stack starts as the identity and needs no normalisation.

    Args:
        hidden: Number of channels between the two convolutions. None for the number of
            channels of the inputs.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        x: Features `[B, H, W, C]`.

    Returns:
        Features `[B, H, W, C]`.
    """

    def __init__(self, hidden: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.hidden = hidden

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        width = input_shape[-1]
        hidden = self.hidden or width
        policy = self.dtype_policy
        self.first = keras.layers.Conv2D(
            hidden, 3, padding="same", name="first", dtype=policy
        )
        self.second = keras.layers.Conv2D(
            width, 1, kernel_initializer="zeros", name="second", dtype=policy
        )
        self.first.build(input_shape)
        self.second.build((*input_shape[:-1], hidden))
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x + self.second(ops.relu(self.first(ops.relu(x))))
