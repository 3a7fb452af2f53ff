"""SimVQ and random projections: codebooks that are random and stay so."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import RandomProjectionBottleneck, SimVQBottleneck
from tests.layers.bottlenecks import reference


def test_sim_vq_moves_all_codes_by_its_map(rng):
    x = tf.constant(rng.normal(size=(30, 4)).astype("float32"))
    layer = SimVQBottleneck(50, commitment_weight=0.4, seed=1)
    layer.build((None, 4))
    layer.kernel.assign(rng.normal(size=(1, 4, 4)))
    with tf.GradientTape() as tape:
        outputs = layer(x, training=True)
        loss = layer.losses[0]
    basis, kernel = layer.basis[0].numpy(), layer.kernel[0].numpy()
    h = reference.hard_e_step(x.numpy(), basis @ kernel)
    np.testing.assert_array_equal(outputs["codes"], h.argmax(-1))
    difference = x.numpy() - h @ basis @ kernel
    assert float(loss) == pytest.approx(1.4 * np.mean(difference**2), rel=1e-5)
    np.testing.assert_allclose(
        tape.gradient(loss, layer.kernel.value)[0],
        -2 * (h @ basis).T @ difference / x.shape.num_elements(),
        atol=1e-5,
    )


def test_sim_vq_brings_far_codes_into_use(rng):
    # Vectors far from all codes: a gradient of chosen codes alone would move one.
    x = (0.05 * rng.normal(size=(512, 4)) + [3, 0, 0, 0]).astype("float32")
    inputs = keras.Input((4,))
    layer = SimVQBottleneck(32, seed=1)
    model = keras.Model(inputs, layer(inputs)["quantized"])
    model.compile(keras.optimizers.Adam(0.05))
    start = layer.basis.numpy()
    history = model.fit(x, epochs=15, verbose=0).history
    assert history["loss"][-1] < 0.05 * history["loss"][0]
    np.testing.assert_array_equal(layer.basis, start)


def test_a_frozen_basis_does_not_start_from_data(rng):
    with pytest.raises(ValueError, match="takes no `initializer`"):
        SimVQBottleneck(4, initializer="data")
    for layer in (SimVQBottleneck(4), RandomProjectionBottleneck(4, code_dim=2)):
        with pytest.raises(ValueError, match="nothing to adapt"):
            layer.adapt(rng.normal(size=(9, 3)))


def test_random_projections_by_hand(rng):
    x = rng.normal(size=(40, 12)).astype("float32")
    layer = RandomProjectionBottleneck(20, code_dim=3, groups=2, seed=4)
    codes = layer.encode(x)
    assert codes.shape == (40, 2)
    frame = layer.groups._frame.numpy()
    np.testing.assert_allclose(frame.T @ frame, np.eye(6), atol=1e-5)
    for group in range(2):
        projected = x @ frame[:, 3 * group : 3 * group + 3]
        table = layer.codebook[group].numpy()
        np.testing.assert_allclose(np.linalg.norm(table, axis=-1), 1, rtol=1e-5)
        lengths = np.linalg.norm(projected, axis=-1, keepdims=True)
        similar = projected / lengths @ table.T
        np.testing.assert_array_equal(codes[:, group], similar.argmax(-1))
    # Length does not matter, but the seed does.
    np.testing.assert_array_equal(layer.encode(7 * x), codes)
    other = RandomProjectionBottleneck(20, code_dim=3, groups=2, seed=5)
    assert (other.encode(x).numpy() != codes.numpy()).mean() > 0.5


def test_random_projections_never_learn(rng):
    x = rng.normal(size=(40, 12)).astype("float32")
    layer = RandomProjectionBottleneck(20, code_dim=3)
    layer(x, training=True)
    assert layer.trainable_weights == [] and float(layer.losses[0]) == 0.0
    assert layer.encode(x).shape == (40,)
    # Made once and for all: the same codes in another process, and without weights.
    np.testing.assert_array_equal(
        RandomProjectionBottleneck(20, code_dim=3).encode(x), layer.encode(x)
    )


def test_wrong_arguments(rng):
    with pytest.raises(ValueError, match="at least 1"):
        RandomProjectionBottleneck(20, groups=0)
    with pytest.raises(ValueError, match="orthonormal directions"):
        RandomProjectionBottleneck(20, code_dim=5, groups=2).encode(np.zeros((2, 8)))
