"""The E step: which code a vector belongs to, or draws from the posterior over codes.

The posterior is that of a mixture of Gaussians with equal weights and variance T / 2,

    p(j | x) ~ exp(-|x - e_j|^2 / T) = exp((2 x . e_j - |e_j|^2) / T) * const(x),

so one matrix product gives all logits. It runs over rows in chunks, so that nothing
held is larger than `LOGITS_PER_CHUNK` numbers, whatever N and K are, but for inputs,
outputs, noise and the codebook itself. The two terms cancel in float32: vectors whose
mean is many times as far from 0 as they are from each other should be centred.
"""

import math

import numpy as np
import tensorflow as tf
from keras import ops

# 64 MiB of float32. Smaller chunks pack the codebook for the matrix product more
# often, which costs time; larger ones only cost memory.
LOGITS_PER_CHUNK = 2**24

# A logit that never wins and whose exponential is 0, yet finite.
NEVER = -1e30


def assign(rows, codebook, usable, uniforms=None, *, temperature=1.0):
    """Codes for rows: the nearest, and if wanted draws from the posterior.

    Args:
        rows: [M, d] float32.
        codebook: [K, d] float32.
        usable: [K] booleans; other codes are never chosen.
        uniforms: [M, m, 2] uniform noise for m draws a row, or None for no draws.
        temperature: T above.

    Returns:
        `codes` [M] int32, the nearest; and `samples` [M, m] int32, the draws, or the
        nearest once more as [M, 1].
    """
    num_codes = codebook.shape[0]
    # The nearest code is the same at any scale; draws need the true logits. Rows are
    # scaled, not the codebook, which may be the larger.
    scale = 1.0 if uniforms is None else 2.0 / temperature
    # A sum of squares without the squares, which would be a copy of the codebook.
    bias = (-0.5 * scale) * ops.einsum("kd,kd->k", codebook, codebook)
    bias = ops.where(usable, bias, NEVER)
    if uniforms is not None:
        rows = rows * scale
        # Draws work on whole blocks of codes.
        block = 2 ** math.ceil(math.log2(num_codes) / 2)
        if num_codes % block:
            padding = [0, -num_codes % block]
            codebook = ops.pad(codebook, [padding, [0, 0]])
            # Below NEVER: padding loses even where no code is usable.
            bias = ops.pad(bias, [padding], constant_values=2 * NEVER)
    table = ops.transpose(codebook)

    def assign_chunk(arguments):
        rows, *noise = arguments
        logits = ops.matmul(rows, table) + bias
        # Not ops.argmax: it passes over the logits five more times to tell 0 from -0.
        codes = tf.argmax(logits, axis=-1, output_type=tf.int32)
        return (codes, *(_draw(logits, uniforms, block) for uniforms in noise))

    arguments = (rows,) if uniforms is None else (rows, uniforms)
    largest = bias.shape[0]
    if uniforms is not None:
        largest = max(largest, uniforms.shape[1] * block)
    largest = max(1, LOGITS_PER_CHUNK // largest)
    codes, *samples = _in_chunks(assign_chunk, arguments, largest)
    return codes, samples[0] if samples else codes[:, None]


def _draw(logits, uniforms, block):
    """[n, m] draws by inverse CDF in two levels: first the block, then the code.

    Both cumulative sums are products with a triangular matrix of the block's size:
    a running sum over all K logits costs more than the logits themselves.
    """
    blocks = logits.shape[1] // block
    # With `initial` ops.max takes batches of no rows, which a replica may have.
    top = ops.max(logits, axis=-1, keepdims=True, initial=-np.inf)
    p = ops.exp(logits - top)
    p = ops.reshape(p, (-1, blocks, block))
    outer = _pick(ops.sum(p, axis=-1)[:, None], uniforms[..., 0])
    rows = ops.arange(ops.shape(p)[0], dtype="int32")[:, None]
    chosen = ops.take(ops.reshape(p, (-1, block)), rows * blocks + outer, axis=0)
    return outer * block + _pick(chosen, uniforms[..., 1])


def _pick(weights, uniforms):
    """Indices [n, m] drawn by [n, m or 1, L] weights; a zero weight is never drawn."""
    length = weights.shape[-1]
    cdf = ops.matmul(weights, np.triu(np.ones((length, length), "float32")))
    # uniforms < 1 keep the threshold below the total, so some entry lies above it.
    threshold = uniforms[..., None] * cdf[..., -1:]
    return ops.sum(ops.cast(cdf <= threshold, "int32"), axis=-1)


def _in_chunks(function, arguments, largest):
    """`function` over chunks of at most `largest` rows, one after the other."""
    static_count = arguments[0].shape[0]
    if static_count is not None and static_count <= largest:
        return function(arguments)
    count = ops.shape(arguments[0])[0]
    chunks = ops.maximum((count + largest - 1) // largest, 1)
    size = (count + chunks - 1) // chunks

    def cut(x):
        padding = [[0, size * chunks - count]] + [[0, 0]] * (len(x.shape) - 1)
        return ops.reshape(tf.pad(x, padding), (chunks, size, *x.shape[1:]))

    # tf.map_fn rather than ops.map: only it can be told to keep one chunk alive.
    results = tf.map_fn(
        function,
        tuple(cut(x) for x in arguments),
        fn_output_signature=tuple(tf.int32 for _ in arguments),
        parallel_iterations=1,
    )
    return tuple(ops.reshape(x, (-1, *x.shape[2:]))[:count] for x in results)
