"""Beam search against a slow one in plain Python, and against all sequences."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.decoding import beam_search, greedy_search
from tests.decoding.reference import Model, beam, padded, score

END = 2


def search(model, end_id=END, max_length=10, num_beams=4, **kwargs):
    rows = len(model.bias)
    return beam_search(
        model.step(num_beams=num_beams),
        model.state(rows * num_beams),
        rows,
        1,
        end_id,
        max_length,
        num_beams=num_beams,
        **kwargs,
    )


def check(outputs, wanted, pad_id=0):
    ids, scores = (output.numpy() for output in outputs)
    for i, hypotheses in enumerate(wanted):
        for j, (value, written) in enumerate(hypotheses):
            assert ids[i, j].tolist() == padded(written, ids.shape[2], pad_id)
            np.testing.assert_allclose(scores[i, j], value, rtol=1e-4)


@pytest.mark.parametrize("num_beams", [1, 2, 4, 6])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 2.0])
def test_is_the_slow_search(num_beams, length_penalty):
    model = Model(12, 6, seed=num_beams)
    outputs = search(model, num_beams=num_beams, length_penalty=length_penalty)
    wanted = [beam(model, i, END, 10, num_beams, length_penalty) for i in range(12)]
    check(outputs, wanted)
    assert outputs[0].dtype == tf.int32 and outputs[1].dtype == tf.float32
    assert outputs[0].shape[:2] == outputs[1].shape == (12, num_beams)


@pytest.mark.parametrize("min_length", [1, 3, 10])
def test_min_length(min_length):
    model = Model(8, 6)
    wanted = [beam(model, i, END, 10, 4, 0.6, min_length) for i in range(8)]
    check(search(model, min_length=min_length), wanted)
    lengths = [len(ids) for row in wanted for _, ids in row]
    assert min(lengths) >= min_length


def test_without_end():
    model = Model(4, 6)
    check(search(model, None), [beam(model, i, None, 10, 4, 0.6) for i in range(4)])


@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_limits_of_rows(length_penalty):
    model = Model(8, 6)
    limits = [1, 10, 2, 5, 3, 10, 4, 9]
    outputs = search(
        model, max_length=tf.constant(limits), length_penalty=length_penalty, pad_id=5
    )
    wanted = [beam(model, i, END, n, 4, length_penalty) for i, n in enumerate(limits)]
    check(outputs, wanted, pad_id=5)
    # Some rows fill up with hypotheses without end, and some have both kinds.
    ends = [{ids[-1] == END for _, ids in row} for row in wanted]
    assert {True, False} in ends


def test_rows_without_room_stay_empty():
    ids, scores = search(Model(3, 6), max_length=np.array([0, 2, -1]))
    assert ids.shape[2] == 2 and not ids.numpy()[[0, 2]].any()
    assert np.all(np.isneginf(scores.numpy()[[0, 2]]))
    assert np.all(np.isfinite(scores.numpy()[1]))


def test_a_row_alone_gets_the_same():
    model = Model(8, 6, seed=3)
    limits = [1, 10, 2, 5, 3, 10, 4, 9]
    ids, scores = search(model, max_length=np.array(limits))
    for i, limit in enumerate(limits):
        alone_ids, alone_scores = beam_search(
            model.step(model.bias[i : i + 1], num_beams=4),
            model.state(4),
            1,
            1,
            END,
            limit,
        )
        rows = [padded(row, ids.shape[2]) for row in alone_ids.numpy()[0]]
        assert rows == ids.numpy()[i].tolist()
        np.testing.assert_allclose(alone_scores[0], scores[i], rtol=1e-5)


@pytest.mark.parametrize("min_length", [0, 3])
@pytest.mark.parametrize("end_id", [END, None])
def test_one_beam_is_greedy(end_id, min_length):
    for seed in range(5):
        model = Model(16, 6, seed=seed)
        ids, _ = search(
            model, end_id, num_beams=1, length_penalty=0, min_length=min_length
        )
        greedy = greedy_search(
            model.step(), model.state(16), 16, 1, end_id, 10, min_length=min_length
        )
        assert ids.numpy()[:, 0].tolist() == greedy.numpy().tolist()


def test_one_beam_is_greedy_where_log_probabilities_round_to_ties():
    # The two large logits differ by less than log probabilities can hold.
    logits = tf.constant([[-1e4, 0.0, 1e-30]])
    log_p = tf.nn.log_softmax(logits)[0]
    assert log_p[1] == log_p[2]

    def step(ids, state, position):
        return logits, state

    ids, _ = beam_search(step, (), 1, 0, None, 2, num_beams=1, length_penalty=0)
    assert ids.numpy()[:, 0].tolist() == [[2, 2]]
    assert greedy_search(step, (), 1, 0, None, 2).numpy().tolist() == [[2, 2]]


def test_finds_the_best_of_all_sequences():
    # Ids 0, 1 and END are possible, the rest never: so few that nothing is cut.
    model = Model(6, 12)
    model.bias[:, 3:] = -np.inf
    limit, every = 3, []
    for row in range(6):
        every.append([])
        for length in range(1, limit + 1):
            for start in itertools.product((0, 1), repeat=length - 1):
                ids = [*start, END]
                log_p = sum(model.log_p(row, ids[:i])[id_] for i, id_ in enumerate(ids))
                every[-1].append((score(log_p, length, 0.6), ids))
    ids, scores = search(model, max_length=limit, num_beams=12)
    for i, hypotheses in enumerate(every):
        found = {
            tuple(row): value
            for row, value in zip(
                ids.numpy()[i].tolist(), scores.numpy()[i], strict=True
            )
            if END in row
        }
        assert len(found) == len(hypotheses) == 7
        for value, written in hypotheses:
            np.testing.assert_allclose(
                found[tuple(padded(written, limit))], value, rtol=1e-4
            )
        best = max(hypotheses)
        first = [row for row in ids.numpy()[i].tolist() if END in row][0]
        assert first == padded(best[1], limit)


def test_fewer_sequences_than_beams():
    def step(ids, state, position):
        return tf.math.log(tf.constant([[0.0, 0.75, 0.25]] * 3)), state

    ids, scores = beam_search(
        step, (), 1, 0, 2, 1, num_beams=3, length_penalty=0, pad_id=9
    )
    # The finished one and the one without end; a third has probability 0.
    assert ids.numpy().tolist() == [[[1], [2], [9]]]
    np.testing.assert_allclose(np.exp(scores), [[0.75, 0.25, 0]], rtol=1e-5)


def short_or_long(p_end):
    """A step: id 2 ends at once with p_end, or else surely at position 8."""

    def step(ids, state, position):
        first = tf.constant([[0.0, 1 - p_end, p_end]])
        later = tf.one_hot([tf.where(position < 8, 1, 2)], 3)
        return tf.math.log(tf.where(position == 0, first, later)), state

    return step


def test_goes_on_while_a_longer_hypothesis_can_win():
    ids, scores = beam_search(
        short_or_long(0.6), (), 1, 0, END, 10, num_beams=1, length_penalty=1
    )
    assert ids.numpy().tolist() == [[[1] * 8 + [END]]]
    np.testing.assert_allclose(scores, [[score(np.log(0.4), 9, 1)]], rtol=1e-5)


def test_stops_when_no_longer_hypothesis_can_win():
    ids, scores = beam_search(
        short_or_long(0.9), (), 1, 0, END, 10, num_beams=1, length_penalty=1
    )
    assert ids.numpy().tolist() == [[[END]]]
    np.testing.assert_allclose(scores, [[np.log(0.9)]], rtol=1e-5)


@pytest.mark.parametrize(("patience", "length"), [(1, 1), (3, 1), (6, 9), (99, 9)])
def test_patience_is_how_much_longer_a_hypothesis_may_become(patience, length):
    # The long one wins if it has more than 5.7 ids.
    ids, _ = beam_search(
        short_or_long(0.6),
        (),
        1,
        0,
        END,
        10,
        num_beams=1,
        length_penalty=1,
        patience=patience,
    )
    assert ids.numpy().tolist() == [[[1] * (length - 1) + [END]]]


def test_scores_fall():
    _, scores = search(Model(12, 6), max_length=np.arange(1, 13))
    assert np.all(np.diff(scores.numpy()) <= 0)


def test_in_a_graph_and_from_disk(tmp_path):
    model = Model(6, 6)
    module = tf.Module()

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 6], tf.float32),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def decode(bias, limits):
        rows = tf.shape(bias)[0]
        return beam_search(
            model.step(bias, num_beams=3), model.state(rows * 3), rows, 1, END, limits,
            num_beams=3,
        )  # fmt: skip

    module.decode = decode
    tf.saved_model.save(module, tmp_path)
    limits = [3, 10, 10, 1, 5, 10]
    wanted = [beam(model, i, END, n, 3, 0.6) for i, n in enumerate(limits)]
    for function in (decode, tf.saved_model.load(tmp_path).decode):
        check(function(tf.constant(model.bias), tf.constant(limits)), wanted)
        check(function(tf.constant(model.bias[1:2]), tf.constant([10])), wanted[1:2])


def test_half_precision():
    model = Model(2, 6)
    ids, scores = beam_search(
        model.step(num_beams=2, dtype="bfloat16"),
        model.state(4),
        2,
        1,
        END,
        6,
        num_beams=2,
    )
    assert scores.dtype == tf.float32 and ids.shape[:2] == (2, 2)


@pytest.mark.parametrize("num_beams", [0, -1, 1.5])
def test_bad_beams(num_beams):
    with pytest.raises(ValueError, match="`num_beams` must be a whole number"):
        beam_search(Model(1, 6).step(), (), 1, 1, END, 5, num_beams=num_beams)


def test_more_beams_than_ids():
    with pytest.raises(ValueError, match="Use fewer beams"):
        search(Model(1, 6), num_beams=7)


def test_bad_length_penalty():
    with pytest.raises(ValueError, match="`length_penalty` must be at least 0"):
        search(Model(1, 6), length_penalty=-1)


def test_bad_patience():
    with pytest.raises(ValueError, match="`patience` must be at least 1"):
        search(Model(1, 6), patience=0.5)


def test_bad_max_length():
    with pytest.raises(ValueError, match="`max_length` must be"):
        search(Model(1, 6), max_length=0)
