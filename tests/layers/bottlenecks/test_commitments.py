"""The commitment loss as the paper's norm, beside the mean of squares."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import (
    NormCommitment,
    SquaredCommitment,
    VQBottleneck,
    VQEMBottleneck,
)
from tests.conformance.test_bottleneck_replicas import halves


def made(x, kind=VQEMBottleneck, **settings):
    codes = keras.initializers.Constant(np.asarray(x)[None, :5])
    return kind(5, initializer=codes, **settings)


def loss_and_gradient(layer, x, **call):
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        quantized = layer(x, **call)["quantized"]
        loss = layer.losses[0]
    return float(loss), tape.gradient(loss, x).numpy(), quantized.numpy()


@pytest.mark.parametrize("groups", [None, 2])
def test_norm_and_its_gradient(groups, rng):
    x = rng.normal(size=(30, 4)).astype("float32")
    mask = rng.random(30) < 0.6
    codes = keras.initializers.Constant(
        rng.normal(size=(groups or 1, 5, 4 // (groups or 1)))
    )
    layer = VQEMBottleneck(
        5, initializer=codes, groups=groups, commitment_weight=NormCommitment(0.3)
    )
    loss, gradient, quantized = loss_and_gradient(layer, x, mask=mask, training=False)
    difference = (x - quantized).reshape(30, groups or 1, -1)
    norms = np.linalg.norm(difference, axis=-1, keepdims=True)
    assert loss == pytest.approx(0.3 * np.mean(norms[mask]), rel=1e-5)
    assert float(layer.commitment.result()) == pytest.approx(loss / 0.3, rel=1e-5)
    want = 0.3 * difference / norms / norms[mask].size * mask[:, None, None]
    np.testing.assert_allclose(gradient, want.reshape(30, 4), rtol=1e-4, atol=1e-7)


def test_a_vector_that_is_its_code_is_left_alone(rng):
    x = rng.normal(size=(30, 4)).astype("float32")
    layer = made(x, commitment_weight=NormCommitment(1.0))
    _, gradient, _ = loss_and_gradient(layer, x, training=True)
    np.testing.assert_array_equal(gradient[:5], 0.0)
    # All others are drawn equally hard.
    norms = np.linalg.norm(gradient[5:], axis=-1)
    np.testing.assert_allclose(norms, 1 / 30, rtol=1e-4)


def test_codebook_by_gradient_has_the_norm_too(rng):
    x = rng.normal(size=(30, 4)).astype("float32")
    layer = made(x, VQBottleneck, commitment_weight=NormCommitment(0.5))
    loss, _, quantized = loss_and_gradient(layer, x, training=False)
    norm = np.mean(np.linalg.norm(x - quantized, axis=-1))
    assert loss == pytest.approx(np.mean((x - quantized) ** 2) + 0.5 * norm, rel=1e-5)


def test_exact_on_two_replicas(strategy, rng):
    x = rng.normal(size=(12, 4)).astype("float32")
    single = made(x, commitment_weight=NormCommitment(0.5))
    want = loss_and_gradient(single, x, training=True)[:2]
    with strategy.scope():
        double = made(x, commitment_weight=NormCommitment(0.5))
        double.build((None, 4))
    parts = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(halves(x, (9, 3))[context.replica_id_in_sync_group])
    )

    @tf.function
    def step(part):
        with tf.GradientTape() as tape:
            tape.watch(part)
            double(part, training=True)
            loss = sum(double.losses)
        return loss, tape.gradient(loss, part)

    losses, gradients = map(
        strategy.experimental_local_results, strategy.run(step, args=(parts,))
    )
    # Keras averages the terms of replicas, and their gradients.
    assert np.mean(losses) == pytest.approx(want[0], rel=1e-5)
    np.testing.assert_allclose(np.concatenate(gradients) / 2, want[1], rtol=1e-4)


def test_a_number_is_the_default():
    layer = VQEMBottleneck(4, commitment_weight=0.5)
    assert type(layer.commitment_loss) is SquaredCommitment
    assert layer.commitment_weight == layer.get_config()["commitment_weight"] == 0.5


@pytest.mark.parametrize("kind", [VQBottleneck, VQEMBottleneck])
def test_config_keeps_the_commitment(kind):
    layer = kind(4, commitment_weight=NormCommitment(0.5))
    again = kind.from_config(json.loads(json.dumps(layer.get_config())))
    assert type(again.commitment_loss) is NormCommitment
    assert again.commitment_weight == 0.5


@pytest.mark.parametrize("weight", [-1.0, "norm", None])
def test_what_is_no_weight(weight):
    with pytest.raises(ValueError, match="Use 0"):
        VQEMBottleneck(4, commitment_weight=weight)
