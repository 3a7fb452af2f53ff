"""Stored options of `generate` hold wherever a call does not say otherwise."""

import math

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import models
from tests.conformance.checks import slow_but
from tests.models import small

TEXTS = ["twenty-one", " ", "the third of May, nineteen ten"]
# Options that change the text, and those that undo them.
SHORT = {
    "Transformer": ({"max_length": 2}, {"max_length": 6}),
    "LatentNMT": ({"max_codes": 1, "drop_repeats": True}, {"max_codes": 3}),
    "CTCTranslator": ({"blank_bias": 9.0}, {"blank_bias": -9.0}),
    "FertilityNAT": ({"max_length": 1, "num_samples": 2}, {"max_length": 6}),
    "RefinementNAT": ({"num_iterations": 1}, {"num_iterations": 4}),
}


@pytest.mark.parametrize("name", slow_but(("Transformer", "LatentNMT"), SHORT))
def test_every_way_to_translate_follows_the_config(name, tmp_path):
    model = small.exportable(name)
    ids = model.tokenizer.encode(TEXTS).to_tensor()
    options, other = SHORT[name]
    expected = model.generate(ids, **options)
    texts = model.translate(TEXTS, **options)
    # Before and after: a graph traced for other options is not used again.
    assert model.translate(TEXTS, **other) != texts
    longer = model.translate(TEXTS, **{**options, **other})
    model.generation_config = options
    for found in (
        model.generate(ids)["target_ids"],
        model.translate_ids(ids),
        model.translation_graph()(ids),
    ):
        np.testing.assert_array_equal(found, expected["target_ids"])
    assert model.translate(TEXTS) == texts
    assert model.translate(TEXTS, **other) == longer != texts
    model.export(tmp_path / "1")
    served = tf.saved_model.load(str(tmp_path / "1"))
    found = served.signatures["serving_default"](texts=tf.constant(TEXTS))
    assert [text.decode() for text in found["translations"].numpy()] == texts
    if name == "LatentNMT":
        codes = tf.constant([[3, 3, 3]] * 3)
        found = served.signatures["decode"](sources=tf.constant(TEXTS), codes=codes)
        written = model.decode_ids(ids, codes[:, :1], drop_repeats=True)
        written = model.tokenizer.decode(written).numpy().tolist()
        assert found["translations"].numpy().tolist() == written


def test_scores_come_with_translations():
    model = small.exportable("LatentNMT")
    texts, scores = model.translate(TEXTS, batch_size=2, return_scores=True)
    assert texts == model.translate(TEXTS) and texts[1] == ""
    assert math.isnan(scores[1])
    for place in (0, 2):
        ids = model.tokenizer.encode([TEXTS[place]]).to_tensor()
        expected = model.generate(ids)["scores"][0]
        assert scores[place] == pytest.approx(float(expected), rel=1e-4)
    assert model.translate([], return_scores=True) == ([], [])


def test_a_graph_keeps_the_options_it_was_asked_for():
    model = small.exportable("Transformer")
    ids = model.tokenizer.encode(TEXTS).to_tensor()
    expected = model.translate_ids(ids)
    graph = model.translation_graph()
    model.generation_config = {"max_length": 2}
    np.testing.assert_array_equal(graph(ids), expected)
    assert model.translation_graph()(ids).shape[1] == 2
    model.generation_config = None
    np.testing.assert_array_equal(model.translation_graph()(ids), expected)


def test_a_model_is_not_stored_in_another():
    teacher = small.exportable("Transformer")
    with pytest.raises(ValueError, match="'rescorer' is a Transformer. Pass it to"):
        small.latent_nmt(generation_config={"rescorer": teacher})


@pytest.mark.parametrize(
    "model",
    [
        small.transformer,
        small.ctc_translator,
        small.fertility_nat,
        small.refinement_nat,
        small.latent_nmt,
        lambda: small.latent_nmt(word_output=models.CTCOutput()),
    ],
    ids=[
        "Transformer",
        "CTCTranslator",
        "FertilityNAT",
        "RefinementNAT",
        "LatentNMT",
        "LatentNMT with CTC",
    ],
)
def test_a_row_without_a_source_has_no_translation(model, rng):
    model = small.sharpen(model(), rng)
    source_ids = np.pad(small.sentences(rng, 2, 6), [[0, 1], [0, 3]])
    for rows in (source_ids, source_ids[2:], source_ids[2:, :1]):
        beams = "num_beams" in model.generation_options
        options = {"num_beams" if beams else "num_samples": 2}
        found = model.generate(tf.constant(rows), num_return_sequences=2, **options)
        assert not found["target_ids"].numpy()[-1].any()
        assert (found["scores"].numpy()[-1] == -1e9).all()
        if "codes" in found:
            assert (found["codes"].numpy()[-1] == model.bottleneck.num_codes).all()
