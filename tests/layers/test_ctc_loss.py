"""The CTC loss against all alignments, and against TensorFlow's."""

import itertools

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from keras_vqem.layers import ctc_loss

settings = hypothesis.settings(max_examples=30, deadline=None, derandomize=True)


def batch(seed, rows, positions, vocabulary, labels, spread=1.0):
    """Logits, targets that fit or not, and masks that cut positions off."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, spread, (rows, positions, vocabulary)).astype("float32")
    lengths = rng.integers(0, labels + 1, rows)
    target_ids = rng.integers(1, vocabulary, (rows, labels))
    target_ids[np.arange(labels) >= lengths[:, None]] = 0
    mask = np.arange(positions) < rng.integers(1, positions + 1, (rows, 1))
    return logits, target_ids, mask


def all_alignments(logits, target, mask, blank_id=0):
    """Negative log likelihood and its gradient, one alignment at a time."""
    logits = logits.astype("float64")
    p = np.exp(logits) / np.sum(np.exp(logits), axis=-1, keepdims=True)
    used = np.flatnonzero(mask)
    total, occupancy = 0.0, np.zeros_like(p)
    for path in itertools.product(range(p.shape[1]), repeat=len(used)):
        merged = [id_ for id_, _ in itertools.groupby(path) if id_ != blank_id]
        if merged == [id_ for id_ in target if id_ != 0]:
            own = np.prod(p[used, path])
            total += own
            occupancy[used, path] += own
    if total == 0:
        return 0.0, np.zeros_like(p)
    return -np.log(total), p * mask[:, None] - occupancy / total


def loss_and_gradient(logits, target_ids, mask=None, **kwargs):
    logits = tf.convert_to_tensor(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss, fits = ctc_loss(logits, target_ids, mask, **kwargs)
    return loss, fits, tape.gradient(loss, logits)


@settings
@hypothesis.given(
    seed=st.integers(0, 2**32 - 1),
    positions=st.integers(1, 5),
    vocabulary=st.integers(2, 4),
    labels=st.integers(0, 4),
    blank_id=st.integers(0, 3),
    spread=st.sampled_from([0.1, 1.0, 5.0]),
)
def test_is_the_sum_over_all_alignments(
    seed, positions, vocabulary, labels, blank_id, spread
):
    logits, target_ids, _ = batch(seed, 3, positions, vocabulary, labels, spread)
    blank_id %= vocabulary
    if blank_id:
        target_ids[target_ids == blank_id] = vocabulary - 1
        logits, vocabulary = np.pad(logits, [(0, 0), (0, 0), (0, 1)]), vocabulary + 1
        target_ids[target_ids == blank_id] = vocabulary - 1
    mask = np.random.default_rng(seed).random((3, positions)) < 0.8
    found = loss_and_gradient(logits, target_ids, mask, blank_id=blank_id)
    for i, (loss, fits, gradient) in enumerate(zip(*found, strict=True)):
        wanted = all_alignments(logits[i], target_ids[i], mask[i], blank_id)
        np.testing.assert_allclose(loss, wanted[0], rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(gradient, wanted[1], atol=2e-6)
        repeats = np.sum((np.diff(target_ids[i]) == 0) & (target_ids[i][1:] > 0))
        assert bool(fits) == (np.sum(target_ids[i] > 0) + repeats <= np.sum(mask[i]))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("spread", [0.1, 3.0, 20.0])
def test_is_the_loss_of_tensorflow(spread, jit_compile):
    logits, target_ids, mask = batch(0, 16, 40, 30, 12, spread)
    with tf.GradientTape() as tape:
        inputs = tf.constant(logits)
        tape.watch(inputs)
        wanted = tf.nn.ctc_loss(
            target_ids,
            inputs,
            np.sum(target_ids > 0, axis=1),
            np.sum(mask, axis=1),
            logits_time_major=False,
            blank_index=0,
        )
    gradient = tape.gradient(wanted, inputs)
    function = tf.function(loss_and_gradient, jit_compile=jit_compile)
    found = function(logits, target_ids, mask)
    fits = found[1].numpy()
    assert 3 < np.sum(fits) < 16
    np.testing.assert_allclose(found[0][fits], wanted[fits], rtol=2e-6)
    np.testing.assert_allclose(found[2][fits], gradient[fits], atol=1e-5)


def test_a_target_that_does_not_fit_has_no_loss_and_no_gradient(rng):
    logits = rng.normal(size=(4, 3, 5)).astype("float32")
    target_ids = np.array([[2, 2, 3], [1, 2, 3], [2, 2, 0], [4, 4, 4]])
    loss, fits, gradient = loss_and_gradient(logits, target_ids)
    assert fits.numpy().tolist() == [False, True, True, False]
    assert np.all((loss.numpy() > 0) == fits)
    assert np.all(np.any(gradient.numpy() != 0, axis=(1, 2)) == fits)


def test_empty_targets_and_masked_rows(rng):
    logits = rng.normal(size=(4, 3, 5)).astype("float32")
    target_ids = np.array([[0, 0], [0, 0], [2, 0], [2, 0]])
    mask = np.array([[1, 1, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0]], bool)
    loss, fits, gradient = loss_and_gradient(logits, target_ids, mask)
    log_p = tf.nn.log_softmax(logits).numpy()
    assert fits.numpy().tolist() == [True, True, False, True]
    wanted = [-np.sum(log_p[0, :, 0]), 0, 0, -log_p[3, 1, 2]]
    np.testing.assert_allclose(loss, wanted, rtol=1e-6)
    np.testing.assert_allclose(gradient[0], np.exp(log_p[0]) - np.eye(5)[0], atol=1e-6)
    assert not np.any(gradient[1:3]) and not np.any(gradient[3].numpy()[[0, 2]])
    # No labels at all, and no positions at all.
    narrow = ctc_loss(logits, target_ids[:, :0], mask)[0]
    np.testing.assert_allclose(narrow[:2], wanted[:2], rtol=1e-6)
    loss, fits = ctc_loss(logits[:, :0], target_ids)
    assert not np.any(loss) and fits.numpy().tolist() == [True, True, False, False]


def test_masked_positions_are_as_if_they_were_not_there(rng):
    logits, target_ids, _ = batch(1, 6, 12, 7, 4)
    keep = np.array([0, 1, 4, 5, 6, 9, 10, 11])
    mask = np.isin(np.arange(12), keep)[None].repeat(6, axis=0)
    logits[:, ~mask[0]] = np.nan
    loss, fits, gradient = loss_and_gradient(logits, target_ids, mask)
    wanted = loss_and_gradient(logits[:, keep], target_ids)
    np.testing.assert_allclose(loss, wanted[0], rtol=1e-6)
    np.testing.assert_allclose(gradient.numpy()[:, keep], wanted[2], atol=1e-6)
    assert np.all(fits == wanted[1]) and not np.any(gradient.numpy()[:, ~mask[0]])


def test_a_row_alone_gets_the_same():
    logits, target_ids, mask = batch(2, 8, 14, 9, 6)
    together = loss_and_gradient(logits, target_ids, mask)
    for i in range(8):
        alone = loss_and_gradient(
            logits[i : i + 1],
            np.trim_zeros(target_ids[i], "b")[None],
            mask[i : i + 1],
        )
        for one, many in zip(alone, together, strict=True):
            np.testing.assert_allclose(one[0], many[i], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_float32_inside(dtype):
    logits, target_ids, mask = batch(3, 6, 60, 20, 8, spread=3.0)
    half = tf.cast(logits, dtype)
    loss, fits, gradient = loss_and_gradient(half, target_ids, mask)
    wanted = loss_and_gradient(tf.cast(half, "float32"), target_ids, mask)
    assert loss.dtype == "float32" and gradient.dtype == dtype
    np.testing.assert_array_equal(loss, wanted[0])
    np.testing.assert_array_equal(gradient, tf.cast(wanted[2], dtype))


def test_the_gradient_follows_the_weights_of_rows():
    logits, target_ids, mask = batch(4, 4, 10, 6, 3)
    weights = np.array([2.0, 0.0, -1.0, 0.5], "float32")
    gradient = loss_and_gradient(logits, target_ids, mask)[2]
    inputs = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        total = tf.reduce_sum(weights * ctc_loss(inputs, target_ids, mask)[0])
    np.testing.assert_allclose(
        tape.gradient(total, inputs), weights[:, None, None] * gradient, atol=1e-6
    )


def test_impossible_and_extreme_logits(rng):
    logits = rng.normal(size=(4, 5, 4)).astype("float32")
    logits[0, :, 3] = -np.inf  # Not in the target.
    logits[1, :, 2] = -np.inf  # In the target.
    logits[2] = [1e30, 0, 0, 0]
    logits[3] *= 1e4
    target_ids = np.array([[1, 2], [1, 2], [1, 1], [3, 2]])
    loss, fits, gradient = loss_and_gradient(logits, target_ids)
    assert np.all(fits) and loss[1] == np.inf and not np.any(gradient[1])
    assert np.all(np.isfinite(loss.numpy()[[0, 2, 3]]))
    assert np.all(np.isfinite(gradient))
    wanted = all_alignments(logits[0], target_ids[0], np.ones(5, bool))
    np.testing.assert_allclose(loss[0], wanted[0], rtol=2e-6)
    np.testing.assert_allclose(gradient[0], wanted[1], atol=2e-6)


def test_long_rows_keep_their_digits():
    # One alignment has nearly all the probability, so the gradient is nearly 0.
    positions, vocabulary = 400, 50
    path = np.random.default_rng(5).integers(0, 2, positions).cumsum() % 49 + 1
    logits = np.full((1, positions, vocabulary), -12.0, "float32")
    logits[0, np.arange(positions), path] = 12.0
    target = [[id_ for id_, _ in itertools.groupby(path)]]
    _, _, gradient = loss_and_gradient(logits, np.array(target))
    np.testing.assert_allclose(gradient, np.zeros_like(gradient), atol=1e-6)


def test_one_graph_for_all_shapes():
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, None], tf.float32),
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, None], tf.bool),
        ]
    )
    def graph(*inputs):
        return loss_and_gradient(*inputs)

    for shape in [(3, 5, 4, 2), (1, 9, 7, 4), (5, 2, 3, 0)]:
        logits, target_ids, mask = batch(6, *shape)
        found = graph(logits, target_ids.astype("int32"), mask)
        wanted = loss_and_gradient(logits, target_ids, mask)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
    for rows in (0, 2):  # Without any positions only an empty target fits.
        target_ids = np.array([[0, 0], [3, 0]], "int32")[:rows]
        loss, fits, _ = graph(
            np.zeros((rows, 0, 4), "float32"), target_ids, np.zeros((rows, 0), bool)
        )
        assert loss.numpy().tolist() == [0.0, 0.0][:rows]
        assert fits.numpy().tolist() == [True, False][:rows]


@pytest.mark.parametrize("blank_id", [-1, 1.5, 5])
def test_bad_blank(blank_id):
    with pytest.raises(ValueError, match="`blank_id` must be"):
        ctc_loss(np.zeros((1, 2, 5), "float32"), [[1]], blank_id=blank_id)


@pytest.mark.parametrize(
    "logits", [np.zeros((2, 5), "float32"), np.zeros((1, 2, 5), "int32")]
)
def test_bad_logits(logits):
    with pytest.raises(ValueError, match="`logits` must be floats"):
        ctc_loss(logits, [[1]])


def test_bad_targets():
    with pytest.raises(ValueError, match="`target_ids` must be integers"):
        ctc_loss(np.zeros((1, 2, 5), "float32"), [1])
