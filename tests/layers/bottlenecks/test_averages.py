"""Moving averages of other forms: equation 4 to the letter, and the authors' start."""

import json

import keras
import numpy as np
import pytest

from keras_vqem.layers import (
    MovingAverages,
    PaperAverages,
    ReferenceAverages,
    VQEMBottleneck,
)
from tests.layers.bottlenecks import reference
from tests.layers.bottlenecks.test_vqem_bottleneck import blobs


def made(averages, codebook, **settings):
    """A layer that starts from a codebook [K, d]."""
    initializer = keras.initializers.Constant(codebook[None])
    layer = VQEMBottleneck(
        len(codebook), decay=averages, initializer=initializer, **settings
    )
    layer.build((None, codebook.shape[-1]))
    return layer


def with_an_unused_code(x, number=6):
    return np.concatenate([x[:number], [[60.0, 60.0, 60.0]]]).astype("float32")


def steps(layer, x, rng, soft):
    """Takes steps on masked batches; yields what counted and its assignments."""
    for batch in np.split(x, 8):
        mask = rng.random(len(batch)) < 0.8
        outputs = layer(batch, mask=mask, training=True)
        codes = outputs["samples"] if soft else outputs["codes"][:, None]
        h = np.eye(layer.num_codes)[codes].mean(axis=1)
        yield batch[mask].astype("float64"), h[mask]


@pytest.mark.parametrize("soft", [False, True])
def test_equation_4_to_the_letter(soft, rng):
    x = blobs(rng)
    start = with_an_unused_code(x)
    settings = {"num_samples": 5, "temperature": 4.0} if soft else {}
    layer = made(PaperAverages(0.9), start, seed=1, **settings)
    codebook, counts = start.astype("float64"), None
    for number, (batch, h) in enumerate(steps(layer, x, rng, soft)):
        if counts is None:
            counts = np.full(7, len(batch) / 7)
        codebook, counts = reference.paper_ema_step(batch, h, codebook, counts, 0.9)
        np.testing.assert_allclose(layer.codebook[0], codebook, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.counts[0], counts, rtol=1e-5)
        # What nobody uses shrinks, and would stay where it is by default.
        unused = 60.0 * 0.9 ** (number + 1)
        np.testing.assert_allclose(layer.codebook[0, -1], unused, rtol=1e-5)


@pytest.mark.parametrize("soft", [False, True])
def test_start_of_the_authors(soft, rng):
    x = blobs(rng)
    start = with_an_unused_code(x)
    settings = {"num_samples": 5, "temperature": 4.0} if soft else {}
    layer = made(ReferenceAverages(0.5), start, seed=1, **settings)
    sums, counts = start.astype("float64"), np.zeros(7)
    for number, (batch, h) in enumerate(steps(layer, x, rng, soft)):
        codebook, sums, counts = reference.authors_ema_step(batch, h, sums, counts, 0.5)
        np.testing.assert_allclose(layer.codebook[0], codebook, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(layer.counts[0], counts, rtol=1e-5, atol=1e-29)
        if number == 0:
            # 0.5 / 1e-5 times as far, less what smoothing takes.
            assert np.linalg.norm(layer.codebook[0, -1]) > 40_000 * 60


def test_initializer_of_the_authors():
    layer = VQEMBottleneck(
        1000, decay=ReferenceAverages(0.999), initializer="lecun_uniform"
    )
    layer.build((None, 8))
    limit = np.sqrt(3 / 1000)
    assert 0.99 * limit < np.abs(layer.codebook).max() <= limit


@pytest.mark.parametrize("averages", [PaperAverages(0.9), ReferenceAverages(0.9)])
def test_a_batch_without_vectors_before_the_first_one(averages, rng):
    x = blobs(rng, 40)
    layer = made(averages, x[:5])
    layer(x, mask=np.zeros(40, bool), training=True)
    assert (layer.counts.numpy() > 0).all()
    shrinks = 0.9 if isinstance(averages, PaperAverages) else 1.0
    np.testing.assert_allclose(layer.codebook[0], shrinks * x[:5], rtol=1e-6)
    layer.codebook.assign(x[None, :5])
    again = made(averages, x[:5])
    for one in (layer, again):
        one(x, training=True)
    np.testing.assert_allclose(layer.codebook, again.codebook, rtol=1e-6)


@pytest.mark.parametrize("averages", [PaperAverages(0.9), ReferenceAverages(0.9)])
def test_codes_without_a_place_wait(averages, rng):
    layer = VQEMBottleneck(20, decay=averages, seed=1)
    for batch in range(3):
        x = rng.normal(size=(8, 3)).astype("float32")
        layer(x, training=True)
        counts = layer.counts.numpy()[0]
        assert (counts > 0).sum() == min(8 * (batch + 1), 20)
        assert not layer.codebook.numpy()[0][counts == 0].any()
        assert np.isfinite(layer.codebook).all()


def test_a_number_is_the_default():
    layer = VQEMBottleneck(4, decay=0.9)
    assert type(layer.averages) is MovingAverages and layer.decay == 0.9
    assert layer.get_config()["decay"] == 0.9


def test_config_keeps_the_averages():
    layer = VQEMBottleneck(4, decay=ReferenceAverages(0.9, epsilon=0.01))
    config = json.loads(json.dumps(layer.get_config()))
    again = VQEMBottleneck.from_config(config)
    assert type(again.averages) is ReferenceAverages
    assert (again.decay, again.averages.epsilon) == (0.9, 0.01)


@pytest.mark.parametrize(
    "decay, message",
    [
        (1.0, "trainable=False"),
        ("paper", "at least 0 and below 1"),
        (keras.optimizers.schedules.ExponentialDecay(0.9, 1, 0.9), "below 1"),
    ],
)
def test_what_is_no_decay(decay, message):
    with pytest.raises(ValueError, match=message):
        VQEMBottleneck(4, decay=decay)


def test_epsilon_divides():
    with pytest.raises(ValueError, match="above 0"):
        ReferenceAverages(0.9, epsilon=0.0)
