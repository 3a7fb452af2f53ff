"""Means of rows selected by codes, and sums of rows per code, without one-hot matrices.

Codes `[N, m]` are the places of the entries 1 / m in a sparse matrix `[N, K]`. Means
are its product with the codebook, and sums that of its transpose with the rows.
TensorFlow's kernels for such matrices share the rows of a product among threads. Each
row is added up by one thread, from left to right and in place: sums are the same to the
bit in each run, and no tensor `[N, m, D]` is stored. Under XLA, which lacks these
kernels, and on GPUs there is one plain operation per draw instead.
"""

from collections.abc import Callable

import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks.passes import plain_only

# TensorFlow's sparse matrix product has a fast kernel for fewer columns than this.
NARROW = 32


def per_codebook(
    function: Callable, *tensors: tf.Tensor
) -> tf.Tensor | tuple[tf.Tensor, ...]:
    """Applies a function to each codebook separately, and stacks the results.

    This is a Python loop because there are few codebooks, and on a CPU TensorFlow's
    batched matrix product is slower than one plain product per codebook.

    Args:
        function: Function of tensors without the first axis. It returns a tensor or a
            tuple of tensors.
        *tensors: Tensors `[C, ...]`.

    Returns:
        Tensor `[C, ...]`, or a tuple of them.
    """
    parts = zip(*(ops.unstack(x) for x in tensors), strict=True)
    results = [function(*part) for part in parts]
    if isinstance(results[0], tuple):
        return tuple(ops.stack(x) for x in zip(*results, strict=True))
    return ops.stack(results)


def mean_of_rows(table: tf.Tensor, codes: tf.Tensor) -> tf.Tensor:
    """Averages the rows of a table that each row of codes selects.

    Args:
        table: Vectors `[K, D]`.
        codes: Indices of rows of the table, integers `[N, m]`.

    Returns:
        Means `[N, D]`.
    """
    samples = codes.shape[1]
    if samples == 1:
        return ops.take(table, codes[:, 0], axis=0)
    if plain_only():
        rows = ops.take(table, codes[:, 0], axis=0)
        for sample in range(1, samples):
            rows = rows + ops.take(table, codes[:, sample], axis=0)
        return rows / samples
    count = ops.shape(codes)[0]
    # With one row more, an empty one: TensorFlow's product divides by 0 if there are no
    # rows at all, as on a replica without a share of the last batch.
    weights = _weights(codes, count + 1, table.shape[0])
    return tf.raw_ops.SparseMatrixMatMul(a=weights, b=table)[:count]


def sum_by_code(rows: tf.Tensor, codes: tf.Tensor, num_codes: int) -> tf.Tensor:
    """Sums, for each code, the rows assigned to it.

    Args:
        rows: Vectors `[N, D]`.
        codes: Codes of the rows, integers `[N, m]`. A row counts `1 / m` for each of
            its codes; -1 stands for no code.
        num_codes: Number of codes, `K`.

    Returns:
        Sums `[K, D]`.
    """
    samples = codes.shape[1]
    if plain_only() or (samples == 1 and rows.shape[1] < NARROW):
        total = ops.segment_sum(rows, codes[:, 0], num_codes)
        for sample in range(1, samples):
            total = total + ops.segment_sum(rows, codes[:, sample], num_codes)
        return total / samples
    if rows.shape[1] < NARROW:
        return _sum_narrow(rows, codes, num_codes) / samples
    # Masked rows add up in a column of their own. The transpose of the matrix is made
    # first: the product by a transpose adds in an order left to chance.
    codes = ops.where(codes < 0, num_codes, codes)
    weights = _weights(codes, ops.shape(codes)[0], num_codes + 1)
    weights = tf.raw_ops.SparseMatrixTranspose(input=weights, type=tf.float32)
    return tf.raw_ops.SparseMatrixMatMul(a=weights, b=rows)[:num_codes]


def _weights(codes, rows, columns):
    """Returns the sparse matrix [rows, columns] with 1 / m at the codes [N, m]."""
    samples = codes.shape[1]
    shape = ops.stack([ops.cast(size, "int64") for size in (rows, columns)])
    places = _places(codes)
    return tf.raw_ops.SparseTensorToCSRSparseMatrix(
        indices=places,
        values=tf.fill(ops.shape(places)[:1], 1.0 / samples),
        dense_shape=shape,
    )


def _places(codes):
    """Returns the numbers of rows, and the codes [N, m] in them, as [N m, 2]."""
    rows = ops.arange(ops.shape(codes)[0], dtype="int64")[:, None]
    rows = ops.broadcast_to(rows, ops.shape(codes))
    return ops.reshape(ops.stack([rows, ops.cast(codes, "int64")], axis=-1), (-1, 2))


def _sum_narrow(rows, codes, num_codes):
    """Computes the same sums [K, D] by a product with a sparse matrix [K + 1, N].

    The last row of the product collects the entries of -1.
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


def count_by_code(codes: tf.Tensor, num_codes: int) -> tf.Tensor:
    """Counts, for each code, the rows assigned to it, as in `sum_by_code`.

    Args:
        codes: Codes of the rows, integers `[N, m]`. A row counts `1 / m` for each of
            its codes; -1 stands for no code.
        num_codes: Number of codes, `K`.

    Returns:
        Counts, float32 `[K]`.
    """
    # By raw_ops, as tf.math.bincount reads all codes once more to find the largest.
    counts = tf.raw_ops.DenseBincount(
        input=ops.reshape(codes, (-1,)) + 1,
        size=num_codes + 1,
        weights=tf.zeros((0,), "float32"),
    )
    return counts[1:] / codes.shape[1]
