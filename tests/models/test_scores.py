"""score: log probabilities of given translations, against slow references."""

import itertools
import math

import numpy as np
import pytest

from keras_vqem import layers, models
from keras_vqem.models.code_sequences import flatten_groups
from tests.models import small

SOURCES = ["abc", "hello", "", "x"]
TARGETS = ["cab", "ho", "a", ""]


def log_softmax(x):
    x = np.asarray(x, "float64")
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.fixture
def sharp(rng):
    return lambda model: small.sharpen(model, rng, scale=1.5)


def test_a_transformer_is_scored_word_by_word(sharp):
    model = sharp(small.transformer())
    found = model.score(SOURCES, TARGETS, batch_size=2)
    for source, target, score in zip(SOURCES, TARGETS, found, strict=True):
        [ids] = model.tokenizer.encode([target]).to_list()
        source_ids = model.tokenizer.encode([source]).to_tensor()
        # The next word from the whole model called on each prefix, one by one.
        expected = []
        for place, word in enumerate(ids):
            prefix = np.array([[*ids[:place], 0]], "int32")
            logits = model({"source_ids": source_ids, "target_ids": prefix})
            expected.append(log_softmax(logits[0, -1])[word])
        assert score.ids == ids
        np.testing.assert_allclose(score.token_log_probs, expected, atol=1e-4)
        if source:
            assert score.log_prob == pytest.approx(sum(expected), abs=1e-3)
            assert score.per_token == pytest.approx(np.mean(expected), abs=1e-4)
        else:
            assert math.isnan(score.log_prob)


@pytest.mark.parametrize(
    "name", [pytest.param("transformer", marks=pytest.mark.slow), "ctc_translator"]
)
def test_scores_are_those_of_generate(name, sharp, rng):
    model = sharp(getattr(small, name)())
    source_ids = small.sentences(rng, 3, 5)
    found = model.generate(source_ids, num_beams=1)
    ids = found["target_ids"].numpy()
    own = model.score_ids(source_ids, ids)["log_probs"].numpy()
    np.testing.assert_allclose(
        own / np.count_nonzero(ids, axis=1), found["scores"], atol=1e-4
    )
    assert len(set(own.tolist())) == 3


def test_ctc_sums_over_all_alignments(sharp):
    model = sharp(small.ctc_translator(upsample=1))
    source, targets = "ab", ["", "c", "cc", "cdefg"]
    logits = model({"source_ids": model.tokenizer.encode([source]).to_tensor()})
    log_p = log_softmax(logits[0])  # Three positions, the end's included.
    found = model.score([source] * 4, targets)
    for target, score in zip(targets, found, strict=True):
        [ids] = model.tokenizer.encode([target]).to_list()
        total = 0.0
        among = sorted({0, *ids})
        for path in itertools.product(among, repeat=len(log_p)):
            if [i for i, _ in itertools.groupby(path) if i] == ids:
                total += np.exp(sum(log_p[t, i] for t, i in enumerate(path)))
        assert score.token_log_probs is None
        if total:
            assert score.log_prob == pytest.approx(np.log(total), abs=1e-4)
        else:
            assert score.log_prob == -math.inf
    assert math.isfinite(found[1].log_prob) and found[3].log_prob == -math.inf


@pytest.mark.parametrize("output", [None, pytest.param("ctc", marks=pytest.mark.slow)])
def test_a_latent_model_has_a_lower_bound(output, sharp):
    bottleneck = layers.VQEMBottleneck(3, decay=0.9, seed=1)
    word_output = models.CTCOutput(upsample=2) if output else None
    model = sharp(small.latent_nmt(bottleneck, word_output=word_output))
    source, target = "ab", "cde"
    ids = [model.tokenizer.encode([text]).to_tensor() for text in (source, target)]
    found = {name: x.numpy()[0] for name, x in model.score_ids(*ids).items()}
    [score] = model.score([source], [target])
    assert score.log_prob == pytest.approx(found["log_probs"], abs=1e-4)
    memory, mask = model.encode_source(ids[0])

    def log_probs(codes):
        """Of rows of codes, and of the words given them."""
        codes = np.array(codes, "int32")
        rows, number = codes.shape
        states = np.repeat(memory, rows, axis=0), np.repeat(mask, rows, axis=0)
        logits = log_softmax(model.predictor(codes, states[0], memory_mask=states[1]))
        end = np.full((rows, 1), model.predictor.end_code)
        labels = np.concatenate([codes, end], axis=1)
        of_codes = np.take_along_axis(logits, labels[..., None], axis=-1).sum((1, 2))
        there = np.ones(codes.shape, bool)
        logits, positions = model._write(model.latents(codes), there, *states)
        words = np.repeat(ids[1], rows, axis=0)
        return of_codes, model.word_output.log_prob(logits, positions, words).numpy()

    own = flatten_groups(model.encode_ids(*ids)).numpy()
    [of_codes], [of_words] = log_probs(own)
    assert found["code_log_probs"] == pytest.approx(of_codes, abs=1e-4)
    assert found["word_log_probs"] == pytest.approx(of_words, abs=1e-4)
    # The sum over more of the sequences is itself a lower bound, and a higher one.
    total = np.logaddexp.reduce(sum(log_probs([[0], [1], [2]])))
    assert own.shape == (1, 1) and found["log_probs"] < total
    assert found["log_probs"] == pytest.approx(of_codes + of_words, abs=1e-4)


def test_words_of_one_per_position(rng):
    output = models.PositionwiseOutput()
    logits = rng.normal(size=(3, 2, 5)).astype("float32")
    mask = np.array([[True, True], [True, False], [True, True]])
    ids = np.array([[4, 1, 0], [4, 1, 0], [3, 4, 1]], "int32")
    found = output.log_prob(logits, mask, ids).numpy()
    log_p = log_softmax(logits)
    assert found[0] == pytest.approx(log_p[0, 0, 4] + log_p[0, 1, 1], abs=1e-5)
    assert found[1] == found[2] == -np.inf  # They do not fit.


def test_mistakes_are_told():
    model = small.transformer()
    assert model.score([], []) == []
    for arguments, words in [
        ((["a"], ["b", "c"]), "received 1 sources and 2 targets"),
        (("a", ["b"]), r"`sources` must be a list.*Write score\(\['a'\]"),
        ((["a"], ["b"], 0), "`batch_size` must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.score(*arguments)
    with pytest.warns(UserWarning, match="1 of 2 pairs have a text of more than 4"):
        long, short = model.score(["abcdef", "a"], ["b", "b"], max_tokens=4)
    assert math.isnan(long.log_prob) and math.isfinite(short.log_prob)
    with pytest.raises(ValueError, match="FertilityNAT has no probability of a given"):
        small.fertility_nat().score(["a"], ["b"])
