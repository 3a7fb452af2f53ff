"""The best alignment against all of them."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import ctc_alignment, ctc_loss
from tests.layers.test_ctc_loss import batch


def best_of_all(logits, target, mask, blank_id):
    """The ids of the best alignment, one alignment at a time; None if none fits."""
    used, best = np.flatnonzero(mask), (-np.inf, None)
    for path in itertools.product(range(logits.shape[1]), repeat=len(used)):
        merged = [id_ for id_, _ in itertools.groupby(path) if id_ != blank_id]
        if merged == [id_ for id_ in target if id_ != 0]:
            best = max(best, (logits[used, path].sum(), path))
    return best[1]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_is_the_best_of_all_alignments(seed, jit_compile):
    logits, target_ids, mask = batch(seed, 12, 5, 4, 4)
    align = tf.function(ctc_alignment, jit_compile=jit_compile)
    found = align(logits, target_ids, mask).numpy()
    fits = ctc_loss(logits, target_ids, mask)[1].numpy()
    for row in range(12):
        path = best_of_all(logits[row], target_ids[row], mask[row], 0)
        assert (path is not None) == fits[row]
        expected = np.zeros(5, int)
        if path is not None:
            expected[mask[row]] = path
        assert found[row].tolist() == expected.tolist()
    assert 0 < fits.sum() < 12


def test_another_blank():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 5, 4)).astype("float32")
    targets = np.array([[1, 2], [1, 1], [2, 0], [0, 0], [2, 1], [2, 2]])
    found = ctc_alignment(logits, targets, blank_id=3).numpy()
    for row, target in enumerate(targets):
        path = best_of_all(logits[row], target, np.ones(5, bool), 3)
        assert found[row].tolist() == list(path)


def test_half_precision_and_no_positions():
    logits, target_ids, mask = batch(9, 5, 6, 4, 3, spread=4.0)
    half = tf.cast(logits, "bfloat16")
    np.testing.assert_array_equal(
        ctc_alignment(half, target_ids, mask),
        ctc_alignment(tf.cast(half, "float32"), target_ids, mask),
    )
    assert ctc_alignment(logits[:, :0], target_ids, mask[:, :0]).shape == (5, 0)
