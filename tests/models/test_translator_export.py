"""Exported translators: strings in and out, each row for itself, in a new process."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers, models
from tests.models import small

TEXTS = ["twenty-one", "", "ten past two", "   ", "the third of May, nineteen ten"]


LATENT = ["LatentNMT", pytest.param("LatentNMT with CTC", marks=pytest.mark.slow)]


@pytest.fixture(
    scope="module",
    params=[
        "Transformer",
        "LatentNMT",
        "CTCTranslator",
        pytest.param("FertilityNAT", marks=pytest.mark.slow),
        pytest.param("RefinementNAT", marks=pytest.mark.slow),
    ],
)
def model(request):
    return small.exportable(request.param)


def several(model, number=2):
    """Options with which a model has several candidates."""
    beams = "num_beams" in model.generation_options
    return {"num_beams" if beams else "num_samples": number}


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "1"
    model.export(path, max_tokens=20, **several(model))
    return path


@pytest.fixture(scope="module")
def served(folder):
    loaded = tf.saved_model.load(str(folder))
    # Signatures live as long as what they were loaded with.
    return {"loaded": loaded, **loaded.signatures}


def serve(served, texts):
    found = served["serving_default"](texts=tf.constant(texts, tf.string, [len(texts)]))
    return {name: value.numpy() for name, value in found.items()}


def test_strings_become_strings_as_in_python(model, served):
    found = serve(served, TEXTS)
    expected = model.translate(TEXTS, **several(model))
    assert [text.decode() for text in found["translations"]] == expected
    assert expected[1] == expected[3] == "" and len(set(expected)) > 2
    assert found["scores"].shape == (5,) and (found["scores"] < 0).all()
    assert ("codes" in found) == isinstance(model, models.LatentNMT)


def test_scores_are_mean_log_probabilities(model, served):
    ids = model.tokenizer.encode(TEXTS).to_tensor(0)
    found = served["translate_ids"](source_ids=ids)
    np.testing.assert_array_equal(
        found["target_ids"], model.translate_ids(ids, **several(model))
    )
    if isinstance(model, models.FertilityNAT):
        # The better of the two candidates; their words: test_fertility_nat.py.
        every = model.generate(ids, num_samples=2, num_return_sequences=2)
        np.testing.assert_allclose(found["scores"], every["scores"][:, 0], rtol=1e-4)
        return
    if isinstance(model, models.CTCTranslator):
        logits, mask = model._write(ids)
        words = found["target_ids"]
        expected = -layers.ctc_loss(logits, words, mask)[0].numpy()
        expected /= np.count_nonzero(words, axis=1)
        np.testing.assert_allclose(found["scores"], expected, rtol=1e-4)
        return
    if isinstance(model, models.RefinementNAT):
        # Passes are tried in test_refinement_nat.
        expected = model.generate(ids, num_beams=2)["scores"]
        np.testing.assert_allclose(found["scores"], expected, rtol=1e-4)
        return
    if isinstance(model, models.LatentNMT):
        # Written from the codes that come with it, all words at once.
        memory, mask = model.encode_source(ids)
        written, _ = model.write_words(found["codes"], memory, mask)
        np.testing.assert_array_equal(written, found["target_ids"])
        codes = found["codes"].numpy()
        there = codes < model.bottleneck.num_codes
        latents = model.bottleneck.decode(np.where(there, codes, 0))
        logits, _ = model._write(latents, there, memory, mask)
    else:
        inputs = {"source_ids": ids, "target_ids": found["target_ids"]}
        logits = model(inputs)
    log_p = tf.nn.log_softmax(logits).numpy()
    for row, words in enumerate(found["target_ids"].numpy()):
        picked = [log_p[row, i, word] for i, word in enumerate(words) if word]
        np.testing.assert_allclose(found["scores"][row], np.mean(picked), rtol=1e-4)


def test_a_row_does_not_know_its_neighbours(model, served):
    together = serve(served, TEXTS)
    for row, text in enumerate(TEXTS):
        alone = serve(served, [text])
        assert alone["translations"][0] == together["translations"][row]
        np.testing.assert_allclose(
            alone["scores"][0], together["scores"][row], rtol=1e-4
        )
        if "codes" in alone:  # and then nothing but the end
            length = alone["codes"].shape[1]
            codes, more = np.split(together["codes"][row], [length])
            np.testing.assert_array_equal(codes, alone["codes"][0])
            assert (more == model.bottleneck.num_codes).all()
    assert serve(served, [])["translations"].shape == (0,)


def test_hard_input_is_cut_or_read_as_replacement(model, served):
    long = "one hundred and five " * 500
    texts = [long, b"\xff\xfe five", "\0\n\t", "日本語" * 40, "ten past two"]
    found = serve(served, texts)["translations"].tolist()
    # The cut keeps 19 tokens and an end.
    ids = model.tokenizer.encode([long])[:, :19].numpy()
    ids = tf.concat([ids, [[1]]], axis=1)
    expected = model.translate_ids(ids, **several(model))
    assert found[0] == model.tokenizer.decode(expected).numpy()[0]
    assert found[4].decode() == model.translate(["ten past two"], **several(model))[0]
    for text in found:
        text.decode("utf-8")


def test_ids_beyond_the_limits_disturb_no_other_row(model, served):
    ids = model.tokenizer.encode(["ten past two", "five"]).to_tensor(0)
    expected = served["translate_ids"](source_ids=ids)["target_ids"].numpy()
    # A row of 5,000 ids, half of them no words: it is read as cut, with unknown ones.
    long = np.full((1, 5000), 7, "int32")
    long[:, ::2] = 10**6
    long[:, 1::4] = -5
    read = np.where((long < 0) | (long == 10**6), 2, long)[:, :20]
    read[:, -1] = 1
    padded = np.pad(ids, [[0, 0], [0, 5000 - ids.shape[1]]])
    found = served["translate_ids"](
        source_ids=tf.constant(np.concatenate([padded, long]))
    )["target_ids"].numpy()
    cut = served["translate_ids"](source_ids=tf.constant(read))["target_ids"].numpy()
    for row, wanted in zip(found, [*expected, *cut], strict=True):
        words = wanted[wanted != 0]
        np.testing.assert_array_equal(row[: len(words)], words)
        assert not row[len(words) :].any()


@pytest.mark.parametrize("model", ["LatentNMT"], indirect=True)
def test_codes_lead_back_to_words(model, served):
    sources, targets = ["five", "ten past two"], ["fünf", "zehn nach zwei"]
    found = served["encode"](sources=tf.constant(sources), targets=tf.constant(targets))
    ids = [model.tokenizer.encode(x).to_tensor(0) for x in (sources, targets)]
    np.testing.assert_array_equal(found["codes"], model.encode_ids(*ids))
    written = served["decode"](sources=tf.constant(sources), codes=found["codes"])
    expected = model.tokenizer.decode(model.decode_ids(ids[0], found["codes"]))
    assert written["translations"].numpy().tolist() == expected.numpy().tolist()
    # Numbers that are no codes end their own row only.
    wrong = np.array(found["codes"])
    wrong[0, 0] = 10**6
    again = served["decode"](sources=tf.constant(sources), codes=tf.constant(wrong))
    assert again["translations"].numpy()[1] == expected.numpy()[1]
    # Nor do more codes than a translation of the longest source may have.
    many = np.pad(found["codes"], [[0, 0], [0, 9000]])
    again = served["decode"](sources=tf.constant(sources), codes=tf.constant(many))
    most = model.max_codes_for(20)
    expected = model.tokenizer.decode(model.decode_ids(ids[0], many[:, :most]))
    assert again["translations"].numpy().tolist() == expected.numpy().tolist()
    none = served["decode"](
        sources=tf.constant(sources), codes=tf.zeros((2, 0), "int32")
    )
    assert none["translations"].shape == (2,)


def decoded(served, sources, codes):
    codes = tf.constant(codes, tf.int32)
    found = served["decode"](sources=tf.constant(sources), codes=codes)
    return found["translations"].numpy().tolist()


@pytest.mark.parametrize("model", LATENT, indirect=True)
def test_codes_of_a_row_end_at_its_first_end_whatever_its_neighbours(model, served):
    end = model.bottleneck.num_codes
    rows = [
        [-1, 3, 5, 2],
        [4, 3, 5, 2],
        [4, end, 5, 2],
        [4, 10**6, 5, 2],
        [4, 3, -1, 2],
        [end] * 4,
        [4, 3, 5, -7],
    ]
    sources = ["ten past two"] * len(rows)
    together = decoded(served, sources, rows)
    for row, codes in enumerate(rows):
        ends = [place for place, code in enumerate(codes) if not 0 <= code < end]
        short = codes[: ends[0]] if ends else codes
        expected = together[row : row + 1]
        assert decoded(served, sources[:1], [codes]) == expected
        assert decoded(served, sources[:1], np.reshape(short, (1, -1))) == expected
    assert together[0] == together[5] and together[2] == together[3]
    assert len(set(together)) > 1


@pytest.mark.parametrize("model", LATENT, indirect=True)
def test_rows_that_do_not_belong_together_are_refused(model, served):
    one, three = tf.constant(["five"]), tf.constant(["fünf", "zehn", "zwei"])
    for sources, targets in [(one, three), (three, one), (three[:2], three)]:
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="`sources` and `targets` must have the same number of rows",
        ):
            served["encode"](sources=sources, targets=targets)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`sources` and `codes` must have the same"
    ):
        served["decode"](sources=one, codes=tf.zeros((3, 2), "int32"))
    with pytest.raises(ValueError, match="rows, received 1 and 3. Pass one of each"):
        model.decode_ids(np.array([[5, 1]]), np.zeros((3, 2), "int32"))


@pytest.mark.parametrize(
    "model",
    [
        "Transformer",
        "CTCTranslator",
        *LATENT,
        pytest.param("FertilityNAT", marks=pytest.mark.slow),
        pytest.param("RefinementNAT", marks=pytest.mark.slow),
    ],
    indirect=True,
)
def test_a_row_of_padding_has_no_translation_in_any_batch(model, served):
    ids = model.tokenizer.encode(["ten past two", "five"]).to_tensor(0).numpy()
    for width in (1, ids.shape[1], 17):
        rows = np.zeros((2, width), "int32")
        if width >= ids.shape[1]:
            rows = np.pad(ids, [[0, 1], [0, width - ids.shape[1]]])
        found = served["translate_ids"](source_ids=tf.constant(rows))
        assert not found["target_ids"].numpy()[-1].any()
        assert found["scores"].numpy()[-1] == -1e9
        if isinstance(model, models.LatentNMT):
            assert (found["codes"].numpy()[-1] == model.bottleneck.num_codes).all()
        if len(rows) == 3:
            assert found["target_ids"].numpy()[:-1].any(axis=1).all()


@pytest.mark.slow
def test_a_new_process_needs_tensorflow_and_text_only(model, folder):
    script = f"""
import json, sys, tensorflow as tf, tensorflow_text
served = tf.saved_model.load({str(folder)!r})
found = served.signatures["serving_default"](texts=tf.constant({TEXTS!r}))
print(json.dumps([t.decode() for t in found["translations"].numpy()]))
assert not {{"keras_vqem", "sentencepiece"}} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, timeout=300
    )
    assert json.loads(done.stdout.splitlines()[-1]) == model.translate(
        TEXTS, **several(model)
    )


def test_max_tokens_leaves_room_for_a_word(model, tmp_path):
    with pytest.raises(ValueError, match="at least 2, .*, received 1"):
        model.export(tmp_path / "x", max_tokens=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    ["LatentNMT", "CTCTranslator", "FertilityNAT", "RefinementNAT"],
    indirect=True,
)
def test_a_rescorer_is_exported_too(model, tmp_path):
    teacher = small.exportable("Transformer")
    options = {**several(model, 3), "rescorer": teacher}
    model.export(tmp_path / "1", **options)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    found = loaded.signatures["serving_default"](texts=tf.constant(TEXTS))
    expected = model.translate(TEXTS, **options)
    assert [text.decode() for text in found["translations"].numpy()] == expected
