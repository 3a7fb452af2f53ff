"""A mixture that learns its weights, against the equations of EM."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import LearnedPriorVQEMBottleneck, VQEMBottleneck
from tests.layers.bottlenecks import reference
from tests.layers.bottlenecks.test_vqem_bottleneck import blobs, start_from


def log_prior(counts):
    share = counts / counts.sum() + 1e-4 / len(counts)
    return np.log(share / (1 + 1e-4))


@pytest.mark.parametrize("num_samples", [None, "exact", 6])
def test_steps_follow_the_equations(num_samples, rng):
    x = blobs(rng)
    # The last code is far from everything: its weight falls, and stays above 0.
    codebook = np.concatenate([x[:6], [[1e3, 1e3, 1e3]]]).astype("float64")
    counts = np.linspace(0.5, 2, 7)
    layer = LearnedPriorVQEMBottleneck(
        7, num_samples, temperature=5.0, decay=0.8, seed=1
    )
    start_from(layer, codebook, counts)
    for batch in np.split(x, 8):
        mask = rng.random(len(batch)) < 0.8
        p = reference.posterior(batch, codebook, 5.0, log_prior(counts))
        np.testing.assert_allclose(layer.posterior(batch), p, rtol=1e-3, atol=1e-4)
        outputs = layer(batch, mask=mask, training=True)
        np.testing.assert_array_equal(outputs["codes"], p.argmax(-1))
        h = {None: np.eye(7)[p.argmax(-1)], "exact": p}.get(num_samples)
        if h is None:
            h = np.eye(7)[outputs["samples"]].mean(axis=1)
        np.testing.assert_allclose(
            outputs["quantized"], h @ codebook, rtol=1e-3, atol=1e-3
        )
        codebook, counts = reference.ema_step(
            batch[mask], h[mask], codebook, counts, 0.8
        )
        np.testing.assert_allclose(layer.codebook[0], codebook, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(layer.counts[0], counts, rtol=1e-3, atol=1e-4)


def test_draws_come_from_the_weighted_posterior(rng):
    x = blobs(rng, 20)
    layer = LearnedPriorVQEMBottleneck(8, temperature=5.0, seed=1)
    counts = np.geomspace(1, 100, 8)
    start_from(layer, blobs(rng, 8), counts)
    rows = layer.assignments(layer.sample(x, 4000)).numpy()
    exact = reference.posterior(
        x, layer.codebook[0].numpy().astype("float64"), 5.0, log_prior(counts)
    )
    assert np.abs(rows - exact).max() < 0.05
    # A prior of the call is added.
    logits = 2 * rng.normal(size=(20, 8)).astype("float32")
    exact = reference.posterior(
        x, layer.codebook[0].numpy().astype("float64"), 5.0, log_prior(counts) + logits
    )
    np.testing.assert_allclose(layer.posterior(x, logits), exact, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(layer.encode(x, logits), exact.argmax(-1))


def test_codes_that_were_never_used_stay_within_reach(rng):
    layer = LearnedPriorVQEMBottleneck(4, decay=0.0, temperature=1.0)
    start = 3 * np.eye(4, 2, dtype="float32") + [[0, 0], [0, 0], [9, 9], [-9, 9]]
    start_from(layer, start.astype("float32"))
    for _ in range(50):
        layer(start[:2].astype("float32"), training=True)
    assert np.isfinite(layer._log_weights(layer.counts)).all()
    assert layer.encode(start.astype("float32")).numpy().tolist() == [0, 1, 2, 3]


def test_equal_counts_change_nothing(rng):
    x = blobs(rng)
    layers = [
        start_from(kind(7, seed=1), x[:7])
        for kind in (VQEMBottleneck, LearnedPriorVQEMBottleneck)
    ]
    first, second = (layer(x, training=True) for layer in layers)
    np.testing.assert_array_equal(first["codes"], second["codes"])


def final_perplexity(kind, x, num_samples):
    """Perplexity in the last of 20 epochs of batches of x."""
    layer = kind(64, num_samples, temperature=2.0, decay=0.9, seed=0)
    step = tf.function(lambda batch: layer(batch, training=True))
    for _ in range(20):
        layer.perplexity.reset_state()
        for batch in np.split(x, 16):
            step(tf.constant(batch))
    return float(layer.perplexity.result())


@pytest.mark.slow
@pytest.mark.parametrize("num_samples, most", [(None, 2), (10, 42)])
def test_learned_weights_collapse(num_samples, most, rng):
    # The observation for which the paper keeps them equal.
    x = rng.normal(size=(2048, 8)).astype("float32")
    assert final_perplexity(VQEMBottleneck, x, num_samples) > 60
    assert final_perplexity(LearnedPriorVQEMBottleneck, x, num_samples) < most
