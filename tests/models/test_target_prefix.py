"""target_prefix: the model goes on from a given beginning, as without a cache."""

import numpy as np
import pytest

from tests.models import small
from tests.models.test_transformer import log_softmax, uncached_logits

TEXTS = ["abc", "hello", "", "x"]


@pytest.fixture
def model(rng):
    return small.sharpen(small.transformer(), rng, scale=1.5)


def strip(row):
    return [int(i) for i in row if i]


def test_greedy_search_goes_on_from_each_row_s_prefix(model, rng):
    source_ids = small.sentences(rng, 3, 6)
    prefix = np.array([[5, 9, 12], [7, 0, 0], [0, 0, 0]], "int32")
    found = model.generate(source_ids, target_prefix=prefix, max_length=5)
    for row in range(3):
        ids = strip(prefix[row])
        while len(ids) < 5 and (not ids or ids[-1] != 1):
            logits = uncached_logits(model, source_ids[row : row + 1], ids)
            ids.append(int(np.argmax(logits)))
        assert strip(found["target_ids"][row]) == ids
    # Scores are those of the whole translation.
    memory, mask = model.encode_source(source_ids)
    expected = model.mean_log_probs(found["target_ids"], memory, mask)
    np.testing.assert_allclose(found["scores"], expected, atol=1e-5)
    # One prefix for all rows, and the usual limit behind it.
    found = model.generate(source_ids, target_prefix=[5, 9] * 9)["target_ids"]
    np.testing.assert_array_equal(found[:, :18], [[5, 9] * 9] * 3)
    assert found.shape[1] > 18


@pytest.mark.slow
def test_beams_are_the_best_continuations(model, rng):
    """Two ids after the prefix: all 29 ** 2 continuations are few enough to try."""
    source_ids = small.sentences(rng, 1, 5)
    prefix, limit = [6, 11], 4
    log_probs = {}
    first = log_softmax(uncached_logits(model, source_ids, prefix))
    words = [i for i in range(29) if i > 1]  # Padding would not be seen by the cache.
    rows = np.array([[*prefix, i, 0] for i in words], "int32")
    sources = np.repeat(source_ids, len(rows), axis=0)
    logits = model({"source_ids": sources, "target_ids": rows})[:, -1].numpy()
    for i, row in zip(words, logits, strict=True):
        for j, log_prob in enumerate(log_softmax(row)):
            log_probs[(*prefix, i, j)] = first[i] + log_prob
    log_probs[(*prefix, 1)] = first[1]
    ranked = sorted(log_probs, key=log_probs.__getitem__, reverse=True)
    found = model.generate(
        source_ids,
        target_prefix=[prefix],
        num_beams=28,
        num_return_sequences=3,
        length_penalty=0.0,
        max_length=limit,
    )["target_ids"][0]
    assert [tuple(strip(row)) for row in found] == ranked[:3]


@pytest.mark.parametrize("beams", [1, 3])
def test_a_prefix_longer_than_the_limit_is_cut(model, rng, beams):
    source_ids = small.sentences(rng, 2, 5)
    options = {"num_beams": beams, "max_length": 2}
    found = model.generate(source_ids, target_prefix=[5, 6, 7], **options)
    np.testing.assert_array_equal(found["target_ids"], [[5, 6]] * 2)


def test_samples_begin_with_it_too(model, rng):
    source_ids = small.sentences(rng, 2, 5)
    options = {"temperature": 1.0, "num_return_sequences": 3}
    found = model.generate(source_ids, target_prefix=[5, 6], **options)["target_ids"]
    assert found.shape[:2] == (2, 3)
    np.testing.assert_array_equal(found[..., :2].numpy().reshape(-1, 2), [[5, 6]] * 6)
    assert len({tuple(row) for row in found.numpy().reshape(6, -1)}) > 1


def test_translate_takes_strings(model):
    own = ["a", "", "b", "xyz"]
    found, scores = model.translate(TEXTS, target_prefix=own, return_scores=True)
    assert found[0].startswith("a") and found[3].startswith("xyz")
    assert found[2] == "" and np.isnan(scores[2])
    # A prefix is an input of the graph: another one is not traced again.
    for prefix in ("zy", "q", "abc"):
        texts = model.translate(TEXTS[:1], target_prefix=prefix)
        assert texts[0].startswith(prefix)
    assert len(model._graphs._by_options) == 1


def test_mistakes_are_told(model, rng):
    source_ids = small.sentences(rng, 2, 5)
    with pytest.raises(ValueError, match="must be ids, received 'a'"):
        model.generate(source_ids, target_prefix="a")
    with pytest.raises(ValueError, match="received 1 strings for 4 texts"):
        model.translate(TEXTS, target_prefix=["a"])
    with pytest.raises(ValueError, match="must not hold `target_prefix`"):
        model.generation_config = {"target_prefix": "a"}
    for name in ("ctc_translator", "latent_nmt"):
        other = getattr(small, name)()
        with pytest.raises(ValueError, match="does not write word by word"):
            other.translate(TEXTS, target_prefix="a")


@pytest.mark.slow
def test_an_export_may_begin_with_it(tmp_path):
    import tensorflow as tf

    model = small.exportable("Transformer")
    model.export(tmp_path / "1", target_prefix="drei")
    served = tf.saved_model.load(str(tmp_path / "1"))
    texts = ["twenty-one", "five"]
    found = served.signatures["serving_default"](texts=tf.constant(texts))
    found = [text.decode() for text in found["translations"].numpy()]
    assert found == model.translate(texts, target_prefix="drei")
    assert all(text.startswith("drei") for text in found)
