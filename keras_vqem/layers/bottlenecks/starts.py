"""Where codes come from: vectors of the current batch, the same for all replicas."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_vqem import replicas
from keras_vqem.layers.bottlenecks import segments
from keras_vqem.layers.bottlenecks.kmeans import kmeans

# Lower bound of the counts of codes with a vector: 0 marks codes without one.
SMALLEST_COUNT = 1e-30

# Initializers that wait for data.
FROM_DATA = ("data", "kmeans")

# k-means of a batch looks at no more vectors than these. More hardly move a centre.
VECTORS_PER_CODE = 256


def get(
    initializer: keras.initializers.Initializer | str | dict[str, Any],
) -> keras.initializers.Initializer | str:
    """Returns what the argument `initializer` of a layer stands for.

    Args:
        initializer: A name from `FROM_DATA`, or anything that
            `keras.initializers.get` takes.

    Returns:
        The name, or a Keras initializer.
    """
    if isinstance(initializer, np.ndarray):
        raise ValueError(
            f"`initializer` must be 'data', 'kmeans' or a Keras initializer, received "
            f"an array of shape {initializer.shape}. To set the codes yourself, use "
            f"keras.initializers.Constant(codes[None])."
        )
    if initializer in FROM_DATA:
        return initializer
    return keras.initializers.get(initializer)


def serialize(
    initializer: keras.initializers.Initializer | str,
) -> str | dict[str, Any]:
    """Returns a value for `get_config`, which `get` accepts.

    Args:
        initializer: What `get` returned.

    Returns:
        The name, or the serialized initializer.
    """
    if initializer in FROM_DATA:
        return initializer
    return keras.initializers.serialize(initializer)


def give_places(
    vectors: tf.Tensor,
    counts: tf.Tensor,
    pieces: tf.Tensor,
    keep: tf.Tensor,
    per_replica: tf.Tensor,
    *,
    generator: keras.random.SeedGenerator,
    dead_code_threshold: float = 0.0,
    by_kmeans: Callable | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Gives vectors of a batch to codes that have none and to dead codes.

    Args:
        vectors: Codebooks `[C, K, d]`.
        counts: Counts of the codes, `[C, K]`; 0 marks a code without a vector.
        pieces: Pieces of vectors, `[C, M, d]`.
        keep: Floats `[C, M]`, 1 for pieces that may be used and 0 for others. All
            rows must be equal.
        per_replica: Number of pieces of each replica that may be used, `[R]`.
        generator: Seeds, the same on all replicas.
        dead_code_threshold: Fraction of the average count below which a code is dead.
        by_kmeans: Method `prepare` of a similarity, to start codebooks in which no code
            has a vector by k-means. None starts them by vectors spread over the batch.

    Returns:
        The codebooks `[C, K, d]` and their counts `[C, K]`.
    """
    if by_kmeans is not None:
        started = ops.any(counts > 0)
        vectors, counts = _start_by_kmeans(
            started, vectors, counts, pieces, keep, per_replica, generator, by_kmeans
        )
    average = ops.mean(counts, axis=-1, keepdims=True)
    needy = counts <= dead_code_threshold * average
    if by_kmeans is not None:
        # A code that k-means just found no vector for waits for the next batch.
        needy = needy & started
    # Below 1, where float32 would round the last position up beyond the end.
    offset = keras.random.uniform((), maxval=0.99, dtype="float32", seed=generator)

    def place():
        given, row, here = _find_places(keep, needy, offset, per_replica)
        newborn = ops.maximum(average, SMALLEST_COUNT)
        return (
            _put(vectors, _padded(pieces), given, row, here),
            ops.where(given, newborn, counts),
        )

    # Most steps have no code to place. Several replicas still do the work, because
    # a collective must not be inside a cond; but then it is on an empty tensor.
    if replicas.num_replicas() > 1:
        return place()
    return ops.cond(ops.any(needy), place, lambda: (vectors, counts))


