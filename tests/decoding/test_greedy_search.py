"""Greedy search against a loop in plain Python."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.decoding import greedy_search
from tests.decoding.reference import Model, greedy, padded

END = 2


def expected(model, limits, end_id=END, min_length=0, pad_id=0):
    rows = [greedy(model, i, end_id, n, min_length) for i, n in enumerate(limits)]
    return [padded(row, max(map(len, rows)), pad_id) for row in rows]


def search(model, end_id=END, max_length=12, **kwargs):
    rows = len(model.bias)
    return greedy_search(
        model.step(), model.state(rows), rows, 1, end_id, max_length, **kwargs
    )


@pytest.mark.parametrize("min_length", [0, 1, 4, 12])
@pytest.mark.parametrize("end_id", [END, None])
def test_is_the_plain_loop(end_id, min_length):
    model = Model(8, 5)
    ids = search(model, end_id, min_length=min_length)
    assert ids.dtype == tf.int32
    assert ids.numpy().tolist() == expected(model, [12] * 8, end_id, min_length)


def test_rows_end_at_different_positions():
    model = Model(32, 5)
    ids = search(model).numpy()
    assert ids.tolist() == expected(model, [12] * 32)
    assert len({row.tolist().index(END) for row in ids if END in row}) > 2


def test_limits_of_rows():
    model = Model(8, 5)
    limits = [1, 12, 2, 7, 3, 3, 5, 12]
    ids = search(model, max_length=tf.constant(limits, tf.int64), pad_id=4)
    assert ids.numpy().tolist() == expected(model, limits, pad_id=4)


def test_rows_without_room_stay_empty():
    model = Model(3, 5)
    ids = search(model, end_id=None, max_length=np.array([0, 2, -1])).numpy()
    assert ids.shape == (3, 2) and not ids[[0, 2]].any()
    assert search(model, max_length=np.zeros(3, int)).shape == (3, 0)


def test_empty_batch():
    assert search(Model(0, 5)).shape == (0, 0)


def test_a_row_alone_gets_the_same():
    model = Model(8, 5)
    limits = np.array([1, 12, 2, 7, 3, 3, 5, 12])
    together = search(model, max_length=limits).numpy()
    for i in range(8):
        alone = greedy_search(
            model.step(model.bias[i : i + 1]), model.state(1), 1, 1, END, limits[i]
        )
        row = padded(alone.numpy()[0], together.shape[1])
        assert row == together[i].tolist()


def test_lowest_of_equal_ids():
    def step(ids, state, position):
        return tf.constant([[0.0, 3.0, 3.0, 1.0]]), state

    ids = greedy_search(step, (), 1, 0, None, 3)
    assert ids.numpy().tolist() == [[1, 1, 1]]


def test_positions_and_ids_that_step_sees():
    seen = []

    def step(ids, state, position):
        seen.append((int(position), ids.numpy().tolist()))
        return tf.one_hot(ids + 1, 6), state

    ids = greedy_search(step, (), 2, 2, 5, np.array([1, 9]), pad_id=-1)
    assert ids.numpy().tolist() == [[3, -1, -1], [3, 4, 5]]
    assert [position for position, _ in seen] == [0, 1, 2]
    assert seen[0][1] == [2, 2] and [ids[1] for _, ids in seen] == [2, 3, 4]
    # What an ended row gets does not matter, but it must be an id of the model.
    assert all(0 <= ids[0] < 6 for _, ids in seen)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(dtype):
    model = Model(2, 5)
    ids = greedy_search(model.step(dtype=dtype), model.state(2), 2, 1, None, 1)
    rounded = tf.cast(tf.cast(model.bias + model.table[0, 1], dtype), "float32")
    assert ids.numpy()[:, 0].tolist() == np.argmax(rounded, axis=-1).tolist()


def test_in_a_graph_and_from_disk(tmp_path):
    model = Model(6, 5)
    module = tf.Module()

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 5], tf.float32),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def decode(bias, limits):
        rows = tf.shape(bias)[0]
        return greedy_search(
            model.step(bias), model.state(rows), rows, 1, END, limits, min_length=1
        )

    module.decode = decode
    tf.saved_model.save(module, tmp_path)
    limits = [3, 12, 12, 12, 5, 12]
    wanted = expected(model, limits, min_length=1)
    loaded = tf.saved_model.load(tmp_path)
    for function in (decode, loaded.decode):
        ids = function(tf.constant(model.bias), tf.constant(limits))
        assert ids.numpy().tolist() == wanted
    one = loaded.decode(tf.constant(model.bias[1:2]), tf.constant([12]))
    assert padded(one.numpy()[0], len(wanted[1])) == wanted[1]


def test_static_batch_in_a_graph():
    model = Model(6, 5)
    decode = tf.function(lambda: search(model))
    assert decode.get_concrete_function().output_shapes.as_list() == [6, None]
    assert decode().numpy().tolist() == expected(model, [12] * 6)


@pytest.mark.parametrize("max_length", [0, -1, 2.5, None, "3", True])
def test_bad_max_length(max_length):
    with pytest.raises(ValueError, match="`max_length` must be"):
        search(Model(2, 5), max_length=max_length)


def test_bad_limits_of_rows():
    with pytest.raises(ValueError, match=r"integers \[batch\]"):
        search(Model(2, 5), max_length=tf.constant([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"integers \[batch\]"):
        search(Model(2, 5), max_length=tf.constant([[1, 2]]))


def test_bad_min_length():
    with pytest.raises(ValueError, match="`min_length` must be"):
        search(Model(2, 5), min_length=-1)


def test_logits_of_all_positions_are_refused():
    with pytest.raises(ValueError, match=r"logits\[:, -1\]"):
        greedy_search(lambda *_: (tf.zeros([1, 3, 5]), ()), (), 1, 1, END, 3)
