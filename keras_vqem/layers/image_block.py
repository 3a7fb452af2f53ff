"""ImageBlock: residual convolutions over an image."""

import keras
from keras import ops


class ImageBlock(keras.layers.Layer):
    """`x + convolution(relu(convolution(relu(x))))`, of size 3 and then 1.

    The last convolution starts at 0, so that a deep stack starts as the identity and
    needs no normalisation.
    """

    def __init__(self, hidden=None, **kwargs):
        super().__init__(**kwargs)
        self.hidden = hidden

    def build(self, input_shape):
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

    def call(self, x):
        return x + self.second(ops.relu(self.first(ops.relu(x))))
