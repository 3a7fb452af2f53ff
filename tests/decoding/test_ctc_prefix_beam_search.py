"""Prefix beam search against all alignments, and against a slow one."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from keras_vqem.decoding import ctc_best_path, ctc_prefix_beam_search
from keras_vqem.layers import ctc_loss
from tests.decoding.ctc_reference import all_sequences, prefix_search
from tests.decoding.reference import padded, score

END = 1
settings = hypothesis.settings(max_examples=25, deadline=None, derandomize=True)


def check(ids, scores, wanted):
    """Compares one row with pairs (ids, log probability), best first."""
    ids, scores = np.asarray(ids), np.asarray(scores)
    assert ids[: len(wanted)].tolist() == [padded(w, ids.shape[1]) for w, _ in wanted]
    np.testing.assert_allclose(
        scores[: len(wanted)], [s for _, s in wanted], rtol=1e-5, atol=1e-6
    )
    assert not np.any(ids[len(wanted) :])
    assert np.all(scores[len(wanted) :] == -np.inf)


@settings
@hypothesis.given(
    seed=st.integers(0, 2**32 - 1),
    positions=st.integers(1, 5),
    vocabulary=st.integers(2, 4),
    blank_id=st.sampled_from([0, 1]),
    end_id=st.sampled_from([None, 0, 1, 2]),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
    penalty=st.sampled_from([(0.0, 0.0), (0.5, 0.0), (0.0, 0.7), (-0.5, 1.0)]),
)
def test_is_the_sum_over_all_alignments(
    seed, positions, vocabulary, blank_id, end_id, spread, penalty
):
    end_id = None if end_id == blank_id else end_id
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, spread, (2, positions, vocabulary)).astype("float32")
    mask = rng.random((2, positions)) < 0.8
    every = [all_sequences(logits[i], end_id, mask[i], blank_id) for i in range(2)]
    beams = max(map(len, every)) + 2
    ids, scores = ctc_prefix_beam_search(
        logits, end_id, mask, blank_id, beams, vocabulary, *penalty
    )
    for i, found in enumerate(every):
        pairs = [(list(ids), np.log(p)) for ids, p in found.items()]

        def rank(pair):
            length = len(pair[0])
            return score(pair[1] + penalty[0] * length, length, penalty[1])

        check(ids[i], scores[i], sorted(pairs, key=rank, reverse=True))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("end_id", [END, None])
@pytest.mark.parametrize(
    "num_beams, top_k, bonus", [(1, 1, 0.0), (3, 2, 0.5), (4, 5, 0.0), (8, 3, -0.3)]
)
def test_is_the_slow_search(num_beams, top_k, bonus, end_id, jit_compile, rng):
    # Few ids and wide beams, so that prefixes often meet, fall out and come back.
    logits = rng.normal(0, 1.5, (24, 12, 6)).astype("float32")
    mask = rng.random((24, 12)) < np.linspace(0, 1.2, 24)[:, None]
    ids, scores = tf.function(ctc_prefix_beam_search, jit_compile=jit_compile)(
        logits, end_id, mask, 0, num_beams, top_k, bonus
    )
    assert ids.dtype == tf.int32 and scores.dtype == tf.float32
    assert ids.shape == (24, num_beams, 12) and scores.shape == (24, num_beams)
    for i in range(24):
        wanted = prefix_search(logits[i], end_id, mask[i], num_beams, top_k, bonus)
        check(ids[i], scores[i], wanted)


def test_scores_are_those_of_the_loss(rng):
    logits = rng.normal(0, 3, (6, 8, 5)).astype("float32")
    ids, scores = ctc_prefix_beam_search(logits, None, num_beams=400, top_k=4)
    for beam in range(5):
        loss, fits = ctc_loss(logits, ids[:, beam])
        assert np.all(fits)
        np.testing.assert_allclose(scores[:, beam], -loss, rtol=1e-4)


def test_a_wider_beam_finds_no_less(rng):
    logits = rng.normal(0, 2, (16, 20, 30)).astype("float32")
    best = [
        np.mean(ctc_prefix_beam_search(logits, END, num_beams=n, top_k=k)[1][:, 0])
        for n, k in ((1, 1), (4, 4), (16, 8), (32, 29))
    ]
    assert best == sorted(best) and best[-1] > best[0] + 1


def test_finds_the_sequence_that_the_best_path_misses():
    logits = np.log([[[0.4, 0.3, 0.3], [0.7, 0.15, 0.15]]]).astype("float32")
    assert not np.any(ctc_best_path(logits, None))
    ids, _ = ctc_prefix_beam_search(logits, None, num_beams=3)
    assert ids[0, 0].numpy().tolist() == [1, 0]


def test_a_row_alone_gets_the_same(rng):
    logits = rng.normal(0, 2, (8, 14, 9)).astype("float32")
    mask = np.arange(14) < np.array([0, 1, 14, 3, 7, 14, 9, 2])[:, None]
    ids, scores = ctc_prefix_beam_search(logits, END, mask, length_penalty=0.6)
    for i in range(8):
        own = max(np.sum(mask[i]), 1)
        alone_ids, alone_scores = ctc_prefix_beam_search(
            logits[i : i + 1, :own], END, mask[i : i + 1, :own], length_penalty=0.6
        )
        np.testing.assert_array_equal(alone_ids[0], ids[i, :, :own])
        assert not np.any(ids[i, :, own:])
        np.testing.assert_allclose(alone_scores[0], scores[i], rtol=1e-6)


def test_impossible_ids_and_masked_rows(rng):
    logits = rng.normal(size=(2, 4, 5)).astype("float32")
    logits[0, :, 2:] = -np.inf
    logits[1] = np.nan
    mask = np.array([[True] * 4, [False] * 4])
    ids, scores = ctc_prefix_beam_search(logits, None, mask, num_beams=6, top_k=4)
    found = all_sequences(logits[0, :, :2], None, mask[0])
    wanted = sorted(found.items(), key=lambda pair: -pair[1])
    check(ids[0], scores[0], [(list(ids), np.log(p)) for ids, p in wanted])
    check(ids[1], scores[1], [([], 0.0)])


def test_in_a_graph_and_from_disk(tmp_path, rng):
    module = tf.Module()
    module.decode = tf.function(
        lambda logits, mask: ctc_prefix_beam_search(logits, END, mask, num_beams=3),
        input_signature=[
            tf.TensorSpec([None, None, 5], tf.float32),
            tf.TensorSpec([None, None], tf.bool),
        ],
    )
    tf.saved_model.save(module, tmp_path)
    for function in (module.decode, tf.saved_model.load(tmp_path).decode):
        for rows, positions in ((5, 9), (1, 4), (0, 3), (2, 0)):
            logits = rng.normal(size=(rows, positions, 5)).astype("float32")
            mask = rng.random((rows, positions)) < 0.8
            ids, scores = function(logits, mask)
            assert ids.shape == (rows, 3, positions)
            for i in range(rows):
                wanted = prefix_search(logits[i], END, mask[i], 3, 8)
                check(ids[i], scores[i], wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_float32_inside(dtype, rng):
    logits = tf.cast(rng.normal(0, 3, (3, 8, 6)), dtype)
    ids, scores = ctc_prefix_beam_search(logits, END)
    wanted = ctc_prefix_beam_search(tf.cast(logits, tf.float32), END)
    np.testing.assert_array_equal(ids, wanted[0])
    np.testing.assert_array_equal(scores, wanted[1])


@pytest.mark.parametrize("name", ["num_beams", "top_k"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_bad_numbers(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be a whole number"):
        ctc_prefix_beam_search(np.zeros((1, 2, 4), "float32"), END, **{name: value})


def test_bad_length_penalty():
    with pytest.raises(ValueError, match="`length_penalty` must be at least 0"):
        ctc_prefix_beam_search(np.zeros((1, 2, 4), "float32"), END, length_penalty=-1)


def test_unknown_vocabulary():
    @tf.function(input_signature=[tf.TensorSpec([1, 2, None], tf.float32)])
    def decode(logits):
        return ctc_prefix_beam_search(logits, END)

    with pytest.raises(ValueError, match="`logits` must have a static V"):
        decode(np.zeros((1, 2, 4), "float32"))
