"""Soft EM without draws, against EM of a mixture of spherical Gaussians."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import Slices, VQEMBottleneck
from keras_vqem.layers.bottlenecks import posterior
from tests.layers.bottlenecks import reference


def exact_layer(codebook, counts=1.0, **settings):
    settings = {"temperature": 2.0, "decay": 0.9, **settings}
    layer = VQEMBottleneck(len(codebook), num_samples="exact", **settings)
    layer.build((None, codebook.shape[-1]))
    layer.codebook.assign(codebook[None])
    layer.counts.assign(np.full((1, len(codebook)), counts))
    return layer


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("with_prior", [False, True])
def test_steps_follow_the_equations(chunked, with_prior, rng, monkeypatch):
    if chunked:  # 5 rows at a time
        monkeypatch.setattr(posterior, "LOGITS_PER_CHUNK", 5 * 7)
    x = 2 * rng.normal(size=(8, 33, 3)).astype("float32")
    codebook, counts = rng.normal(size=(7, 3)), np.ones(7)
    layer = exact_layer(codebook)
    for batch in x:
        mask = rng.random(33) < 0.8
        prior = rng.normal(size=(33, 7)).astype("float32") if with_prior else None
        optional = {} if prior is None else {"prior_logits": prior}
        p = reference.posterior(batch, codebook, 2.0, 0.0 if prior is None else prior)
        np.testing.assert_allclose(
            layer.posterior(batch, **optional), p, rtol=1e-4, atol=1e-6
        )
        outputs = layer(batch, mask=mask, training=True, **optional)
        np.testing.assert_array_equal(outputs["codes"], p.argmax(-1))
        np.testing.assert_array_equal(outputs["samples"][:, 0], outputs["codes"])
        np.testing.assert_allclose(
            outputs["quantized"], p @ codebook, rtol=1e-4, atol=1e-5
        )
        codebook, counts = reference.ema_step(
            batch[mask], p[mask], codebook, counts, 0.9
        )
        np.testing.assert_allclose(layer.codebook[0], codebook, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.counts[0], counts, rtol=1e-5)
    kept = layer.perplexity.counts.numpy()
    assert kept.sum() == pytest.approx(layer.commitment.count.numpy(), rel=1e-5)


def test_without_decay_a_step_is_one_of_em_and_raises_the_likelihood(rng):
    # A mixture of Gaussians of equal weights and of variance T / 2 = 1.
    x = (rng.normal(size=(200, 2)) + 4 * rng.integers(0, 2, (200, 1))).astype("float32")
    layer = exact_layer(x[:3].astype("float64"), decay=0.0)

    def log_likelihood():
        squares = reference.squared_distances(x, layer.codebook[0].numpy())
        return np.log(np.exp(-squares / 2).mean(-1)).mean()

    before = log_likelihood()
    for _ in range(10):
        p = reference.posterior(x, layer.codebook[0].numpy(), 2.0)
        layer(x, training=True)
        want = p.T @ x / p.sum(0)[:, None]
        np.testing.assert_allclose(layer.codebook[0], want, rtol=1e-4, atol=1e-5)
        after = log_likelihood()
        assert after >= before - 1e-6
        before = after


def test_it_is_the_limit_of_many_draws(rng):
    x = rng.normal(size=(30, 2)).astype("float32")
    codebook = rng.normal(size=(5, 2))
    exact = exact_layer(codebook)
    drawn = VQEMBottleneck(5, num_samples=5000, temperature=2.0, decay=0.9, seed=1)
    drawn.build(x.shape)
    drawn.set_weights(exact.get_weights())
    a, b = (layer(x, training=True)["quantized"] for layer in (exact, drawn))
    np.testing.assert_allclose(a, b, atol=0.1)
    np.testing.assert_allclose(exact.codebook, drawn.codebook, atol=0.02)


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_codes_out_of_reach_stay(decay, rng):
    # Their posterior underflows to 0, or to less than a count can hold.
    far = [[[0, 0], [1, 1], [12.5, 0], [500, 500]]]
    layer = exact_layer(np.array(far[0], "float32"), decay=decay)
    for _ in range(5):
        layer(0.1 * rng.normal(size=(9, 2)).astype("float32"), training=True)
    np.testing.assert_array_equal(layer.codebook[0][2:], far[0][2:])


def test_codes_are_hard_outside_training(rng):
    layer = VQEMBottleneck(5, num_samples="exact", groups=Slices(2), seed=1)
    x = rng.normal(size=(4, 6, 8)).astype("float32")
    trained, called = layer(x, training=True), layer(x, training=False)
    assert {k: v.shape for k, v in trained.items()} == {
        k: v.shape for k, v in called.items()
    }
    np.testing.assert_array_equal(layer.decode(layer.encode(x)), called["quantized"])
    rows = layer.posterior(x).numpy()
    assert rows.shape == (4, 6, 2, 5)
    np.testing.assert_allclose(rows.sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(rows.argmax(-1), called["codes"])
    assert VQEMBottleneck.from_config(layer.get_config()).num_samples == "exact"
    with pytest.raises(ValueError, match="'exact' for soft EM without draws"):
        VQEMBottleneck(5, num_samples="all")


def test_the_gradient_passes_straight_through(rng):
    layer = VQEMBottleneck(5, num_samples="exact", seed=1)
    x = tf.constant(rng.normal(size=(9, 3)), "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(3.0 * layer(x, training=True)["quantized"])
    np.testing.assert_array_equal(tape.gradient(loss, x), np.full((9, 3), 3.0))
