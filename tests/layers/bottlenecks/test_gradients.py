"""Gradient estimators against explicit matrices, and where they do not exist."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import (
    Cosine,
    RotationTrick,
    Slices,
    StraightThrough,
    VQBottleneck,
    VQEMBottleneck,
)


def rotation(x, e):
    """The matrix that turns x to the direction of e in their plane, and scales it."""
    u, v = x / np.linalg.norm(x), e / np.linalg.norm(e)
    w = v - (u @ v) * u
    cosine, sine = u @ v, np.linalg.norm(w)
    w = w / sine
    turn = np.eye(len(x)) + (cosine - 1) * (np.outer(u, u) + np.outer(w, w))
    turn += sine * (np.outer(w, u) - np.outer(u, w))
    return np.linalg.norm(e) / np.linalg.norm(x) * turn


def value_and_gradient(estimate, x, e, g):
    x = tf.constant(x, "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = estimate.apply(x, tf.constant(e, "float32"))
        loss = tf.reduce_sum(y * tf.constant(g, "float32"))
    return y.numpy(), tape.gradient(loss, x).numpy()


def test_rotation_is_the_rotation_in_the_plane_of_vector_and_code(rng):
    x, e, g = rng.normal(size=(3, 20, 5))
    y, gradient = value_and_gradient(RotationTrick(), x, e, g)
    np.testing.assert_array_equal(y, e.astype("float32"))
    for row in range(20):
        matrix = rotation(x[row], e[row])
        np.testing.assert_allclose(matrix @ x[row], e[row], atol=1e-6)
        np.testing.assert_allclose(gradient[row], matrix.T @ g[row], atol=1e-4)
        # The equation of the paper gives the same matrix.
        u, v = (a[row] / np.linalg.norm(a[row]) for a in (x, e))
        r = (u + v) / np.linalg.norm(u + v)
        paper = np.eye(5) - 2 * np.outer(r, r) + 2 * np.outer(v, u)
        scale = np.linalg.norm(e[row]) / np.linalg.norm(x[row])
        np.testing.assert_allclose(scale * paper, matrix, atol=1e-6)


def test_vectors_that_cannot_be_rotated():
    x = np.array([[0.0, 0.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [0.0, 0.0]])
    e = np.array([[3.0, 4.0], [0.0, 0.0], [-1.0, -2.0], [1.0, 2.0], [0.0, 0.0]])
    g = np.tile([[1.0, -1.0]], (5, 1))
    y, gradient = value_and_gradient(RotationTrick(), x, e, g)
    np.testing.assert_array_equal(y, e)
    u = np.array([1.0, 2.0]) / np.sqrt(5)
    reflected = g[2] - 2 * u * (u @ g[2])
    want = [g[0], [0.0, 0.0], reflected, g[3], g[4]]
    np.testing.assert_allclose(gradient, want, atol=1e-6)


def test_nearly_opposite_vectors_stay_finite(rng):
    x = rng.normal(size=(500, 4))
    e = -x + 10.0 ** rng.uniform(-9, -2, size=(500, 1)) * rng.normal(size=x.shape)
    g = rng.normal(size=x.shape)
    _, gradient = value_and_gradient(RotationTrick(), x, e, g)
    scale = np.linalg.norm(e, axis=-1) / np.linalg.norm(x, axis=-1)
    length = np.linalg.norm(gradient, axis=-1) / np.linalg.norm(g, axis=-1)
    # An orthogonal matrix and a scale.
    np.testing.assert_allclose(length, scale, rtol=0.01)


@pytest.mark.parametrize("kind", [VQBottleneck, VQEMBottleneck])
def test_each_piece_is_rotated_by_itself(kind, rng):
    x, g = rng.normal(size=(2, 8, 6)).astype("float32")
    layer = kind(
        4, groups=Slices(2), gradient=RotationTrick(), initializer="random_normal"
    )
    layer.build(x.shape)
    layer.codebook.assign(rng.normal(size=layer.codebook.shape))
    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs, training=True)
        loss = tf.reduce_sum(outputs["quantized"] * g)
    gradient = tape.gradient(loss, inputs).numpy()
    e = outputs["quantized"].numpy()
    for row in range(8):
        for part in (slice(0, 3), slice(3, 6)):
            want = rotation(x[row, part], e[row, part]).T @ g[row, part]
            np.testing.assert_allclose(gradient[row, part], want, rtol=1e-3, atol=1e-4)


def test_rotation_of_unit_vectors(rng):
    x = tf.constant(rng.normal(size=(8, 3)), "float32")
    layer = VQBottleneck(
        4, gradient="rotation", similarity=Cosine(), initializer="random_normal"
    )
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=False)
        loss = tf.reduce_sum(outputs["quantized"][:, 0])
    np.testing.assert_array_equal(layer.decode(outputs["codes"]), outputs["quantized"])
    gradient = tape.gradient(loss, x).numpy()
    # Nothing along the vector itself, whose norm does not matter.
    np.testing.assert_allclose(np.sum(gradient * x, -1), 0.0, atol=1e-5)
    assert np.abs(gradient).max() > 0


@pytest.mark.parametrize("samples", [4, "exact"])
def test_rotation_needs_one_code(samples):
    with pytest.raises(ValueError, match="num_samples=None, or gradient='straight"):
        VQEMBottleneck(8, num_samples=samples, gradient="rotation")
    with pytest.raises(ValueError, match="'straight_through', 'rotation'.*'reinmax'"):
        VQEMBottleneck(8, gradient="reinmax")


def test_estimators_are_saved():
    layer = VQBottleneck(4, gradient=RotationTrick())
    assert layer.get_config()["gradient"] == "rotation"
    again = VQBottleneck.from_config(layer.get_config())
    assert type(again.gradient) is RotationTrick
    assert type(VQBottleneck(4).gradient) is StraightThrough
