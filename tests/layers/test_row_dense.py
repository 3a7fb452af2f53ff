"""RowDense is keras.layers.Dense, and TiedEmbedding multiplies either way round."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import TiedEmbedding
from keras_vqem.layers.row_dense import RowDense


@pytest.mark.parametrize("shape", [(6, 4), (2, 3, 4), (2, 0, 4), (0, 3, 4)])
def test_row_dense_is_dense(rng, shape):
    x = rng.normal(size=shape).astype("float32")
    layer, dense = RowDense(5, activation="relu"), keras.layers.Dense(5, "relu")
    layer.build(shape)
    dense.build(shape)
    dense.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(x), dense(x), atol=1e-6)


@pytest.mark.parametrize("positions", [1, 7, 8, 31, 255, 256, 300])
@pytest.mark.parametrize("known", [True, False])
def test_logits_for_any_number_of_positions(rng, positions, known):
    layer = TiedEmbedding(11, 4)
    layer.build()
    x = rng.normal(size=(1, positions, 4)).astype("float32")
    shape = x.shape if known else [None, None, 4]

    @tf.function(input_signature=[tf.TensorSpec(shape)])
    def logits(x):
        return layer(x, reverse=True)

    found = logits(x)
    wanted = x @ layer.embeddings.numpy().T
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("positions", [16, 300])
def test_gradients_of_logits(rng, positions):
    layer = TiedEmbedding(11, 4)
    layer.build()
    x = tf.constant(rng.normal(size=(2, positions // 2, 4)).astype("float32"))
    weights = rng.normal(size=(2, positions // 2, 11)).astype("float32")

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4])])
    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, reverse=True) * weights)
        return tape.gradient(loss, [x, layer.embeddings.value])

    of_x, of_matrix = gradients(x)
    matrix = layer.embeddings.numpy()
    np.testing.assert_allclose(of_x, weights @ matrix, atol=1e-4)
    rows = weights.reshape(-1, 11).T @ x.numpy().reshape(-1, 4)
    np.testing.assert_allclose(of_matrix, rows, atol=1e-4)
