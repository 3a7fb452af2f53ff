"""Means of rows selected by codes, and sums of rows per code, without one-hot matrices.

TensorFlow's sparse segment kernels read each row once and add in place, so that no
tensor `[N, m, D]` is stored. Narrow rows are summed by a sparse matrix product. These
kernels have no XLA version: a compiled graph uses plain operations instead.
"""

from collections.abc import Callable

import tensorflow as tf
from keras import ops
from tensorflow.python.ops import control_flow_util

# TensorFlow's sparse matrix product has a fast kernel for fewer columns than this.
NARROW = 32


def _compiled_by_xla():
    # TensorFlow has no public function for this. A wrong answer would be noticed: XLA
    # refuses the sparse kernels, and the conformance tests compile every layer.
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


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
    if samples == 1 or _compiled_by_xla():
        total = ops.segment_sum(rows, codes[:, 0], num_codes)
        for sample in range(1, samples):
            total = total + ops.segment_sum(rows, codes[:, sample], num_codes)
    elif rows.shape[1] < NARROW:
        total = _sum_narrow(rows, codes, num_codes)
    else:
        # These kernels need sorted segments that start at 0: entries of -1 are sorted
        # to the end and cut off.
        flat = ops.reshape(codes, (-1,))
        order = ops.cast(ops.argsort(ops.where(flat < 0, num_codes, flat)), "int32")
        order = order[: ops.sum(ops.cast(flat >= 0, "int32"))]
        total = tf.sparse.segment_sum(
            rows, order // samples, ops.take(flat, order), num_segments=num_codes
        )
    return total / samples


def _sum_narrow(rows, codes, num_codes):
    """Computes the same sums [K, D] by a product with a sparse matrix [K + 1, N].

    For narrow rows, sorting the codes would cost more than adding the rows. The last
    row of the product collects the entries of -1.
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
    ones = ops.ones_like(ops.reshape(codes, (-1,)), dtype="float32")
    return ops.segment_sum(ones, ops.reshape(codes, (-1,)), num_codes) / codes.shape[1]
