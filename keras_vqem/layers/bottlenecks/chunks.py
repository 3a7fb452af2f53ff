"""Work on many rows in chunks, one chunk after the other, to bound the memory."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import ops


def apply(
    function: Callable, arguments: dict[str, tf.Tensor], largest: int, dtypes: Any
) -> Any:
    """Applies a function to chunks of rows.

    Args:
        function: Function of a dict of tensors `[n, ...]`, which returns a nest of
            tensors `[n, ...]`.
        arguments: Dict of tensors `[N, ...]`, one of them `rows`.
        largest: Number of rows that the function may take at a time.
        dtypes: Dtypes of what the function returns, in the same structure.

    Returns:
        A nest of tensors `[N, ...]`.
    """
    chunks = _cut(arguments, largest)
    if chunks is None:
        return function(arguments)
    # tf.map_fn, because ops.map cannot be told to hold only one chunk at a time.
    results = tf.map_fn(
        function, chunks, fn_output_signature=dtypes, parallel_iterations=1
    )
    return _join(results, arguments)


def fold(
    function: Callable, arguments: dict[str, tf.Tensor], largest: int
) -> tuple[tuple, tuple]:
    """Applies a function to chunks of rows, and adds up what does not belong to a row.

    Args:
        function: Function of a dict of tensors `[n, ...]`. It returns two tuples of
            tensors, the first `[n, ...]` and the second of any fixed shape. Rows of
            zeros may come at the end of the last chunk: they must add 0.
        arguments: Dict of tensors `[N, ...]`, one of them `rows`.
        largest: Number of rows that the function may take at a time.

    Returns:
        The two tuples: tensors `[N, ...]`, and sums over the chunks. They are
        constants; no gradient passes.
    """
    chunks = _cut(arguments, largest)
    if chunks is None:
        return function(arguments)
    number = ops.shape(chunks["rows"])[0]

    def at(i):
        return function({name: x[i] for name, x in chunks.items()})

    def step(i, arrays, sums):
        per_row, more = at(i)
        arrays = [a.write(i, x) for a, x in zip(arrays, per_row, strict=True)]
        return i + 1, arrays, [a + b for a, b in zip(sums, more, strict=True)]

    # The first chunk says which shapes and dtypes there are.
    per_row, sums = at(0)
    arrays = [
        tf.TensorArray(x.dtype, number, element_shape=x.shape).write(0, x)
        for x in per_row
    ]
    _, arrays, sums = tf.while_loop(
        lambda i, *_: i < number,
        step,
        (1, arrays, list(sums)),
        parallel_iterations=1,
    )
    return _join(tuple(a.stack() for a in arrays), arguments), tuple(sums)


def _cut(arguments, largest):
    """Cuts tensors [N, ...] into chunks [n, N / n, ...]; None if one is enough."""
    static_count = arguments["rows"].shape[0]
    if static_count is not None and static_count <= largest:
        return None
    count = ops.shape(arguments["rows"])[0]
    chunks = ops.maximum((count + largest - 1) // largest, 1)
    size = (count + chunks - 1) // chunks

    def cut(x):
        padding = [[0, size * chunks - count]] + [[0, 0]] * (len(x.shape) - 1)
        return ops.reshape(tf.pad(x, padding), (chunks, size, *x.shape[1:]))

    return {name: cut(x) for name, x in arguments.items()}


def _join(results, arguments):
    count = ops.shape(arguments["rows"])[0]
    return tf.nest.map_structure(
        lambda x: ops.reshape(x, (-1, *x.shape[2:]))[:count], results
    )
