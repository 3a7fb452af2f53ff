"""ConvolutionBlock: residual convolutions over a padded sequence."""

import keras
from keras import ops

from keras_vqem.layers.replica_dropout import ReplicaDropout


class ConvolutionBlock(keras.layers.Layer):
    """`x + dropout(convolutions(norm(x)))`, each of width 3, padding kept at 0.

    A convolution is written as a dense layer over each position and its neighbours:
    on short sequences that is one matrix product, and XLA on a CPU does not fall back
    to its slow general convolution.
    """

    def __init__(self, dropout, convolutions=2, **kwargs):
        super().__init__(**kwargs)
        self.convolutions = convolutions
        self.supports_masking = True
        self.dropout = ReplicaDropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        width = input_shape[-1]
        self.norms, self.denses = [], []
        for i in range(self.convolutions):
            norm = keras.layers.LayerNormalization(
                epsilon=1e-6, name=f"norm_{i}", dtype=self.dtype_policy
            )
            dense = keras.layers.Dense(
                width, name=f"dense_{i}", dtype=self.dtype_policy
            )
            norm.build(input_shape)
            dense.build((*input_shape[:-1], 3 * width))
            self.norms.append(norm)
            self.denses.append(dense)
        self.built = True

    def call(self, x, mask, training=None):
        """`mask` [B, T, 1] is 0 at padding, in the dtype of `x`."""
        y = x
        for norm, dense in zip(self.norms, self.denses, strict=True):
            # What lies beyond the end and what is padding look alike: 0.
            y = ops.pad(ops.relu(norm(y)) * mask, [[0, 0], [1, 1], [0, 0]])
            y = dense(ops.concatenate([y[:, :-2], y[:, 1:-1], y[:, 2:]], axis=-1))
        return x + self.dropout(y, training=training)