def _start_by_kmeans(
    started, vectors, counts, pieces, keep, per_replica, generator, prepare
):
    """Returns codebooks and counts after k-means of this batch, if not yet started."""
    uniforms = keras.random.uniform(counts.shape, dtype="float32", seed=generator)
    most = VECTORS_PER_CODE * counts.shape[1]
    shared = replicas.num_replicas() > 1
    if shared:
        # Every replica gets the same vectors and finds the same centres. The exchange
        # cannot be in a cond, but of no vectors it costs little.
        sample = _sample(pieces, keep, per_replica, ops.where(started, 0, most))

    def start():
        points, weights = sample if shared else _sample(pieces, keep, per_replica, most)
        centres, _, placed = segments.per_codebook(
            lambda points, noise: kmeans(points, weights, noise, prepare),
            points,
            uniforms,
        )
        # Like other new codes at the first step, they weigh next to nothing.
        return centres, SMALLEST_COUNT * ops.cast(placed, "float32")

    return ops.cond(started, lambda: (vectors, counts), start)


def _sample(pieces, keep, per_replica, most):
    """Returns at most `most` usable pieces of all replicas, and weights.

    They are [C, S + 1, d] and [S + 1]. If there are more pieces, those taken are spread
    evenly over them. Weights are 1, or 0 for rows that only fill up.
    """
    total = ops.sum(per_replica)
    if replicas.num_replicas() == 1:
        # It depends on shapes alone, as XLA needs it.
        size = tf.minimum(tf.shape(pieces)[1], most)
    else:
        size = ops.cast(ops.minimum(total, ops.cast(most, "float32")), "int32")
    order = ops.cast(tf.range(size), "float32")
    place = ops.floor(order * ops.maximum(total / ops.cast(most, "float32"), 1.0))
    row, here = _locate(place, keep, per_replica)
    points = ops.take(_padded(pieces), row, axis=1)
    points = _padded(ops.where(here[None, :, None], points, 0.0))
    weights = ops.pad(ops.cast(here, "float32"), [[0, 1]])
    if replicas.num_replicas() == 1:
        return points, weights
    # The last row is one of zeros, since collectives may not take empty tensors.
    return replicas.sum_over_replicas([points, weights])


def _padded(pieces):
    # A replica may have no pieces at all: a row of zeros keeps indices in range.
    return ops.pad(pieces, [[0, 0], [0, 1], [0, 0]])


def _locate(place, keep, per_replica):
    """Finds pieces by their number among the usable pieces of all replicas.

    Returns the row of the piece on this replica, and whether this replica holds it.
    """
    me = replicas.replica_id()
    local = place - (ops.cumsum(per_replica) - per_replica)[me]
    here = (local >= 0) & (local < per_replica[me])
    row = ops.searchsorted(ops.cumsum(keep[0]), ops.reshape(local + 1.0, (-1,)))
    row = ops.reshape(ops.cast(row, "int32"), ops.shape(local))
    return ops.clip(row, 0, ops.shape(keep)[1]), here


def _find_places(keep, needy, offset, per_replica):
    """Chooses pieces for needy codes.

    Returns three tensors [C, K]: which codes get a piece, the row of the piece on this
    replica, and whether this replica holds it.
    """
    # The r-th needy code gets the piece at the fraction r / (number of needy codes),
    # plus a random offset.
    total = ops.sum(per_replica)
    needs = ops.cast(needy, "float32")
    rank = ops.cumsum(needs, axis=-1) - 1.0
    number = ops.maximum(ops.sum(needs, axis=-1, keepdims=True), 1.0)
    place = ops.floor((rank + offset) * ops.maximum(total / number, 1.0))
    given = needy & (place < total)
    row, here = _locate(place, keep, per_replica)
    return given, row, given & here


def _put(vectors, pieces, given, row, here):
    """Replaces the vectors [C, K, d] of given codes by pieces [C, M, d] at `row`."""
    if replicas.num_replicas() == 1:
        # Static shapes, as XLA needs them.
        found = segments.per_codebook(lambda p, r: ops.take(p, r, axis=0), pieces, row)
        return ops.where(given[..., None], found, vectors)
    # All replicas agree on the codes, so they sum the vectors of these codes only.
    places = ops.cast(tf.where(given), "int32")
    rows = ops.stack([places[:, 0], tf.gather_nd(row, places)], axis=1)
    found = tf.gather_nd(pieces, rows)
    found = ops.where(tf.gather_nd(here, places)[:, None], found, 0.0)
    # A row more, since not every implementation of collectives takes empty tensors.
    found = replicas.sum_over_replicas(ops.pad(found, [[0, 1], [0, 0]]))
    return tf.tensor_scatter_nd_update(vectors, places, found[:-1])
