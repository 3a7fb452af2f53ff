"""VQ, Gumbel-Softmax, semantic hashing and Gaussian against their equations."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import (
    GaussianBottleneck,
    GumbelSoftmaxBottleneck,
    SemanticHashingBottleneck,
    VQBottleneck,
    VQEMBottleneck,
)
from tests.layers.bottlenecks import reference

schedules = keras.optimizers.schedules


def test_vq_losses_and_gradients(rng):
    x = tf.constant(rng.normal(size=(30, 4)).astype("float32"))
    layer = VQBottleneck(6, commitment_weight=0.4, initializer="random_normal")
    layer.build((None, 4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=True)
        loss = layer.losses[0]
    to_x, to_codebook = tape.gradient(loss, [x, layer.codebook.value])
    codebook = layer.codebook[0].numpy()
    h = reference.hard_e_step(x.numpy(), codebook)
    np.testing.assert_array_equal(outputs["codes"], h.argmax(-1))
    difference = x.numpy() - h @ codebook
    assert float(loss) == pytest.approx(1.4 * np.mean(difference**2), rel=1e-5)
    # beta acts on the encoder's term, not on the codebook's.
    np.testing.assert_allclose(
        to_x, 0.4 * 2 * difference / x.shape.num_elements(), atol=1e-6
    )
    dense = tf.convert_to_tensor(to_codebook)[0]
    np.testing.assert_allclose(
        dense, -2 * h.T @ difference / x.shape.num_elements(), atol=1e-6
    )


def test_gumbel_draws_follow_the_softmax(rng):
    x = np.repeat(rng.normal(size=(1, 4)), 20_000, axis=0).astype("float32")
    layer = GumbelSoftmaxBottleneck(5, temperature=0.7, seed=1)
    outputs = layer(x, training=True)
    logits = x[0] @ layer.kernel[0].numpy() + layer.bias[0, 0].numpy()
    p = np.exp(logits) / np.exp(logits).sum()
    seen = np.bincount(outputs["samples"].numpy().ravel(), minlength=5) / len(x)
    np.testing.assert_allclose(seen, p, atol=5 * np.sqrt(0.25 / len(x)))
    np.testing.assert_array_equal(outputs["codes"], logits.argmax())
    # KL from uniform, in nats.
    kl = np.sum(p * np.log(p * 5))
    assert float(layer.losses[0]) == pytest.approx(0.001 * kl, rel=1e-4)


def test_gumbel_hardens_as_the_temperature_falls(rng):
    x = rng.normal(size=(200, 4)).astype("float32")
    distances = []
    for temperature in (2.0, 0.5, 0.01):
        layer = GumbelSoftmaxBottleneck(5, temperature=temperature, seed=1)
        layer.build((None, 4))
        keras.utils.set_random_seed(3)
        layer.codebook.assign(rng.normal(size=(1, 5, 4)))
        outputs = layer(x, training=True)
        hard = layer.codebook[0].numpy()[outputs["samples"][:, 0]]
        distances.append(np.abs(outputs["quantized"] - hard).mean())
    assert distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.05


def test_a_temperature_may_fall_to_0(rng):
    schedule = schedules.PolynomialDecay(1.0, 2, 0.0)
    layer = GumbelSoftmaxBottleneck(5, temperature=schedule, seed=1)
    for _ in range(4):
        outputs = layer(rng.normal(size=(9, 4)).astype("float32"), training=True)
        assert np.isfinite(outputs["quantized"]).all()


def test_gumbel_straight_through_sends_code_vectors(rng):
    x = tf.constant(rng.normal(size=(20, 4)).astype("float32"))
    layer = GumbelSoftmaxBottleneck(5, temperature=1.0, straight_through=True, seed=1)
    layer.build((None, 4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=True)
        loss = tf.reduce_sum(outputs["quantized"])
    np.testing.assert_allclose(
        outputs["quantized"],
        layer.codebook[0].numpy()[outputs["samples"][:, 0]],
        atol=1e-6,
    )
    to_x, to_kernel, to_codebook = tape.gradient(
        loss, [x, layer.kernel.value, layer.codebook.value]
    )
    assert np.abs(to_x).max() > 0 and np.abs(to_kernel).max() > 0
    # Each code vector is blamed for the vectors that it stood for.
    counts = np.bincount(outputs["samples"].numpy().ravel(), minlength=5)
    dense = tf.convert_to_tensor(to_codebook)[0]
    np.testing.assert_allclose(dense, np.repeat(counts[:, None], 4, -1), atol=1e-5)


@pytest.mark.parametrize("layer_class", ["gumbel", "em", "hashing"])
def test_schedules_count_training_steps(layer_class, rng):
    x = rng.normal(size=(8, 4)).astype("float32")
    schedule = schedules.PolynomialDecay(0.9, 10, 0.1)
    if layer_class == "gumbel":
        layer = GumbelSoftmaxBottleneck(5, temperature=schedule)
        scheduled = layer.temperature
    elif layer_class == "em":
        layer = VQEMBottleneck(5, num_samples=2, temperature=schedule)
        scheduled = layer.temperature
    else:
        layer = SemanticHashingBottleneck(3, discrete_rate=schedule)
        scheduled = layer.discrete_rate
    layer(x)
    for step in range(4):
        assert float(scheduled.value()) == pytest.approx(0.9 - 0.08 * step, rel=1e-5)
        layer(x, training=True)
        layer(x, training=False)
    layer.trainable = False
    layer(x, training=True)
    assert float(scheduled.value()) == pytest.approx(0.9 - 0.08 * 4, rel=1e-5)


def test_semantic_hashing_by_hand(rng):
    x = rng.normal(size=(50, 6)).astype("float32")
    layer = SemanticHashingBottleneck(4, noise=0.0, discrete_rate=0.0)
    soft = layer(x, training=True)["quantized"]
    v = x @ layer.kernel[0].numpy()
    saturated = np.clip(1.2 / (1 + np.exp(-v)) - 0.1, 0, 1)
    np.testing.assert_allclose(
        soft, saturated @ layer.output_kernel[0].numpy(), atol=1e-5
    )
    bits = (v > 0).astype(int)
    np.testing.assert_array_equal(layer.encode(x), bits @ [1, 2, 4, 8])
    np.testing.assert_allclose(
        layer(x)["quantized"], bits @ layer.output_kernel[0].numpy(), atol=1e-5
    )


def test_semantic_hashing_mixes_whole_examples(rng):
    x = rng.normal(size=(400, 5, 6)).astype("float32")
    layer = SemanticHashingBottleneck(4, noise=0.0, discrete_rate=0.3, seed=1)
    mixed = layer(x, training=True)["quantized"].numpy()
    hard = layer(x)["quantized"].numpy()
    is_hard = np.isclose(mixed, hard, atol=1e-6).all(-1)
    by_example = is_hard.all(1)
    assert 0.2 < by_example.mean() < 0.4
    # An example that is not all hard is soft; only saturated rows look hard in it.
    assert is_hard[~by_example].mean() < 0.5


def test_semantic_hashing_gradient_passes_the_rounding(rng):
    x = tf.constant(rng.normal(size=(10, 6)).astype("float32"))
    layer = SemanticHashingBottleneck(4, noise=0.0, discrete_rate=1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=True)
    np.testing.assert_allclose(outputs["quantized"], layer(x)["quantized"], atol=1e-6)
    assert np.abs(tape.gradient(outputs["quantized"], x)).max() > 0


def test_gaussian_moments_and_kl(rng):
    x = np.repeat(rng.normal(size=(1, 4)), 50_000, axis=0).astype("float32")
    layer = GaussianBottleneck(3, kl_weight=0.5, seed=1)
    outputs = layer(x, training=True)
    mean, variance = outputs["mean"][0], np.exp(outputs["log_variance"][0])
    np.testing.assert_allclose(np.mean(outputs["quantized"], 0), mean, atol=0.05)
    np.testing.assert_allclose(np.var(outputs["quantized"], 0), variance, rtol=0.05)
    kl = 0.5 * np.sum(mean**2 + variance - 1 - np.log(variance))
    np.testing.assert_allclose(outputs["kl"], kl, rtol=1e-4)
    assert float(layer.losses[0]) == pytest.approx(0.5 * kl, rel=1e-4)
    assert float(layer.kl.result()) == pytest.approx(kl, rel=1e-4)
    np.testing.assert_array_equal(layer(x)["quantized"], layer.encode(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GumbelSoftmaxBottleneck(8, temperature=0.0), "above 0"),
        (lambda: GumbelSoftmaxBottleneck(8, temperature="low"), "schedule"),
        (lambda: SemanticHashingBottleneck(21), "from 1 to 20"),
        (lambda: SemanticHashingBottleneck(4, noise=-1.0), "negative"),
        (lambda: SemanticHashingBottleneck(4, discrete_rate=1.5), "from 0 to 1"),
        (lambda: GaussianBottleneck(0), "at least 1"),
        (lambda: VQBottleneck(1), "at least 2"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
