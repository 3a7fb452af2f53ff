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
    source_ids = small.sentences(rng, 4, 6)
    prefix = np.array([[5, 9, 12], [7, 0, 0], [0, 0, 0], [8, 8, 0]], "int32")
    found = model.generate(source_ids, target_prefix=prefix)
    for row in range(4):
        ids = strip(prefix[row])
        limit = 2 * np.count_nonzero(source_ids[row]) + 10 + len(ids)
        while len(ids) < limit and (not ids or ids[-1] != 1):
            logits = uncached_logits(model, source_ids[row : row + 1], ids)
            ids.append(int(np.argmax(logits)))
        assert strip(found["target_ids"][row]) == ids
    # Scores are those of the whole translation.
    memory, mask = model.encode_source(source_ids)
    expected = model.mean_log_probs(found["target_ids"], memory, mask)
    np.testing.assert_allclose(found["scores"], expected, atol=1e-5)
    # One prefix for all rows.
    found = model.generate(source_ids, target_prefix=[5, 9])["target_ids"]
    np.testing.assert_array_equal(found[:, :2], [[5, 9]] * 4)


def test_beams_are_the_best_continuations(model, rng):
    """Two ids after the prefix: all 29 ** 2 continuations are few enough to try."""
    source_ids = small.sentences(rng, 1, 5)
    prefix, limit = [6, 11], 4
    log_probs = {}
    first = log_softmax(uncached_logits(model, source_ids, prefix))
    for i in range(29):
        if i == 1:
            log_probs[(*prefix, 1)] = first[1]
            continue
        if i == 0:  # Padding would not be seen by the cache.
            continue
        second = log_softmax(uncached_logits(model, source_ids, [*prefix, i]))
        for j in range(29):
            log_probs[(*prefix, i, j)] = first[i] + second[j]
    # Those without an end come last.
    ranked = sorted(log_probs, key=lambda ids: (ids[-1] != 1, -log_probs[ids]))
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
    texts = model.translate(TEXTS, target_prefix="zy", batch_size=2)
    assert all(text.startswith("zy") for text in texts if text) and texts[2] == ""
    own = ["a", "", "b", "xyz"]
    found, scores = model.translate(TEXTS, target_prefix=own, return_scores=True)
    assert found[0].startswith("a") and found[3].startswith("xyz")
    assert found[1] == model.translate(TEXTS)[1]
    # A prefix is an input of the graph: another one is not traced again.
    traced = len(model._graphs._by_options)
    assert model.translate(TEXTS, target_prefix="q", batch_size=2)[0].startswith("q")
    assert len(model._graphs._by_options) == traced
    assert len(scores) == 4


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
