"""The best path against a plain one."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.decoding import ctc_best_path
from tests.decoding.ctc_reference import merged
from tests.decoding.reference import padded

END = 1


def wanted(logits, end_id, mask, blank_id=0, blank_bias=0.0):
    biased = logits + blank_bias * np.eye(logits.shape[2])[blank_id]
    paths = np.argmax(biased, axis=2)
    return [
        padded(merged(path[used], end_id, blank_id), logits.shape[1])
        for path, used in zip(paths, mask, strict=True)
    ]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("blank_bias", [0.0, -1.0, 2])
@pytest.mark.parametrize("end_id", [END, None])
def test_is_the_plain_way(end_id, blank_bias, jit_compile, rng):
    # Few ids, so that many repeat and end; masks with holes.
    logits = rng.normal(size=(64, 15, 4)).astype("float32")
    mask = rng.random((64, 15)) < np.linspace(0, 1, 64)[:, None]
    function = tf.function(ctc_best_path, jit_compile=jit_compile)
    ids = function(logits, end_id, mask, blank_bias=blank_bias)
    assert ids.dtype == tf.int32
    assert ids.numpy().tolist() == wanted(logits, end_id, mask, 0, blank_bias)
    ids = function(logits, end_id, blank_bias=blank_bias)
    every = np.ones_like(mask)
    assert ids.numpy().tolist() == wanted(logits, end_id, every, 0, blank_bias)


def test_another_blank(rng):
    logits = rng.normal(size=(32, 10, 4)).astype("float32")
    mask = rng.random((32, 10)) < 0.7
    ids = ctc_best_path(logits, None, mask, blank_id=3, blank_bias=-0.5)
    assert ids.numpy().tolist() == wanted(logits, None, mask, 3, -0.5)


def test_a_lower_blank_gives_longer_sequences(rng):
    logits = rng.normal(size=(32, 20, 6)).astype("float32")
    short, long = (ctc_best_path(logits, None, blank_bias=b) for b in (1.0, -1.0))
    assert np.sum(long.numpy() > 0) > 1.2 * np.sum(short.numpy() > 0)


def test_half_precision_adds_the_bias_in_float32():
    # In bfloat16 the blank's 100 and 100 - 0.1 are the same.
    logits = tf.constant([[[100.0, 100.0]]], tf.bfloat16)
    assert ctc_best_path(logits, None).numpy().tolist() == [[0]]
    assert ctc_best_path(logits, None, blank_bias=-0.1).numpy().tolist() == [[1]]


def test_in_a_graph_and_from_disk(tmp_path, rng):
    module = tf.Module()
    module.decode = tf.function(
        lambda logits, mask: ctc_best_path(logits, END, mask, blank_bias=-1.0),
        input_signature=[
            tf.TensorSpec([None, None, None], tf.float32),
            tf.TensorSpec([None, None], tf.bool),
        ],
    )
    tf.saved_model.save(module, tmp_path)
    for function in (module.decode, tf.saved_model.load(tmp_path).decode):
        for rows, positions in ((5, 9), (1, 4), (0, 3), (2, 0)):
            logits = rng.normal(size=(rows, positions, 5)).astype("float32")
            mask = rng.random((rows, positions)) < 0.8
            ids = function(logits, mask)
            assert ids.shape == (rows, positions)
            assert ids.numpy().tolist() == wanted(logits, END, mask, 0, -1.0)


@pytest.mark.parametrize("blank_id", [-1, 0.5, 4])
def test_bad_blank(blank_id):
    with pytest.raises(ValueError, match="`blank_id` must be"):
        ctc_best_path(np.zeros((1, 2, 4), "float32"), END, blank_id=blank_id)


def test_bad_logits():
    with pytest.raises(ValueError, match="`logits` must be floats"):
        ctc_best_path(np.zeros((2, 4), "float32"), END)
