"""The E step: the nearest code of a vector, or draws from the posterior over codes.

The posterior is that of a mixture of Gaussians with equal weights and variance T / 2,

    p(j | x) ~ exp(-|x - e_j|^2 / T) = exp((2 x . e_j - |e_j|^2) / T) * const(x),

so one matrix product gives all logits. If there is a prior over codes instead of equal
weights, its logits are added to these; one that is the same for all rows is a bias of
the product. It all runs over chunks of rows. Apart from
inputs, outputs, noise and the codebook, no tensor in memory has more than
`LOGITS_PER_CHUNK` numbers, for any N and K. Only `probabilities` returns as many as its
result has. The two terms of the logits can cancel in float32: centre vectors whose mean
is many times as far from 0 as they are from each other.
"""

import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks import chunks
from keras_vqem.layers.bottlenecks.prior import FORBIDDEN, rows_at

# 64 MiB of float32. With smaller chunks, the matrix product packs the codebook more
# often, which costs time. Larger chunks cost memory and save nothing.
LOGITS_PER_CHUNK = 2**24

# From so many codes on, blocks of codes are searched before the codes in them.
MANY = 1024
SEARCHED = 64

# A finite logit that is never the largest, and whose exponential is 0.
NEVER = -1e30


def assign(
    rows: tf.Tensor,
    codebook: tf.Tensor,
    usable: tf.Tensor,
    uniforms: tf.Tensor | None = None,
    places: tf.Tensor | None = None,
    log_weights: tf.Tensor | None = None,
    *,
    prior: tf.Tensor | None = None,
    temperature: float | tf.Tensor = 1.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the likeliest code of each row, and optionally draws from the posterior.

    Without a prior, the likeliest code is the nearest one.

    Args:
        rows: Vectors, float32 `[M, d]`.
        codebook: Vectors of the codes, float32 `[K, d]`.
        usable: Booleans `[K]`, False for codes that must not be chosen.
        uniforms: Uniform noise `[M, m, 2]` for `m` draws per row. None for no draws.
        places: Index in `prior` for each row, int32 `[M]`. None for equal weights.
        log_weights: Logits `[K]` of a prior for all rows. None for equal weights.
        prior: Logits of a prior, `[R, K]`; see `rows_at`.
        temperature: Temperature of the posterior, `T` above.

    Returns:
        A tuple `(codes, samples)`:

        - `codes`: Likeliest codes, int32 `[M]`.
        - `samples`: Draws, int32 `[M, m]`. Without draws, `codes` as `[M, 1]`.
    """
    num_codes = codebook.shape[0]
    # The likeliest code is the same at any scale, but draws need the true logits.
    scale = 1.0 if uniforms is None else 2.0 / temperature
    prior_scale = temperature / 2.0 if uniforms is None else 1.0
    padding = [0, 0]
    # A sum of squares by einsum, since squares alone would be a copy of the codebook.
    bias = (-0.5 * scale) * ops.einsum("kd,kd->k", codebook, codebook)
    if log_weights is not None:
        bias = bias + prior_scale * log_weights
    bias = ops.where(usable, bias, NEVER)
    if uniforms is not None:
        # What is likely to be smaller is scaled.
        if num_codes <= MANY:
            codebook = codebook * scale
        else:
            rows = rows * scale
        # Draws work on whole blocks of codes.
        block = _block_size(num_codes)
        if num_codes % block:
            padding = [0, -num_codes % block]
            codebook = ops.pad(codebook, [padding, [0, 0]])
            # Below NEVER, so that padding is not chosen even if no code is usable.
            bias = ops.pad(bias, [padding], constant_values=2 * NEVER)
    table = ops.transpose(codebook)

    def assign_chunk(chunk):
        logits = ops.matmul(chunk["rows"], table) + bias
        if "places" in chunk:
            log_prior, _ = rows_at(prior, chunk["places"])
            log_prior = ops.maximum(prior_scale * log_prior, FORBIDDEN)
            logits = logits + ops.pad(log_prior, [[0, 0], padding])
        codes = _largest(logits)
        if padding[1]:
            # Beside NaN, padding would be the largest.
            codes = ops.minimum(codes, num_codes - 1)
        if "uniforms" not in chunk:
            return codes, codes[:, None]
        return codes, _draw(logits, chunk["uniforms"], block)

    arguments = _given(rows=rows, uniforms=uniforms, places=places)
    largest = bias.shape[0]
    if uniforms is not None:
        largest = max(largest, uniforms.shape[1] * block)
    return chunks.apply(
        assign_chunk, arguments, _rows_per_chunk(largest), (tf.int32, tf.int32)
    )


def softmax_rows(
    codebook: tf.Tensor,
    usable: tf.Tensor,
    prior: tf.Tensor | None = None,
    temperature: float | tf.Tensor = 1.0,
    log_weights: tf.Tensor | None = None,
) -> Callable:
    """Returns a function of a chunk that computes the posterior of its rows.

    Args:
        codebook: Vectors of the codes, float32 `[K, d]`.
        usable: Booleans `[K]`, False for codes that must not be chosen.
        prior: Logits of a prior, `[R, K]`; see `rows_at`.
        temperature: Temperature of the posterior, `T` above.
        log_weights: Logits `[K]` of a prior for all rows. None for equal weights.

    Returns:
        A function of a dict with `rows` `[n, d]`, and `places` `[n]` if there is a
        prior. It returns logits and probabilities, both `[n, K]`.
    """
    scale = 2.0 / temperature
    bias = (-0.5 * scale) * ops.einsum("kd,kd->k", codebook, codebook)
    if log_weights is not None:
        bias = bias + log_weights
    bias = ops.where(usable, bias, NEVER)
    table = ops.transpose(codebook)

    def softmax(chunk):
        logits = ops.matmul(scale * chunk["rows"], table) + bias
        if "places" in chunk:
            log_prior, _ = rows_at(prior, chunk["places"])
            logits = logits + ops.maximum(log_prior, FORBIDDEN)
        return logits, tf.nn.softmax(logits)

    return softmax


def probabilities(
    rows: tf.Tensor,
    codebook: tf.Tensor,
    usable: tf.Tensor,
    places: tf.Tensor | None = None,
    log_weights: tf.Tensor | None = None,
    *,
    prior: tf.Tensor | None = None,
    temperature: float | tf.Tensor = 1.0,
) -> tf.Tensor:
    """Computes the posterior of all codes.

    Args:
        rows: Vectors, float32 `[M, d]`.
        codebook: Vectors of the codes, float32 `[K, d]`.
        usable: Booleans `[K]`, False for codes that must not be chosen.
        places: Index in `prior` for each row, int32 `[M]`. None for equal weights.
        log_weights: Logits `[K]` of a prior for all rows. None for equal weights.
        prior: Logits of a prior, `[R, K]`; see `rows_at`.
        temperature: Temperature of the posterior, `T` above.

    Returns:
        Probabilities, float32 `[M, K]`.
    """
    softmax = softmax_rows(codebook, usable, prior, temperature, log_weights)
    return chunks.apply(
        lambda chunk: softmax(chunk)[1],
        _given(rows=rows, places=places),
        _rows_per_chunk(codebook.shape[0]),
        tf.float32,
    )


def expect(
    rows: tf.Tensor,
    codebook: tf.Tensor,
    usable: tf.Tensor,
    keep: tf.Tensor,
    places: tf.Tensor | None = None,
    log_weights: tf.Tensor | None = None,
    *,
    prior: tf.Tensor | None = None,
    temperature: float | tf.Tensor = 1.0,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Computes the expectations over the posterior that an exact step of EM needs.

    Args:
        rows: Vectors, float32 `[M, d]`.
        codebook: Vectors of the codes, float32 `[K, d]`.
        usable: Booleans `[K]`, False for codes that must not be chosen.
        keep: Weights of the rows in the sums, float32 `[M]`.
        places: Index in `prior` for each row, int32 `[M]`. None for equal weights.
        log_weights: Logits `[K]` of a prior for all rows. None for equal weights.
        prior: Logits of a prior, `[R, K]`; see `rows_at`.
        temperature: Temperature of the posterior, `T` above.

    Returns:
        A tuple `(codes, means, counts, sums)`:

        - `codes`: Likeliest codes, int32 `[M]`.
        - `means`: Expected vectors, `[M, d]`.
        - `counts`: Sum over rows of the probability of each code, `[K]`.
        - `sums`: Sum of rows, weighted by the probability of each code, `[K, d]`.
    """
    softmax = softmax_rows(codebook, usable, prior, temperature, log_weights)

    def expect_chunk(chunk):
        logits, p = softmax(chunk)
        codes = _largest(logits)
        means = ops.matmul(p, codebook)
        p = p * chunk["keep"][:, None]
        sums = tf.matmul(p, chunk["rows"], transpose_a=True)
        return (codes, means), (ops.sum(p, axis=0), sums)

    arguments = _given(rows=rows, keep=keep, places=places)
    per_row, sums = chunks.fold(
        expect_chunk, arguments, _rows_per_chunk(codebook.shape[0])
    )
    return *per_row, *sums


def is_sound(prior: tf.Tensor) -> tf.Tensor:
    """Tells which rows are a prior, in chunks.

    Args:
        prior: Logits `[R, K]`.

    Returns:
        Booleans `[R]`; see `rows_at`.
    """
    places = ops.arange(ops.shape(prior)[0], dtype="int32")
    return chunks.apply(
        lambda chunk: rows_at(prior, chunk["rows"])[1],
        {"rows": places},
        _rows_per_chunk(prior.shape[1]),
        tf.bool,
    )


def _largest(logits):
    """Returns the index of the largest logit of each row, the first if there are two.

    The maximum of a block takes less time than to tell where it is, so that is asked of
    the largest block only.
    """
    count, number = ops.shape(logits)[0], logits.shape[1]
    if number < MANY or number % SEARCHED:
        # Not ops.argmax, which reads the logits five more times to tell 0 from -0.
        return tf.argmax(logits, axis=-1, output_type=tf.int32)
    blocks = number // SEARCHED
    logits = ops.reshape(logits, (-1, blocks, SEARCHED))
    # Not ops.max, which fails on a batch of no rows; a replica may have one.
    outer = tf.argmax(tf.reduce_max(logits, -1), axis=-1, output_type=tf.int32)
    rows = ops.arange(count, dtype="int32") * blocks + outer
    chosen = ops.take(ops.reshape(logits, (-1, SEARCHED)), rows, axis=0)
    inner = tf.argmax(chosen, axis=-1, output_type=tf.int32)
    return outer * SEARCHED + inner


def _block_size(num_codes):
    """Returns the number of codes of a block of `_draw`, a power of 2.

    Few codes are about as many blocks as there are codes in one. For many codes, blocks
    are found by bisection and are half as large, as each draw has to read one.
    """
    size = 2 ** math.ceil(math.log2(num_codes) / 2)
    return size if num_codes < MANY else size // 2


def _draw(logits, uniforms, block):
    """Draws codes [n, m] by inverse CDF in two levels: a block, then a code in it.

    Both cumulative sums are products with a triangular matrix of the size of a block.
    A running sum over all K logits would cost more than the logits themselves.
    """
    count, blocks = ops.shape(logits)[0], logits.shape[1] // block
    outer_uniforms, inner_uniforms = tf.unstack(uniforms, axis=-1)
    # One pass of a kernel that takes the maximum, the exponentials and their sum.
    p = ops.reshape(tf.nn.softmax(logits), (-1, blocks, block))
    sums = ops.sum(p, axis=-1)
    if blocks > block:
        outer = _bisect(sums, outer_uniforms)
    else:
        outer = _pick(sums[:, None], outer_uniforms)
    rows = ops.arange(count, dtype="int32")[:, None] * blocks + outer
    chosen = ops.take(ops.reshape(p, (-1, block)), rows, axis=0)
    return outer * block + _pick(chosen, inner_uniforms)


def _bisect(weights, uniforms):
    """Draws indices [n, m] by weights [n, L], as `_pick` does, for a large L."""
    cdf = _cumulative(weights)
    found = tf.searchsorted(cdf, uniforms * cdf[:, -1:], side="right")
    # Past the end if weights are NaN, as those of a codebook that diverged are.
    return ops.where(found < weights.shape[-1], found, 0)


def _pick(weights, uniforms):
    """Draws indices [n, m] by weights [n, m or 1, L]; never one of weight 0."""
    cdf = _cumulative(weights)
    # Uniforms are below 1, so the threshold is below the total and some entry exceeds
    # it.
    threshold = uniforms[..., None] * cdf[..., -1:]
    return ops.sum(ops.cast(cdf <= threshold, "int32"), axis=-1)


def _cumulative(weights):
    length = weights.shape[-1]
    return ops.matmul(weights, np.triu(np.ones((length, length), "float32")))


def _rows_per_chunk(width):
    return max(1, LOGITS_PER_CHUNK // width)


def _given(**tensors):
    return {name: x for name, x in tensors.items() if x is not None}
