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


@pytest.mark.parametrize("name", ["transformer", "ctc_translator"])
def test_scores_are_those_of_translate(name, sharp):
    model = sharp(getattr(small, name)())
    texts, scores = model.translate(SOURCES, return_scores=True, num_beams=1)
    found = model.score(SOURCES, texts)
    for place in (0, 1, 3):
        # A text that was cut has no end, and one that CTC wrote may have none.
        ended = model.generate(
            model.tokenizer.encode([SOURCES[place]]).to_tensor(), num_beams=1
        )["target_ids"][0]
        if 1 in ended:
            assert found[place].per_token == pytest.approx(scores[place], abs=1e-4)
    assert any(
        1 in row
        for row in model.generate(
            model.tokenizer.encode(SOURCES).to_tensor(), num_beams=1
        )["target_ids"].numpy()
    )


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


def all_codes(number, longest):
    for length in range(1, longest + 1):
        yield from itertools.product(range(number), repeat=length)


@pytest.mark.parametrize("output", [None, "ctc"])
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
        """Of codes and, given them, of the words."""
        codes = np.array([codes], "int32")
        logits = log_softmax(model.predictor(codes, memory, memory_mask=mask)[0])
        labels = [*codes[0], model.predictor.end_code]
        of_codes = sum(logits[i, label] for i, label in enumerate(labels))
        there = np.ones(codes.shape, bool)
        latents = model.latents(codes)
        logits, positions = model._write(latents, there, memory, mask)
        words = model.word_output.log_prob(logits, positions, ids[1])
        return of_codes, float(words[0])

    own = flatten_groups(model.encode_ids(*ids)).numpy()[0]
    of_codes, of_words = log_probs(own)
    assert found["code_log_probs"] == pytest.approx(of_codes, abs=1e-4)
    assert found["word_log_probs"] == pytest.approx(of_words, abs=1e-4)
    # The sum over the sequences of up to three codes is itself a lower bound.
    total = [sum(log_probs(codes)) for codes in all_codes(3, 3)]
    total = np.log(np.sum(np.exp(total)))
    assert found["log_probs"] <= total + 1e-5
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
