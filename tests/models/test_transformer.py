"""Transformer: cached decoding is the uncached one, the loss is the equation's."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import models
from tests.models import small


def uncached_logits(model, source_ids, prefix):
    """[V] logits of the next id, from the whole model called on the whole prefix."""
    target_ids = np.array([[*prefix, 0]], "int32")
    return model({"source_ids": source_ids, "target_ids": target_ids})[0, -1].numpy()


def uncached_greedy(model, source_ids, limit):
    prefix = []
    while len(prefix) < limit and (not prefix or prefix[-1] != 1):
        prefix.append(int(np.argmax(uncached_logits(model, source_ids, prefix))))
    return prefix


def log_softmax(x):
    x = x - x.max()
    return x - np.log(np.exp(x).sum())


def uncached_beams(model, source_ids, limit, num_beams, alpha):
    """Finished hypotheses, best first, by a search that keeps nothing but prefixes."""

    def penalty(length):
        return ((5 + length) / 6) ** alpha

    live, ended = [([], 0.0)], []
    for position in range(limit):
        candidates = []
        for prefix, total in live:
            scores = log_softmax(uncached_logits(model, source_ids, prefix))
            candidates += [([*prefix, i], total + s) for i, s in enumerate(scores)]
        candidates.sort(key=lambda c: -c[1])
        best = candidates[:num_beams]
        ended += [(p, t / penalty(len(p))) for p, t in best if p[-1] == 1]
        live = [c for c in candidates if c[0][-1] != 1][:num_beams]
        if position == limit - 1 and len(ended) < num_beams:
            ended += [(p, t / penalty(len(p))) for p, t in live]
    return [prefix for prefix, _ in sorted(ended, key=lambda c: -c[1])]


@pytest.fixture
def model(rng):
    return small.sharpen(small.transformer(), rng, scale=1.5)


def strip(row):
    return [int(i) for i in row if i]


def test_greedy_equals_the_uncached_model(model, rng):
    source_ids = small.sentences(rng, 5, 6)
    found = model.translate_ids(source_ids, max_length=12).numpy()
    for row, source in zip(found, source_ids, strict=True):
        alone = source[source > 0][None]
        assert strip(row) == uncached_greedy(model, alone, 12)
    assert len({tuple(row) for row in found.tolist()}) > 1


def test_beam_search_equals_the_uncached_model(model, rng):
    source_ids = small.sentences(rng, 4, 6)
    found = model.translate_ids(source_ids, num_beams=3, max_length=8).numpy()
    for row, source in zip(found, source_ids, strict=True):
        alone = source[source > 0][None]
        assert strip(row) == uncached_beams(model, alone, 8, 3, 0.6)[0]


def test_default_limit_is_twice_the_source_and_ten(model, rng):
    # Never allowed to end, every row runs into its own limit.
    source_ids = small.sentences(rng, 4, 9)
    found = model.translate_ids(source_ids, min_length=99).numpy()
    limits = 2 * (source_ids > 0).sum(1) + 10
    assert found.shape[1] == limits.max() and (found != 1).all()
    for row, limit in zip(found, limits, strict=True):
        assert (row[limit:] == 0).all()


def test_one_long_line_among_short_ones(model):
    texts = ["abc", "xyz" * 100, "b"]
    found = model.translate(texts, batch_size=3, max_length=5)
    assert found == [model.translate([t], max_length=5)[0] for t in texts]


def test_a_new_model_translates_before_it_is_called():
    model = models.Transformer(small.LetterTokenizer(), **small.SIZES)
    assert len(model.translate(["abc"], max_length=2)) == 1


def test_options_without_a_meaning_are_refused(model):
    with pytest.raises(ValueError, match="at least 1, received 0"):
        model.translate(["a"], batch_size=0)
    with pytest.raises(ValueError, match="Call `translate_ids`"):
        model.translate(["a"], max_length=np.array([3]))


def test_loss_is_smoothed_cross_entropy_over_tokens(model, rng):
    inputs = small.batch(rng)
    model.compile(label_smoothing=0.1)
    logits = model(inputs).numpy().astype("float64")
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    labels = np.full(logits.shape, 0.1 / 29)
    rows, columns = np.indices(inputs["target_ids"].shape)
    labels[rows, columns, inputs["target_ids"]] += 0.9
    real = inputs["target_ids"] > 0
    expected = -(labels * logits).sum(-1)[real].mean()
    found = model.compute_loss(x=inputs, y_pred=model(inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    plain = -logits[rows, columns, inputs["target_ids"]][real].mean()
    np.testing.assert_allclose(model.token_nll.result(), plain, rtol=1e-5)


def test_consistency_is_the_divergence_of_two_passes(rng):
    model = small.sharpen(small.transformer(dropout=0.3), rng)
    inputs = small.batch(rng)
    model.compile(label_smoothing=0.0, consistency_weight=2.5)
    passes = model(inputs, training=True)
    found = model.compute_loss(x=inputs, y_pred=passes)
    logits = passes.numpy().astype("float64")
    p, q = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    real = inputs["target_ids"] > 0
    apart = ((np.exp(p) * (p - q)).sum(-1) + (np.exp(q) * (q - p)).sum(-1)) / 2
    assert apart[real].mean() > 0.001
    rows, columns = np.indices(real.shape)
    nll = -np.stack([x[rows, columns, inputs["target_ids"]][real] for x in (p, q)])
    expected = nll.mean() + 2.5 * apart[real].mean()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(
        model.consistency.result(), apart[real].mean(), rtol=1e-5
    )


@pytest.mark.slow
def test_consistency_is_for_training_only(rng, tmp_path):
    model = small.transformer(dropout=0.3)
    model.compile(consistency_weight=1.0)
    inputs = small.batch(rng)
    data = tf.data.Dataset.from_tensors(inputs)
    history = model.fit(data, validation_data=data, verbose=0).history
    assert history["consistency"][0] > 0 and history["val_consistency"][0] == 0
    assert model(inputs).shape == (*inputs["target_ids"].shape, 29)
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").consistency_weight == 1.0
    model.compile()
    assert set(model.fit(data, verbose=0).history) == {"loss", "token_nll"}


def test_no_position_sees_what_comes_after(model, rng):
    inputs = small.batch(rng)
    before = model(inputs).numpy()
    changed = inputs["target_ids"].copy()
    changed[:, 5:] = 7
    after = model({**inputs, "target_ids": changed}).numpy()
    np.testing.assert_allclose(before[:, :6], after[:, :6], atol=1e-5)
    assert np.abs(before[:, 6:] - after[:, 6:]).max() > 1e-3


def test_twelve_and_one_layers(rng):
    model = small.transformer(num_encoder_layers=12, num_decoder_layers=1)
    assert len(model.encoder.blocks) == 12 and len(model.decoder.blocks) == 1
    assert model.translate_ids(small.sentences(rng, 2, 4), max_length=3).shape[0] == 2


def copying(rng, rows=256):
    ids = small.sentences(rng, rows, 4, low=24)
    return {"source_ids": ids, "target_ids": ids}


def test_it_learns_to_copy_and_translates_in_order(rng):
    model = small.transformer()
    model.compile(keras.optimizers.Adam(0.01), label_smoothing=0.0)
    data = tf.data.Dataset.from_tensors(copying(rng)).repeat()
    model.fit(data, steps_per_epoch=250, verbose=0)
    texts = ["vwx", "z", "yy", "w", "zv"]
    assert model.translate(texts, batch_size=2) == texts
    assert model.translate(texts, num_beams=2) == texts
    assert model.translate([]) == []


def test_a_single_string_is_refused():
    with pytest.raises(ValueError, match=r"translate\(\['abc'\]\)"):
        small.transformer().translate("abc")


def test_saved_model_is_the_same_in_a_new_object(rng, tmp_path):
    model = small.sharpen(small.transformer(), rng)
    model.compile(label_smoothing=0.2)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    inputs = small.batch(rng)
    np.testing.assert_array_equal(model(inputs), again(inputs))
    assert again.label_smoothing == 0.2
    assert again.translate(["abc"]) == model.translate(["abc"])


def test_a_text_without_end_is_cut_with_a_warning(rng):
    model = small.sharpen(small.transformer(), rng)
    texts = ["abc" * 5, "hallo", "z" * 10**6]
    with pytest.warns(UserWarning, match="2 of 3 texts have more than 9 tokens"):
        found = model.translate(texts, max_tokens=9, max_length=5)
    expected = model.translate([text[:8] for text in texts], max_length=5)
    assert found == expected and len(set(found)) == 3
    with pytest.raises(ValueError, match="`max_tokens` must be at least 2"):
        model.translate(texts, max_tokens=1)
