"""Causal decoder and source encoder, and true words in the decoder's input."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import models
from tests.models import small


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    output = models.CausalOutput(gold_steps=100)
    model = small.latent_nmt(word_output=output, causal_encoder=True, bypass_steps=0)
    model = small.sharpen(model, rng)
    for _ in range(2):
        model(small.batch(rng, rows=8), training=True)
    return model


def write(model, latents, batch, **options):
    memory, mask = model.encode_source(batch["source_ids"])
    there = np.ones(latents.shape[:2], bool)
    return model._write(latents, there, memory, mask, **options)[0].numpy()


def first_change(a, b):
    """The first position of each row at which two arrays [B, P, ...] differ."""
    differ = np.abs(a - b).max(axis=-1) > 1e-6
    return np.where(differ.any(1), differ.argmax(1), a.shape[1]).tolist()


def test_a_position_sees_what_comes_before_it(model, rng):
    batch = small.batch(rng, rows=3)
    latents = rng.normal(size=(3, 4, model.hidden_dim)).astype("float32")
    before = write(model, latents, batch)
    # The input of the decoder is shifted: its first position sees nothing.
    x = model.word_output.decoder_inputs(
        model, latents, np.ones((3, 4), bool), *model.encode_source(batch["source_ids"])
    )[0].numpy()
    np.testing.assert_array_equal(x[:, 0], 0.0)
    plain = (
        models.PositionwiseOutput()
        .decoder_inputs(model, latents, np.ones((3, 4), bool), None, None)[0]
        .numpy()
    )
    np.testing.assert_array_equal(x[:, 1:], plain[:, :-1])
    # The decoder itself looks back only.
    memory, _ = model.encode_source(batch["source_ids"])
    changed = x.copy()
    changed[:, 9] = rng.normal(size=x[:, 9].shape)
    a, b = (model.decoder(part, memory).numpy() for part in (x, changed))
    assert first_change(a, b) == [9, 9, 9]
    assert before.shape[1] == 4 * 2**model.num_compress_steps


def test_a_source_position_sees_what_comes_before_it(model, rng):
    source_ids = small.sentences(rng, 2, 8)
    source_ids[:] = rng.integers(3, 29, size=source_ids.shape)
    changed = source_ids.copy()
    changed[:, 5] = 3 + (changed[:, 5] - 2) % 26
    a, b = (model.encode_source(ids)[0].numpy() for ids in (source_ids, changed))
    assert first_change(a, b) == [5, 5]


def test_share_of_true_words():
    output = models.CausalOutput(gold_steps=50_000)

    def want(step):
        linear = 0.01 + 0.99 * min(step / 50_000, 1)
        return 1 - linear * 0.01 ** (max(12_500 - step, 0) / 12_500)

    for step in (0, 1, 6_250, 12_500, 25_000, 50_000, 90_000):
        assert float(output.gold_share(step)) == pytest.approx(want(step), abs=1e-6)
    assert float(output.gold_share(0)) > 0.9998
    assert float(output.gold_share(50_000)) == 0.0


def test_true_words_are_seen_by_later_positions_only(model, rng, monkeypatch):
    monkeypatch.setattr(models.CausalOutput, "gold_share", lambda *_: 1.0)
    latents = np.zeros((2, 6, model.hidden_dim), "float32")
    batch = small.batch(rng, rows=2)
    ids = rng.integers(3, 29, size=(2, 20)).astype("int32")
    changed = ids.copy()
    changed[:, 7] = 3 + (changed[:, 7] - 2) % 26
    training = {"training": True, "target_ids": tf.constant(ids)}
    a = write(model, latents, batch, **training)
    b = write(model, latents, batch, **{**training, "target_ids": tf.constant(changed)})
    assert first_change(a, b) == [8, 8]
    # All inputs are words, and beyond them there are none.
    x = model.word_output.decoder_inputs(
        model, latents, np.ones((2, 6), bool), None, None, True, tf.constant(ids)
    )[0].numpy()
    np.testing.assert_allclose(x[:, 1:21], model.embedding(ids), rtol=1e-6)
    np.testing.assert_array_equal(x[:, 21:], 0.0)
    assert x.shape[1] == 24
    # Outside training nobody sees them.
    with_ids = write(model, latents, batch, target_ids=tf.constant(ids))
    np.testing.assert_array_equal(with_ids, write(model, latents, batch))


def test_true_words_give_way_to_codes(model, rng):
    latents = rng.normal(size=(64, 4, model.hidden_dim)).astype("float32")
    ids = rng.integers(3, 29, size=(64, 16)).astype("int32")
    gold = model.embedding(ids).numpy()
    steps = model.steps.numpy()
    try:
        for step in (0, 25, 50, 100):
            model.steps.assign(step)
            x = model.word_output.decoder_inputs(
                model, latents, np.ones((64, 4), bool), None, None, True, ids
            )[0].numpy()
            share = np.mean((x[:, 1:] == gold[:, :-1]).all(-1))
            want = float(model.word_output.gold_share(step))
            assert share == pytest.approx(want, abs=0.04)
    finally:
        model.steps.assign(steps)


def test_padding_changes_nothing(model, rng):
    batch = small.batch(rng, rows=3)
    longer = {
        key: np.pad(ids, [[0, 0], [0, 8]]).astype("int32") for key, ids in batch.items()
    }
    short, long = model.encode_ids(**batch), model.encode_ids(**longer)
    np.testing.assert_array_equal(short, long[:, : short.shape[1]])
    words = [
        model.decode_ids(ids["source_ids"], codes).numpy()
        for ids, codes in ((batch, short), (longer, long))
    ]
    width = min(x.shape[1] for x in words)
    np.testing.assert_array_equal(words[0][:, :width], words[1][:, :width])


def test_config_keeps_the_output(model):
    again = models.LatentNMT.from_config(model.get_config())
    assert again.word_output.gold_steps == 100
    assert again.decoder.causal and again.encoder.causal
    plain = small.latent_nmt()
    assert not plain.decoder.causal and not plain.encoder.causal
    with pytest.raises(ValueError, match="gold_steps"):
        models.CausalOutput(gold_steps=-1)
