"""Means, sums and counts by code: the same to the bit, also for no rows at all."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers.bottlenecks import segments

CODES = 9
every_size = pytest.mark.parametrize("dim", [4, segments.NARROW, 67])
every_number = pytest.mark.parametrize("samples", [1, 2, 7])


def make(rng, dim, samples, count=40):
    rows = rng.normal(size=(count, dim)).astype("float32")
    codes = rng.integers(0, CODES, size=(count, samples)).astype("int32")
    return rows, codes


def sums(rows, codes):
    return segments.sum_by_code(tf.constant(rows), tf.constant(codes), CODES).numpy()


@every_size
@every_number
@pytest.mark.parametrize("jit", [False, True])
def test_no_rows_at_all(dim, samples, jit):
    # As on a replica that has no share of the last batch.
    signature = [
        tf.TensorSpec((None, dim)),
        tf.TensorSpec((CODES, dim)),
        tf.TensorSpec((None, samples), "int32"),
    ]

    @tf.function(input_signature=signature, jit_compile=jit)
    def statistics(rows, table, codes):
        return (
            segments.mean_of_rows(table, codes),
            segments.sum_by_code(rows, codes, CODES),
            segments.count_by_code(codes, CODES),
        )

    none = tf.zeros((0, dim)), tf.ones((CODES, dim)), tf.zeros((0, samples), "int32")
    means, total, counts = statistics(*none)
    assert means.shape == (0, dim)
    np.testing.assert_array_equal(total, np.zeros((CODES, dim)))
    np.testing.assert_array_equal(counts, np.zeros(CODES))


@every_size
@every_number
def test_masked_rows_change_no_bit(dim, samples, rng):
    rows, codes = make(rng, dim, samples)
    codes[rng.random(40) < 0.4] = -1
    masked = codes[:, 0] < 0
    first = sums(rows, codes)
    np.testing.assert_array_equal(first, sums(rows[~masked], codes[~masked]))
    rows[masked] = 1e30
    np.testing.assert_array_equal(first, sums(rows, codes))
    counts = segments.count_by_code(tf.constant(codes), CODES)
    kept = segments.count_by_code(tf.constant(codes[~masked]), CODES)
    np.testing.assert_array_equal(counts, kept)


@every_size
@every_number
def test_codes_do_not_depend_on_each_other(dim, samples, rng):
    # Each sum is added up by itself, in the order of the rows.
    rows, codes = make(rng, dim, samples)
    whole = sums(rows, codes)
    for code in range(CODES):
        alone = np.where(codes == code, code, -1).astype("int32")
        np.testing.assert_array_equal(sums(rows, alone)[code], whole[code])
    table = rng.normal(size=(CODES, dim)).astype("float32")
    means = segments.mean_of_rows(tf.constant(table), tf.constant(codes))
    for part in (slice(0, 1), slice(13, 40)):
        some = segments.mean_of_rows(tf.constant(table), tf.constant(codes[part]))
        np.testing.assert_array_equal(some, means[part])


def test_a_large_sum_is_the_same_in_each_run(rng):
    # So large that threads share the work.
    rows = rng.normal(size=(3000, 64)).astype("float32")
    codes = rng.integers(-1, 300, size=(3000, 8)).astype("int32")
    table = rng.normal(size=(300, 64)).astype("float32")

    @tf.function
    def statistics():
        chosen = tf.constant(np.maximum(codes, 0))
        return (
            segments.sum_by_code(tf.constant(rows), tf.constant(codes), 300),
            segments.mean_of_rows(tf.constant(table), chosen),
        )

    first = statistics()
    for _ in range(10):
        for a, b in zip(first, statistics(), strict=True):
            np.testing.assert_array_equal(a, b)
