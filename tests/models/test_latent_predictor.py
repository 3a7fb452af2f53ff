"""LatentPredictor: its searches are those of the uncached model."""

import keras
import numpy as np
import pytest

from keras_vqem import models
from tests.models import small


def make(rng):
    keras.utils.set_random_seed(1)
    model = models.LatentPredictor(
        num_codes=11,
        hidden_dim=16,
        num_layers=2,
        num_heads=2,
        intermediate_dim=32,
        dropout=0.0,
    )
    model.build()
    return small.sharpen(model, rng, scale=1.5)


def test_greedy_search_equals_the_uncached_model(rng):
    model = make(rng)
    memory = rng.normal(size=(6, 5, 16)).astype("float32")
    mask = np.arange(5)[None] < np.array([5, 4, 3, 2, 1, 5])[:, None]
    found = model.search(memory, mask, max_length=7).numpy()
    for row in range(6):
        codes, kept = [], slice(row, row + 1)
        while len(codes) < 7 and (not codes or codes[-1] != 11):
            prefix = np.array([codes], "int32").reshape(1, -1)
            logits = model(prefix, memory[kept], memory_mask=mask[kept])
            codes.append(int(np.argmax(logits[0, -1])))
        expected = codes + [11] * (found.shape[1] - len(codes))
        assert found[row].tolist() == expected
    assert len({tuple(row) for row in found.tolist()}) > 1


def test_sampling_follows_the_seed_and_the_distribution(rng):
    model = make(rng)
    memory = np.repeat(rng.normal(size=(1, 3, 16)).astype("float32"), 4000, axis=0)
    draws = model.search(memory, max_length=1, temperature=1.0, seed=[1, 2]).numpy()
    again = model.search(memory, max_length=1, temperature=1.0, seed=[1, 2]).numpy()
    np.testing.assert_array_equal(draws, again)
    logits = model(np.zeros((1, 0), "int32"), memory[:1])[0, 0].numpy()
    expected = np.exp(logits - np.logaddexp.reduce(logits))
    shares = np.bincount(draws[:, 0], minlength=12) / 4000
    np.testing.assert_allclose(shares, expected, atol=0.04)


def test_beam_search_never_scores_less_than_greedy(rng):
    model = make(rng)
    memory = rng.normal(size=(8, 5, 16)).astype("float32")

    def score(codes):
        logits = model(codes, memory).numpy()
        logits -= np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return np.array(
            [sum(logits[row, i, codes[row, i]] for i in range(3)) for row in range(8)]
        )

    # With a fixed number of codes the length penalty has no say.
    limits = {"max_length": 3, "min_length": 4}
    greedy = model.search(memory, **limits).numpy()
    beam = model.search(memory, num_beams=8, **limits).numpy()
    assert (score(beam) >= score(greedy) - 1e-5).all()
    assert (score(beam) > score(greedy) + 1e-5).any()


def test_sampling_says_what_it_needs(rng):
    model = make(rng)
    memory = np.zeros((1, 3, 16), "float32")
    with pytest.raises(ValueError, match="needs two integers as `seed`"):
        model.search(memory, max_length=1, temperature=1.0)
    with pytest.raises(ValueError, match="num_beams=2"):
        model.search(memory, max_length=1, temperature=1.0, seed=[1, 2], num_beams=2)
