"""k-means: a start of codebooks that fits all the vectors it is given.

The first centres are those of k-means++: vectors drawn one after the other, each with a
probability in proportion to its squared distance from the nearest centre so far. Steps
of Lloyd follow. Vectors are compared as the similarity of the layer has it, so that
unit vectors give spherical k-means.
"""

from collections.abc import Callable

import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks import posterior, segments

# Steps of Lloyd. After k-means++, most of the gain is in the first ten.
STEPS = 20


def kmeans(
    points: tf.Tensor,
    weights: tf.Tensor,
    uniforms: tf.Tensor,
    prepare: Callable,
    steps: int = STEPS,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the centres of one codebook.

    Args:
        points: Vectors as the similarity compares them, float32 `[n, d]`, `n` at least
            1.
        weights: Floats `[n]`, 1 for vectors that may be used and 0 for others.
        uniforms: Uniform noise `[K]`, one number for each centre of k-means++.
        prepare: Method `prepare` of the similarity.
        steps: Number of steps of Lloyd.

    Returns:
        A tuple `(centres, counts, placed)`:

        - `centres`: Means of the vectors nearest to each centre, `[K, d]`.
        - `counts`: Number of vectors of each centre in the last step, `[K]`.
        - `placed`: Booleans `[K]`, False for centres that there was no vector for,
          because there are fewer distinct ones.
    """
    chosen, placed = plus_plus(points, weights, uniforms)
    centres = ops.where(placed[:, None], ops.take(points, chosen, axis=0), 0.0)
    num_codes = uniforms.shape[0]

    def step(_, state):
        centres, _ = state
        codes, _ = posterior.assign(points, prepare(centres), placed)
        codes = ops.where(weights > 0, codes, -1)[:, None]
        counts = segments.count_by_code(codes, num_codes)
        sums = segments.sum_by_code(points, codes, num_codes)
        moved = sums / ops.maximum(counts, 1.0)[:, None]
        return ops.where(counts[:, None] > 0, moved, centres), counts

    start = centres, ops.zeros((num_codes,), "float32")
    centres, counts = ops.fori_loop(0, steps, step, start)
    return centres, counts, placed


def plus_plus(
    points: tf.Tensor, weights: tf.Tensor, uniforms: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Chooses the first centres of k-means by k-means++.

    Args:
        points: Vectors, float32 `[n, d]`, `n` at least 1.
        weights: Floats `[n]`, 1 for vectors that may be chosen and 0 for others.
        uniforms: Uniform noise `[K]`.

    Returns:
        The chosen rows of `points`, int32 `[K]`, and booleans `[K]` that are False
        where there was none left to choose.
    """
    num_codes, last = uniforms.shape[0], ops.shape(points)[0] - 1

    def choose(k, state):
        chosen, placed, gaps = state
        # The first centre is any vector with the same probability.
        cdf = ops.cumsum(ops.where(k == 0, weights, weights * gaps))
        # Uniforms are below 1, so that some entry exceeds the threshold, if any can.
        row = ops.searchsorted(cdf, uniforms[k][None] * cdf[-1:], side="right")
        row = ops.minimum(ops.cast(row, "int32"), last)
        square = ops.sum(ops.square(points - ops.take(points, row, axis=0)), axis=-1)
        at = ops.reshape(ops.cast(k, "int32"), (1, 1))
        return (
            ops.scatter_update(chosen, at, row),
            ops.scatter_update(placed, at, cdf[-1:] > 0),
            ops.where(k == 0, square, ops.minimum(gaps, square)),
        )

    start = (
        ops.zeros((num_codes,), "int32"),
        ops.zeros((num_codes,), "bool"),
        ops.zeros_like(weights),
    )
    chosen, placed, _ = ops.fori_loop(0, num_codes, choose, start)
    return chosen, placed


# Compiled once per shape, for data outside of a graph.
compiled = tf.function(kmeans, reduce_retracing=True)
