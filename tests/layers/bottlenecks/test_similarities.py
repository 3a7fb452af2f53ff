"""Cosine similarity against spherical k-means and von Mises-Fisher mixtures."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import (
    Cosine,
    Euclidean,
    LearnedProjections,
    SharedSlices,
    Slices,
    VQBottleneck,
    VQEMBottleneck,
)
from tests.layers.bottlenecks import reference


def cosine_layer(codebook, **settings):
    settings = {"decay": 0.9, "seed": 1, "similarity": "cosine", **settings}
    layer = VQEMBottleneck(len(codebook), **settings)
    layer.build((None, codebook.shape[-1]))
    layer.codebook.assign(codebook[None])
    layer.counts.assign(np.ones((1, len(codebook))))
    return layer


@pytest.mark.parametrize("samples", [None, 6, "exact"])
def test_steps_follow_the_equations(samples, rng):
    x = 5.0 * rng.normal(size=(320, 3)) * rng.uniform(0.1, 2.0, size=(320, 1))
    sums, counts = reference.unit(rng.normal(size=(7, 3))), np.ones(7)
    layer = cosine_layer(sums, num_samples=samples, temperature=0.3)
    for batch in np.split(x.astype("float32"), 8):
        u, codes = reference.unit(batch.astype("float64")), reference.unit(sums)
        cosines = u @ codes.T
        # A mixture of von Mises-Fisher distributions of concentration 2 / T.
        p = np.exp(2 / 0.3 * (cosines - cosines.max(-1, keepdims=True)))
        p /= p.sum(-1, keepdims=True)
        np.testing.assert_allclose(layer.posterior(batch), p, rtol=1e-4, atol=1e-6)
        outputs = layer(batch, training=True)
        np.testing.assert_array_equal(outputs["codes"], cosines.argmax(-1))
        h = np.eye(7)[outputs["samples"]].mean(axis=1) if samples != "exact" else p
        np.testing.assert_allclose(
            outputs["quantized"], h @ codes, rtol=1e-4, atol=1e-5
        )
        # Moving averages of counts and of sums; the code is the direction of the sum.
        sums = 0.9 * sums + 0.1 * h.T @ u
        counts = 0.9 * counts + 0.1 * h.sum(0)
        np.testing.assert_allclose(
            layer.decode(np.arange(7)), reference.unit(sums), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            layer.codebook[0], sums / counts[:, None], rtol=1e-3, atol=1e-5
        )


def test_without_decay_a_step_is_one_of_spherical_kmeans(rng):
    x = rng.normal(size=(60, 4)).astype("float32")
    # No vector chooses the last code, since it is the opposite of their half-space.
    x[:, 0] = np.abs(x[:, 0]) + 3.0
    codes = np.concatenate([x[:4], [[-9.0, 0, 0, 0]]])
    layer = cosine_layer(codes, decay=0.0)
    before = layer.decode(np.arange(5)).numpy()
    layer(x, training=True)
    u = reference.unit(x.astype("float64"))
    nearest = (u @ reference.unit(codes).T).argmax(-1)
    after = layer.decode(np.arange(5)).numpy()
    for code in range(4):
        want = reference.unit(u[nearest == code].mean(0))
        np.testing.assert_allclose(after[code], want, atol=1e-5)
    np.testing.assert_array_equal(after[4], before[4])
    np.testing.assert_array_equal(layer.codebook[0][4], codes[4])


@pytest.mark.parametrize("groups", [None, Slices(2), SharedSlices(2)])
@pytest.mark.parametrize("kind", [VQEMBottleneck, VQBottleneck])
def test_decoders_get_unit_vectors(groups, kind, rng):
    layer = kind(5, groups=groups, similarity=Cosine(), initializer="random_normal")
    x = rng.normal(size=(30, 6)).astype("float32")
    outputs = layer(x, training=False)
    pieces = outputs["quantized"].numpy().reshape(30, -1, 6 if groups is None else 3)
    np.testing.assert_allclose(np.linalg.norm(pieces, axis=-1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(layer.decode(outputs["codes"]), outputs["quantized"])
    # The norm of a piece does not matter, and that of a code neither.
    np.testing.assert_array_equal(layer.encode(7.0 * x), outputs["codes"])
    layer.codebook.assign(layer.codebook * rng.uniform(0.5, 9.0, size=(5, 1)))
    np.testing.assert_array_equal(layer.encode(x), outputs["codes"])


@pytest.mark.parametrize("kind", [VQEMBottleneck, VQBottleneck])
def test_vectors_and_codes_of_zeros_are_finite(kind, rng):
    layer = kind(4, similarity="cosine", initializer="zeros")
    x = tf.constant([[0.0, 0.0], [1e-30, 0.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=True)
        loss = tf.reduce_sum(outputs["quantized"]) + layer.losses[0]
    values = [*outputs.values(), tape.gradient(loss, x), *layer.weights]
    assert all(np.isfinite(value).all() for value in values)


def test_the_gradient_passes_through_the_norm(rng):
    x = tf.constant(rng.normal(size=(5, 3)), "float32")
    g = rng.normal(size=(5, 3))
    layer = VQEMBottleneck(4, similarity="cosine", initializer="random_normal")
    layer(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(
            layer(x, training=False)["quantized"] * g.astype("float32")
        )
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    u = x / norm
    want = (g - u * np.sum(u * g, -1, keepdims=True)) / norm
    np.testing.assert_allclose(tape.gradient(loss, x), want, rtol=1e-4, atol=1e-5)


def test_similarities_are_saved_and_checked():
    @keras.saving.register_keras_serializable(package="test_similarities")
    class Doubled(Euclidean):
        def prepare(self, vectors):
            return 2.0 * vectors

    config = VQEMBottleneck(4, similarity=Cosine()).get_config()
    assert config["similarity"] == "cosine" and config["gradient"] == "straight_through"
    again = VQBottleneck.from_config(VQBottleneck(4, similarity=Doubled()).get_config())
    assert isinstance(again.similarity, Doubled)
    with pytest.raises(ValueError, match="'euclidean', 'cosine'.*'angle'"):
        VQEMBottleneck(4, similarity="angle")


@pytest.mark.parametrize("kind", [VQEMBottleneck, VQBottleneck])
def test_constructors_stay_small(kind):
    arguments = inspect.signature(kind).parameters.values()
    named = [a for a in arguments if a.kind is not inspect.Parameter.VAR_KEYWORD]
    assert len(named) <= 11


@pytest.mark.parametrize("number", [None, 1, 3])
def test_learned_projections(number, rng):
    x = rng.normal(size=(40, 6)).astype("float32")
    groups = LearnedProjections(number, dim=2)
    layer = VQEMBottleneck(5, groups=groups, decay=0.5, seed=1)
    layer(x, training=True)
    size = 2 * (number or 1)
    assert [(w.name, tuple(w.shape)) for w in layer.trainable_weights] == [
        ("inward_kernel", (6, size)),
        ("inward_bias", (size,)),
        ("outward_kernel", (size, 6)),
        ("outward_bias", (6,)),
    ]
    for weight in layer.trainable_weights:
        weight.assign(weight + 0.1 * rng.normal(size=weight.shape))
    inward, shift, outward, out_shift = (w.numpy() for w in layer.trainable_weights)
    g = rng.normal(size=(40, 6)).astype("float32")
    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs, training=False)
        loss = tf.reduce_sum(outputs["quantized"] * g)
    tail = () if number is None else (number,)
    assert outputs["codes"].shape == (40, *tail)
    assert layer.posterior(x).shape == (40, *tail, 5)
    pieces = (x @ inward + shift).reshape(40, -1, 2)
    codes = [
        reference.hard_e_step(pieces[:, c], table).argmax(-1)
        for c, table in enumerate(layer.codebook.numpy())
    ]
    np.testing.assert_array_equal(
        outputs["codes"], np.reshape(np.stack(codes, 1), (40, *tail))
    )
    q = np.concatenate([layer.codebook.numpy()[c][k] for c, k in enumerate(codes)], 1)
    np.testing.assert_allclose(
        outputs["quantized"], q @ outward + out_shift, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(layer.decode(layer.encode(x)), layer(x)["quantized"])
    # Straight through the codes: as if the codes were the projections themselves.
    through = g @ outward.T
    want = through @ inward.T, x.T @ through, through.sum(0), q.T @ g, g.sum(0)
    found = tape.gradient(loss, [inputs, *layer.trainable_weights])
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    again = VQEMBottleneck.from_config(layer.get_config()).groups
    assert again.get_config() == layer.groups.get_config() == groups.get_config()
