"""FeedForward: the two dense layers of a Transformer block."""

import keras


@keras.saving.register_keras_serializable(package="keras_vqem")
class FeedForward(keras.layers.Layer):
    """Dense to `intermediate_dim`, ReLU, dense back to the width of the inputs.

    Args:
        intermediate_dim: Of the layer between.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> keras_vqem.layers.FeedForward(intermediate_dim=32)(np.ones((2, 3, 8))).shape
    TensorShape([2, 3, 8])
    """

    def __init__(self, intermediate_dim: int, **kwargs):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.supports_masking = True

    def build(self, input_shape):
        width = input_shape[-1]
        self.widen = keras.layers.Dense(
            self.intermediate_dim,
            activation="relu",
            name="widen",
            dtype=self.dtype_policy,
        )
        self.widen.build((None, None, width))
        self.narrow = keras.layers.Dense(width, name="narrow", dtype=self.dtype_policy)
        self.narrow.build((None, None, self.intermediate_dim))
        self.built = True

    def call(self, inputs):
        return self.narrow(self.widen(inputs))

    def get_config(self):
        return {**super().get_config(), "intermediate_dim": self.intermediate_dim}
