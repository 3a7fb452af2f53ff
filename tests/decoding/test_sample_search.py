"""Draws follow the softmax, and repeat for a seed."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.decoding import greedy_search, sample_search
from tests.decoding.reference import Model

END = 2
P = np.array([0.5, 0.25, 0.15, 0.08, 0.02])


def fixed(logits, rows):
    logits = tf.tile(tf.constant(logits, tf.float32)[None], [rows, 1])
    return lambda ids, state, position: (logits, state)


def search(model, seed=(0, 1), max_length=10, **kwargs):
    rows = len(model.bias)
    return sample_search(
        model.step(), model.state(rows), rows, 1, END, max_length, seed=seed, **kwargs
    )


def shares(rows=20_000, max_length=2, **kwargs):
    step = fixed(np.log(P), rows)
    ids = sample_search(step, (), rows, 0, None, max_length, seed=(3, 4), **kwargs)
    return [np.bincount(column, minlength=5) / rows for column in ids.numpy().T]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_shares_follow_the_softmax(temperature):
    p = P ** (1 / temperature)
    p /= p.sum()
    for share in shares(temperature=temperature):
        # Five standard deviations.
        assert np.all(np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / 20_000))


def test_shares_of_the_top_k():
    p = np.array([*P[:3] / P[:3].sum(), 0, 0])
    for share in shares(top_k=3):
        assert np.all(np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 20_000))
    for all_, five in zip(shares(), shares(top_k=9), strict=True):
        assert np.all(all_ == five)


def nucleus(p, top_p):
    """The probabilities of the nucleus, id by id."""
    kept, total = np.zeros_like(p), 0.0
    for id_ in np.argsort(-p, kind="stable"):
        if total < top_p:
            kept[id_] = p[id_]
        total += p[id_]
    return kept / kept.sum()


@pytest.mark.parametrize(
    "top_p, temperature, top_k",
    [(0.6, 1.0, None), (0.8, 1.0, None), (0.8, 0.5, None), (0.8, 2.0, 3), (1, 1.0, 2)],
)
def test_shares_of_the_nucleus(top_p, temperature, top_k):
    p = P ** (1 / temperature)
    p[top_k or 5 :] = 0
    p = nucleus(p / p.sum(), top_p)
    assert np.count_nonzero(p) == {0.6: 2, 0.8: 3 - (temperature == 0.5), 1: 2}[top_p]
    options = {"temperature": temperature, "top_k": top_k}
    for limit in (top_p, tf.constant(top_p, tf.float32)):
        for share in shares(top_p=limit, **options):
            # Nothing outside, as the deviation of 0 is 0.
            assert np.all(np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / 20_000))


def test_the_nucleus_of_each_row_is_its_own():
    rows = np.random.default_rng(0).normal(0, 2, (40, 7)).astype("float32")
    p = np.exp(rows) / np.exp(rows).sum(-1, keepdims=True)

    def step(ids, state, position):
        return tf.constant(rows), state

    ids = sample_search(step, (), 40, 0, None, 300, top_p=0.7, seed=(0, 1)).numpy()
    for own, drawn in zip(p, ids, strict=True):
        kept = nucleus(own.astype("float64"), 0.7)
        assert set(drawn) <= set(np.flatnonzero(kept))
        # What is in it at all likely is drawn at some time.
        assert set(drawn) >= set(np.flatnonzero(kept > 0.05))


def test_all_ids_are_drawn_from_as_they_are_without_a_nucleus():
    model = Model(16, 5)
    np.testing.assert_array_equal(search(model, top_p=1.0), search(model))


def test_positions_and_rows_are_independent():
    rows = 20_000
    ids = sample_search(fixed([0, 0], rows), (), rows, 0, None, 2, seed=(0, 0)).numpy()
    pairs = np.bincount(ids[:, 0] * 2 + ids[:, 1], minlength=4) / rows
    assert np.all(np.abs(pairs - 0.25) < 0.02)
    neighbours = np.bincount(ids[1:, 0] * 2 + ids[:-1, 0], minlength=4) / rows
    assert np.all(np.abs(neighbours - 0.25) < 0.02)


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.7}], ids=str)
def test_a_row_with_its_own_seed_is_the_same_in_any_batch(options):
    seeds = [(0, 1), (2, 3), (0, 1), (4, 5)]
    model = Model(4, 5)
    model.bias[:] = model.bias[0]
    found = search(model, seeds, **options).numpy()
    graph = tf.function(lambda seed: search(model, seed, **options))
    np.testing.assert_array_equal(graph(tf.constant(seeds)), found)
    alone = Model(4, 5)
    alone.bias = model.bias[:1]
    for seed, row in zip(seeds, found, strict=True):
        expected = search(alone, seed, **options).numpy()[0]
        np.testing.assert_array_equal(row[: len(expected)], expected)
    assert (found[0] == found[2]).all() and (found[0] != found[1]).any()


def test_repeats_for_a_seed_eagerly_and_in_a_graph():
    model = Model(16, 5)
    graph = tf.function(lambda seed: search(model, seed))
    first = search(model, (5, 6)).numpy()
    assert np.array_equal(first, search(model, (5, 6)))
    assert np.array_equal(first, graph(tf.constant([5, 6])))
    # A neighbouring seed does not give the same draws a position later.
    assert not np.array_equal(first, graph(tf.constant([5, 7])))
    step = fixed(np.zeros(9), 4)
    one, other = (
        sample_search(step, (), 4, 0, None, 9, seed=seed).numpy()
        for seed in ((0, 0), (0, 1))
    )
    assert np.mean(one[:, 1:] == other[:, :-1]) < 0.5


def test_survives_a_saved_model(tmp_path):
    model = Model(4, 5)
    module = tf.Module()
    signature = [tf.TensorSpec([None, 5]), tf.TensorSpec([2], tf.int32)]

    @tf.function(input_signature=signature)
    def decode(bias, seed):
        rows = tf.shape(bias)[0]
        state = model.state(rows)
        return sample_search(model.step(bias), state, rows, 1, END, 10, seed=seed)

    module.decode = decode
    tf.saved_model.save(module, tmp_path)
    ids = tf.saved_model.load(tmp_path).decode(model.bias, tf.constant([5, 6]))
    assert np.array_equal(ids, search(model, (5, 6)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": 0},
        {"temperature": 1e-30},
        {"top_k": 1},
        {"top_p": 1e-6},
        {"temperature": 0, "top_p": 0.5},
        {"temperature": 1e-30, "top_p": 0.5},
    ],
    ids=str,
)
def test_limits_are_greedy(arguments):
    model = Model(16, 5)
    greedy = greedy_search(model.step(), model.state(16), 16, 1, END, 10)
    assert np.array_equal(search(model, **arguments), greedy)


def test_one_of_equal_ids_with_top_k_1():
    step = fixed([0, 3, 3, 1], 50)
    ids = sample_search(step, (), 50, 0, None, 2, top_k=1, seed=(0, 0))
    assert np.all(ids.numpy() == 1)


def test_ends_limits_and_padding():
    model = Model(64, 5)
    limits = np.arange(64) % 10 + 1
    ids = search(model, max_length=limits, min_length=2, pad_id=7).numpy()
    for row, limit in zip(ids.tolist(), limits, strict=True):
        length = row.index(END) + 1 if END in row else limit
        assert min(2, limit) <= length <= limit
        assert END not in row[:2] and 7 not in row[:length]
        assert set(row[length:]) <= {7}


def test_impossible_ids_are_never_drawn():
    step = fixed([-np.inf, 0, -np.inf, 0], 1000)
    for top_p in (None, 0.999):
        options = {"temperature": 5.0, "top_p": top_p, "seed": (0, 0)}
        ids = sample_search(step, (), 1000, 0, None, 2, **options)
        assert set(np.unique(ids)) == {1, 3}


def test_bad_arguments():
    model = Model(2, 5)
    with pytest.raises(ValueError, match="`temperature` must be at least 0"):
        search(model, temperature=-1.0)
    with pytest.raises(ValueError, match="`top_k` must be a whole number"):
        search(model, top_k=0)
    for top_p in (0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="`top_p` must be above 0 and at most 1"):
            search(model, top_p=top_p)
    with pytest.raises(ValueError, match="`seed` must be two integers"):
        search(model, seed=3)
    with pytest.raises(ValueError, match=r"two for each of .* rows; .* \(1, 2\)"):
        search(model, seed=[(0, 1)])
    with pytest.raises(ValueError, match="`max_length` must be"):
        search(model, max_length=0)
