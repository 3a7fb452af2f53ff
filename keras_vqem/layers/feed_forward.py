"""FeedForward: the two dense layers of a Transformer block."""

import keras


@keras.saving.register_keras_serializable(package="keras_vqem")
class FeedForward(keras.layers.Layer):
    """Dense to `filter_width`, ReLU, dense back to the width of the inputs.

    Args:
        filter_width: Of the layer between.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> keras_vqem.layers.FeedForward(filter_width=32)(np.ones((2, 3, 8))).shape
    TensorShape([2, 3, 8])
    """

    def __init__(self, filter_width, **kwargs):
        super().__init__(**kwargs)
        self.filter_width = filter_width
        self.supports_masking = True

    def build(self, input_shape):
        width = input_shape[-1]
        self.widen = keras.layers.Dense(
            self.filter_width, activation="relu", name="widen", dtype=self.dtype_policy
        )
        self.widen.build((None, None, width))
        self.narrow = keras.layers.Dense(width, name="narrow", dtype=self.dtype_policy)
        self.narrow.build((None, None, self.filter_width))
        self.built = True

    def call(self, inputs):
        return self.narrow(self.widen(inputs))

    def get_config(self):
        return {**super().get_config(), "filter_width": self.filter_width}
