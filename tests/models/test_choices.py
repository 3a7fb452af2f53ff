"""Several translations per sentence: the beams of the search, or samples."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import decoding, layers
from tests.models import small
from tests.models.test_transformer import log_softmax, uncached_beams, uncached_logits

TEXTS = ["twenty-one", " ", "the third of May, nineteen ten"]


def strip(row):
    return [int(i) for i in row if i]


@pytest.fixture
def transformer(rng):
    return small.sharpen(small.transformer(), rng, scale=1.5)


@pytest.fixture
def ctc(rng):
    return small.sharpen(small.ctc_translator(), rng, scale=1.5)


def test_beams_are_those_of_the_uncached_model(transformer, rng):
    source_ids = small.sentences(rng, 3, 6)
    options = {"num_beams": 4, "max_length": 7}
    found = transformer.generate(source_ids, num_return_sequences=3, **options)
    first = transformer.generate(source_ids, **options)
    assert found["target_ids"].shape[:2] == found["scores"].shape == (3, 3)
    for row, source in enumerate(source_ids):
        alone = source[source > 0][None]
        texts = [strip(ids) for ids in found["target_ids"][row].numpy()]
        assert texts == uncached_beams(transformer, alone, 7, 4, 0.6)[:3]
        assert texts[0] == strip(first["target_ids"][row].numpy())
        seen = transformer.encode_source(alone)
        for text, score in zip(texts, found["scores"][row], strict=True):
            expected = transformer.mean_log_probs(np.array([text], "int32"), *seen)[0]
            np.testing.assert_allclose(score, expected, rtol=1e-4)


def test_one_of_one_is_the_translation_with_an_axis(transformer, ctc, rng):
    source_ids = small.sentences(rng, 3, 5)
    for model in (transformer, ctc):
        plain = model.generate(source_ids)
        found = model.generate(source_ids, num_return_sequences=1)
        for name, value in plain.items():
            np.testing.assert_allclose(found[name][:, 0], value, rtol=1e-4)


def test_samples_follow_the_distribution_of_the_model(transformer, rng):
    source_ids = small.sentences(rng, 1, 5)
    logits = uncached_logits(transformer, source_ids, [])
    for temperature in (1.0, 0.5):
        found = transformer.generate(
            source_ids, temperature=temperature, max_length=1, num_return_sequences=4000
        )
        ids = found["target_ids"].numpy()
        shares = np.bincount(ids[0, :, 0], minlength=29) / 4000
        expected = np.exp(log_softmax(logits / temperature))
        np.testing.assert_allclose(shares, expected, atol=0.03)
        # Scores are those of the model, whatever the temperature, and fall.
        scores = found["scores"][0].numpy()
        own = log_softmax(logits)[ids[0, :, 0]]
        there = ids[0, :, 0] > 0  # A padding id that was drawn has no probability.
        np.testing.assert_allclose(scores[there], own[there], rtol=1e-4)
        assert (np.diff(scores) <= 0).all()


def test_the_seed_decides_on_the_samples(transformer, rng):
    source_ids = small.sentences(rng, 3, 5)
    options = {"temperature": 1.0, "num_return_sequences": 4}

    def draw(**more):
        return transformer.translate_ids(source_ids, **options, **more).numpy()

    np.testing.assert_array_equal(draw(), draw(seed=0))
    assert draw().tolist() != draw(seed=1).tolist()
    assert len({tuple(ids) for ids in draw()[0].tolist()}) > 1
    limits = np.array([1, 3, 2])
    for row, limit in enumerate(limits):
        assert not draw(max_length=tf.constant(limits))[row, :, limit:].any()
    greedy = transformer.translate_ids(source_ids)
    cold = transformer.translate_ids(source_ids, temperature=0.0)
    np.testing.assert_array_equal(cold, greedy)


def test_candidates_without_codes_are_those_of_the_prefix_search(ctc, rng):
    source_ids = small.sentences(rng, 4, 6)
    options = {"num_beams": 4, "top_k": 5}
    found = ctc.generate(source_ids, blank_bias=-1.0, num_return_sequences=3, **options)
    for row, source in enumerate(source_ids):
        logits = ctc({"source_ids": source[source > 0][None]}).numpy()
        biased = logits.copy()
        biased[..., 0] -= 1.0
        beams, _ = decoding.ctc_prefix_beam_search(biased, end_id=1, **options)
        for place in range(3):
            words = strip(beams[0, place].numpy())
            assert strip(found["target_ids"][row, place].numpy()) == words
            loss, _ = layers.ctc_loss(logits, beams[:, place])
            np.testing.assert_allclose(
                found["scores"][row, place], -loss[0] / len(words), rtol=1e-4
            )


def test_a_rescorer_puts_the_candidates_in_order(ctc, transformer, rng):
    source_ids = small.sentences(rng, 4, 6)
    options = {"num_beams": 4, "rescorer": transformer}
    every = ctc.generate(source_ids, num_beams=4, num_return_sequences=4)
    found = ctc.generate(source_ids, num_return_sequences=3, **options)
    best = ctc.generate(source_ids, **options)
    np.testing.assert_array_equal(found["target_ids"][:, 0], best["target_ids"])
    assert (np.diff(found["scores"]) <= 0).all()
    for row, source in enumerate(source_ids):
        seen = transformer.encode_source(source[source > 0][None])
        texts = [strip(ids) for ids in every["target_ids"][row].numpy()]
        scores = [
            float(transformer.mean_log_probs(np.array([t]), *seen)[0]) for t in texts
        ]
        order = np.argsort(-np.array(scores), kind="stable")[:3]
        kept = [strip(ids) for ids in found["target_ids"][row].numpy()]
        assert kept == [texts[place] for place in order]


@pytest.mark.parametrize(
    "name, options",
    [
        ("Transformer", {"num_beams": 3, "max_length": 5}),
        ("Transformer", {"temperature": 1.0, "seed": 3, "max_length": 5}),
        ("CTCTranslator", {"num_beams": 3}),
        pytest.param("FertilityNAT", {"num_samples": 3}, marks=pytest.mark.slow),
        pytest.param(
            "RefinementNAT",
            {"num_beams": 3, "num_iterations": 2},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_lists_of_strings_in_python_and_exported(name, options, tmp_path):
    model = small.exportable(name)
    texts, scores = model.translate(
        TEXTS, return_scores=True, num_return_sequences=3, **options
    )
    assert texts[1] == [""] * 3 and all(map(math.isnan, scores[1]))
    for row in (0, 2):
        assert len(texts[row]) == 3 and all(isinstance(t, str) for t in texts[row])
        assert all(isinstance(score, float) for score in scores[row])
    ids = model.tokenizer.encode(TEXTS).to_tensor()
    found = model.translate(TEXTS, num_return_sequences=3, **options)
    assert found == texts
    if "num_beams" in options:
        assert [row[0] for row in texts] == model.translate(TEXTS, **options)
        # A text does not know the others.
        alone = model.translate(
            TEXTS[2:], num_return_sequences=3, batch_size=1, **options
        )
        assert alone == texts[2:]
    model.export(tmp_path / "1", num_return_sequences=3, **options)
    served = tf.saved_model.load(str(tmp_path / "1"))
    answer = served.signatures["serving_default"](texts=tf.constant(TEXTS))
    written = answer["translations"].numpy()
    assert written.shape == answer["scores"].shape == (3, 3)
    assert written[1].tolist() == [b""] * 3
    if "num_beams" in options:
        assert [[t.decode("utf-8", "replace") for t in row] for row in written] == texts
    expected = model.generate(ids, num_return_sequences=3, **options)
    answer = served.signatures["translate_ids"](source_ids=ids)
    np.testing.assert_array_equal(answer["target_ids"], expected["target_ids"])
    np.testing.assert_allclose(answer["scores"], expected["scores"], rtol=1e-4)
    none = served.signatures["serving_default"](texts=tf.constant([], tf.string))
    assert none["translations"].shape == (0, 3)


def test_what_cannot_be_returned_is_refused(transformer, ctc):
    with pytest.raises(ValueError, match="Pass num_beams=3, or `temperature`"):
        transformer.translate(["ab"], num_beams=2, num_return_sequences=3)
    with pytest.raises(ValueError, match=r"received num_beams=1. Pass num_beams=3\."):
        ctc.translate(["ab"], num_return_sequences=3)
    with pytest.raises(ValueError, match="at least 1, received 0. Use None"):
        ctc.translate(["ab"], num_return_sequences=0)
    with pytest.raises(ValueError, match="Pass num_beams=1, or leave `temperature`"):
        transformer.translate(["ab"], num_beams=2, temperature=1.0)
    with pytest.raises(ValueError, match="`seed` must be a whole number"):
        transformer.translate(["ab"], seed=-1, temperature=1.0)
    with pytest.raises(ValueError, match="must not hold `num_return_sequences`"):
        ctc.generation_config = {"num_return_sequences": 2}
    ctc.generation_config = {"num_return_sequences": None}
