"""Means of rows picked by codes, and sums of rows by code, without one-hot matrices.

TensorFlow's sparse segment kernels read each row once and add in place; `[N, m, D]`
is never stored. Narrow rows are summed by a sparse product. These kernels have no XLA
version, so a compiled graph takes the plain way.
"""

import tensorflow as tf
from keras import ops
from tensorflow.python.ops import control_flow_util

# TensorFlow's sparse matrix product has a fast way for fewer columns than this.
NARROW = 32


def _compiled_by_xla():
    # TensorFlow has no public way to ask this. A wrong answer would show at once: XLA
    # refuses the sparse kernels, and the conformance tests compile every layer.
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def per_codebook(function, *tensors):
    """`function` on each codebook's part of [C, ...] tensors, the results stacked.

    A loop over few codebooks: TensorFlow's batched matrix product is slower on a CPU
    than one plain product a codebook.
    """
    parts = zip(*(ops.unstack(x) for x in tensors), strict=True)
    results = [function(*part) for part in parts]
    if isinstance(results[0], tuple):
        return tuple(ops.stack(x) for x in zip(*results, strict=True))
    return ops.stack(results)


def mean_of_rows(table, codes):
    """[N, D]: for each row of `codes` [N, m] the mean of those rows of `table`."""
    samples = codes.shape[1]
    if samples == 1:
        return ops.take(table, codes[:, 0], axis=0)
    if _compiled_by_xla():
        rows = ops.take(table, codes[:, 0], axis=0)
        for sample in range(1, samples):
            rows = rows + ops.take(table, codes[:, sample], axis=0)
        return rows / samples
    count = ops.shape(codes)[0]
    owners = ops.repeat(ops.arange(count, dtype="int32"), samples)
    return tf.sparse.segment_mean(
        table, ops.reshape(codes, (-1,)), owners, num_segments=count
    )


def sum_by_code(rows, codes, num_codes):
    """[K, D]: for each code the sum of the rows it got.

    Args:
        rows: [N, D].
        codes: [N, m] integers; a row counts 1 / m for each, and nothing for -1.
        num_codes: K.
    """
    samples = codes.shape[1]
    if samples == 1 or _compiled_by_xla():
        total = ops.segment_sum(rows, codes[:, 0], num_codes)
        for sample in range(1, samples):
            total = total + ops.segment_sum(rows, codes[:, sample], num_codes)
    elif rows.shape[1] < NARROW:
        total = _sum_narrow(rows, codes, num_codes)
    else:
        # These kernels want sorted segments from 0: what counts for nothing is sorted
        # to the end, and cut off.
        flat = ops.reshape(codes, (-1,))
        order = ops.cast(ops.argsort(ops.where(flat < 0, num_codes, flat)), "int32")
        order = order[: ops.sum(ops.cast(flat >= 0, "int32"))]
        total = tf.sparse.segment_sum(
            rows, order // samples, ops.take(flat, order), num_segments=num_codes
        )
    return total / samples


def _sum_narrow(rows, codes, num_codes):
    """[K, D]: the same sum as a product with a sparse matrix of ones, [K + 1, N].

    Sorting codes costs more than adding narrow rows. The last row of the product
    takes what counts for nothing.
    """
    count, samples = ops.shape(codes)[0], codes.shape[1]
    flat = ops.cast(ops.reshape(codes, (-1,)), "int64")
    flat = ops.where(flat < 0, num_codes, flat)
    owners = ops.repeat(ops.arange(count, dtype="int64"), samples)
    ones = tf.SparseTensor(
        ops.stack([flat, owners], axis=1),
        ops.ones((count * samples,), "float32"),
        (num_codes + 1, count),
    )
    return tf.sparse.sparse_dense_matmul(ones, rows)[:num_codes]


def count_by_code(codes, num_codes):
    """[K]: how many rows of `codes` [N, m] each code got, as in `sum_by_code`."""
    ones = ops.ones_like(ops.reshape(codes, (-1,)), dtype="float32")
    return ops.segment_sum(ones, ops.reshape(codes, (-1,)), num_codes) / codes.shape[1]
