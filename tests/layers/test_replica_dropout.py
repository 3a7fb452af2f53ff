"""Dropout: what is kept, how often, and how it is scaled."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.2, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("jit", [False, True])
def test_units_are_dropped_at_the_rounded_rate(rate, jit):
    layer = layers.ReplicaDropout(rate, seed=3)
    call = tf.function(lambda x: layer(x, training=True), jit_compile=jit)
    inputs = np.random.default_rng(0).normal(size=(7, 201, 143)).astype("float32")
    found = call(inputs).numpy()
    dropped = min(max(round(rate * 256), 1), 255) / 256
    assert abs(dropped - rate) <= 1 / 256
    kept = found != 0
    spread = np.sqrt(dropped * (1 - dropped) / inputs.size)
    assert abs(kept.mean() - (1 - dropped)) < 5 * spread
    np.testing.assert_allclose(found[kept], inputs[kept] / (1 - dropped), rtol=1e-6)
    # Neighbours, in a word and beyond, are dropped independently of each other.
    flat = kept.ravel()
    for distance in (1, 2, 3, 4, 143):
        both = (flat[distance:] & flat[:-distance]).mean()
        assert abs(both - (1 - dropped) ** 2) < 8 * spread
    again = call(inputs).numpy() != 0
    if 0.05 < rate < 0.95:
        assert (again != kept).any()


def test_the_gradient_is_that_of_the_units_kept():
    layer = layers.ReplicaDropout(0.25, seed=1)
    x = tf.ones((5, 9))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=True)
    np.testing.assert_array_equal(tape.gradient(y, x), y)


def test_nothing_is_dropped_without_training_or_rate():
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(layers.ReplicaDropout(0.5)(x), x)
    np.testing.assert_array_equal(layers.ReplicaDropout(0)(x, training=True), x)
    assert layers.ReplicaDropout(0.5)(np.ones((0, 4)), training=True).shape == (0, 4)


def test_a_seed_repeats_the_noise_and_nan_is_dropped_too():
    x = np.full((64, 8), np.nan, "float32")
    found = [layers.ReplicaDropout(0.5, seed=7)(x, training=True) for _ in range(2)]
    np.testing.assert_array_equal(*found)
    assert 0.3 < np.mean(found[0] == 0) < 0.7
    half = layers.ReplicaDropout(0.5, seed=7, dtype="mixed_float16")
    assert keras.backend.standardize_dtype(half(x, training=True).dtype) == "float16"
