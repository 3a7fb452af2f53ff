"""What of the draws of soft EM goes to the decoder, and what to a predictor."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import Draws, ResidualBottleneck, VQEMBottleneck
from tests.layers.bottlenecks import reference
from tests.layers.bottlenecks.test_vqem_bottleneck import blobs, start_from

SOFT = {"temperature": 8.0, "decay": 0.9, "seed": 1}


@pytest.mark.parametrize("decoder", ["mean", "draw", "mode"])
def test_what_the_decoder_gets(decoder, rng):
    x = blobs(rng)
    codebook, counts = x[:7].astype("float64"), np.ones(7)
    layer = start_from(VQEMBottleneck(7, Draws(6, decoder), **SOFT), codebook)
    plain = start_from(VQEMBottleneck(7, 6, **SOFT), codebook)
    for batch in np.split(x, 4):
        inputs = tf.constant(batch)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=True)
            loss = tf.reduce_sum(3.0 * outputs["quantized"])
        samples = outputs["samples"].numpy()
        mode = reference.hard_e_step(batch, codebook).argmax(-1)
        sent = {"mean": samples, "draw": samples[:, :1], "mode": mode[:, None]}
        want = codebook[sent[decoder]].mean(axis=1)
        np.testing.assert_allclose(outputs["quantized"], want, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(outputs["codes"], mode)
        # Commitment to what the decoder got; its gradient passes straight through.
        loss_of_commitment = 0.25 * np.mean((batch - want) ** 2)
        assert float(layer.losses[0]) == pytest.approx(loss_of_commitment, rel=1e-4)
        np.testing.assert_array_equal(
            tape.gradient(loss, inputs), np.full_like(x[:100], 3)
        )
        # All draws count in the M step, whatever was sent.
        h = np.eye(7)[samples].mean(axis=1)
        codebook, counts = reference.ema_step(batch, h, codebook, counts, 0.9)
        np.testing.assert_allclose(layer.codebook[0], codebook, rtol=1e-4, atol=1e-5)
        plain(batch, training=True)
    assert len(np.unique(samples)) > 1
    np.testing.assert_array_equal(layer.codebook, plain.codebook)
    np.testing.assert_array_equal(layer(x)["quantized"], plain(x)["quantized"])


def test_hard_labels_of_soft_em(rng):
    x = blobs(rng)
    hard = VQEMBottleneck(7, Draws(6, labels="mode"), **SOFT)
    soft = VQEMBottleneck(7, Draws(6), **SOFT)
    for training in (True, True, False):
        a, b = hard(x, training=training), soft(x, training=training)
        np.testing.assert_array_equal(a["samples"], a["codes"][:, None])
        assert b["samples"].shape == (400, 6)
        # Everything else is as it was.
        np.testing.assert_array_equal(a["quantized"], b["quantized"])
        np.testing.assert_array_equal(a["codes"], b["codes"])
    np.testing.assert_array_equal(hard.codebook, soft.codebook)
    assert hard.num_samples == 6 and hard.num_labels == 1


def test_configs():
    assert VQEMBottleneck(4, Draws(6)).get_config()["num_samples"] == 6
    layer = VQEMBottleneck(4, Draws(6, "mode", "mode"))
    again = VQEMBottleneck.from_config(json.loads(json.dumps(layer.get_config())))
    assert again.draws.get_config() == layer.draws.get_config()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Draws(0), "at least 1"),
        (lambda: Draws("exact"), "Use None for hard EM"),
        (lambda: Draws(5, decoder="median"), "'mean', 'draw', 'mode'"),
        (lambda: Draws(5, labels="soft"), "'draws', 'mode'"),
        (lambda: VQEMBottleneck(4, Draws(5), gradient="rotation"), "one code"),
    ],
)
def test_wrong_draws(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_levels_agree_on_their_labels():
    levels = [VQEMBottleneck(4, 5), VQEMBottleneck(4, Draws(5, labels="mode"))]
    with pytest.raises(ValueError, match="num_labels"):
        ResidualBottleneck(levels)
