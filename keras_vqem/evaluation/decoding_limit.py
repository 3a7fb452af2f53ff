"""The least time that a translation can take: arithmetic, and reading of weights.

A translation is cut into parts, such as the encoder or one step of a predictor. A part
has to do its multiply-adds and to read its weights, each at the best rate of the
machine, and takes at least the longer of the two. All else is taken to be free: norms,
softmax, caches, and starting the operations.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_vqem.layers import TransformerDecoder, TransformerEncoder
from keras_vqem.models import CTCOutput, CTCTranslator, LatentNMT, Transformer

BYTES = 4  # of a float32
LEAST_ROWS = 64  # per measurement of a product


class Part(NamedTuple):
    """A part of a translation.

    Attributes:
        name: Name of the part.
        rows: Number of vectors that go through its matrices at a time.
        weights: Number of weights that it reads.
        multiply_adds: Number of products that are added up.
        times: Number of times that it runs in a translation.
    """

    name: str
    rows: int
    weights: int
    multiply_adds: int
    times: int = 1


class Rates(NamedTuple):
    """What a machine can do at best, in float32.

    Attributes:
        flops: Dict from numbers of rows to floating-point operations per second in a
            matrix product of so many rows; a multiply-add is two of them.
        bytes: Bytes per second that a copy in memory reads and writes, or that a sum
            reads, whichever is more.
    """

    flops: dict[int, float]
    bytes: float


def least_seconds(parts: Sequence[Part], rates: Rates) -> float:
    """Returns the sum over parts of the longer of arithmetic and reading.

    Example:

    >>> step = Part("step", rows=1, weights=10, multiply_adds=10, times=3)
    >>> least_seconds([step], Rates(flops={1: 20.0}, bytes=8.0))
    15.0
    """
    return sum(
        part.times
        * max(
            2 * part.multiply_adds / rates.flops[part.rows],
            BYTES * part.weights / rates.bytes,
        )
        for part in parts
    )


@functools.singledispatch
def parts_of(
    model: keras.Model,
    source_tokens: int,
    target_tokens: int,
    batch_size: int = 1,
    num_beams: int = 1,
) -> list[Part]:
    """Counts the work of a translation, from the shapes of a model's weights.

    Args:
        model: A built `Transformer`, `CTCTranslator` or `LatentNMT`.
        source_tokens: Number of ids of each source, the end included.
        target_tokens: Number of ids that are written. A `LatentNMT` predicts as many
            codes as they need, and the end of the codes.
        batch_size: Number of sentences.
        num_beams: Number of hypotheses per sentence of a `Transformer`.

    Returns:
        List of `Part`.
    """
    raise ValueError(
        f"The work of a {type(model).__name__} is not known. Pass a Transformer, a "
        f"CTCTranslator or a LatentNMT."
    )


@parts_of.register
def _(
    model: Transformer, source_tokens, target_tokens, batch_size=1, num_beams=1
) -> list[Part]:
    rows = batch_size * num_beams
    return [
        _encoder(model.encoder, source_tokens, batch_size),
        _memory("keys and values", model.decoder, source_tokens, batch_size),
        *_steps(
            "decoder step",
            model.decoder,
            model.embedding,
            source_tokens,
            target_tokens,
            rows,
        ),
    ]


@parts_of.register
def _(
    model: CTCTranslator, source_tokens, target_tokens, batch_size=1, num_beams=1
) -> list[Part]:
    positions = source_tokens * model.upsample
    return [
        _encoder(model.encoder, source_tokens, batch_size),
        _dense("upsampler", model.upsampler, batch_size * source_tokens),
        *_pass(model, positions, source_tokens, batch_size),
    ]


@parts_of.register
def _(
    model: LatentNMT, source_tokens, target_tokens, batch_size=1, num_beams=1
) -> list[Part]:
    codes = -(-target_tokens // 2**model.num_compress_steps)
    predictor = model.predictor
    parts = [
        _encoder(model.encoder, source_tokens, batch_size),
        _memory(
            "predictor's keys and values", predictor.decoder, source_tokens, batch_size
        ),
        *_steps(
            "predictor step",
            predictor.decoder,
            predictor.embedding,
            source_tokens,
            codes + 1,
            batch_size,
        ),
    ]
    if isinstance(model.word_output, CTCOutput):
        positions = source_tokens * model.word_output.upsample
        memory = source_tokens + codes
        parts += [
            _dense("upsampler", model.upsampler, batch_size * source_tokens),
            _dense("codes", model.code_dense, batch_size * codes),
        ]
    else:
        positions, memory = codes * 2**model.num_compress_steps, source_tokens
        parts += _decompressor(model.decompressor, batch_size * codes)
    return parts + _pass(model, positions, memory, batch_size)


def _kernels(layer, without=()):
    """Number of weights in the matrices of a layer, all of which multiply vectors."""
    left_out = {id(weight) for other in without for weight in other.weights}
    return sum(
        int(np.prod(weight.shape))
        for weight in layer.weights
        if len(weight.shape) > 1 and id(weight) not in left_out
    )


def _dense(name, layer, rows):
    weights = _kernels(layer)
    return Part(name, rows, weights, rows * weights)


def _attention(stack, queries, keys):
    """Multiply-adds of scores and of weighted values of one attention per block."""
    return 2 * queries * keys * stack._width * len(stack.blocks)


def _encoder(stack: TransformerEncoder, tokens, batch_size):
    rows, weights = batch_size * tokens, _kernels(stack)
    work = rows * weights + batch_size * _attention(stack, tokens, tokens)
    return Part("encoder", rows, weights, work)


def _memory_layers(stack: TransformerDecoder):
    return [block.cross.to_keys_values for block in stack.blocks]


def _memory(name, stack, tokens, batch_size):
    rows = batch_size * tokens
    weights = sum(map(_kernels, _memory_layers(stack)))
    return Part(name, rows, weights, rows * weights)


def _steps(name, stack, embedding, source_tokens, steps, rows):
    """Steps of a decoder one after the other, the logits included."""
    weights = _kernels(stack, _memory_layers(stack)) + _kernels(embedding)
    # The first step attends to one position of its own, the last one to all.
    for number in range(1, steps + 1):
        work = rows * (weights + _attention(stack, 1, number + source_tokens))
        yield Part(f"{name} {number}", rows, weights, work)


def _pass(model, positions, memory, batch_size):
    """One pass of the decoder over all positions, and the logits."""
    stack, rows = model.decoder, batch_size * positions
    weights = _kernels(stack, _memory_layers(stack))
    attention = _attention(stack, positions, positions + memory)
    return [
        _memory("keys and values", stack, memory, batch_size),
        Part("decoder", rows, weights, rows * weights + batch_size * attention),
        _dense("logits", model.embedding, rows),
    ]


def _decompressor(layer, rows):
    """The steps of a decompressor, each of which doubles the rows."""
    steps = zip(layer.convolutions, layer.doubles, strict=True)
    for number, (convolution, double) in enumerate(steps):
        weights = _kernels(convolution) + _kernels(double)
        yield Part(f"decompressor {number + 1}", rows, weights, rows * weights)
        rows *= 2


def rates(
    rows: Sequence[int],
    inner: int = 512,
    outer: int = 2048,
    copied: int = 2**28,
    seconds: float = 0.2,
    clock: Callable[[], float] = time.perf_counter,
) -> Rates:
    """Measures the best rates of this machine in float32.

    Args:
        rows: Numbers of rows of the matrix products, those of the parts.
        inner: Number of columns of the first matrix, and of rows of the second.
        outer: Number of columns of the second matrix.
        copied: Size in bytes of the copied block. It should be that of a model's
            weights, so that the block does not fit into a cache if they do not.
        seconds: Time to spend per measurement. The fastest call counts.
        clock: Function that returns the time in seconds.

    Returns:
        `Rates`.
    """
    matrix = tf.random.stateless_normal([inner, outer], (0, 0))
    flops = {}
    for number in sorted(set(rows)):
        # Several products per call: starting one costs more than a row of it.
        calls = max(1, -(-LEAST_ROWS // number))
        vectors = tf.random.stateless_normal([calls, number, inner], (0, 1))
        least = _least(functools.partial(_products, vectors, matrix), seconds, clock)
        flops[number] = 2 * calls * number * inner * outer / least
    block = tf.ones([copied // BYTES])
    # Weights are only read, which some machines do faster than they copy.
    copy = 2 * copied / _least(functools.partial(_copy, block), seconds, clock)
    read = copied / _least(functools.partial(_sum, block), seconds, clock)
    return Rates(flops, max(copy, read))


@tf.function(autograph=False)
def _products(vectors, matrix):
    return [x @ matrix for x in tf.unstack(vectors)]


@tf.function(autograph=False)
def _copy(block):
    return block + 1.0


@tf.function(autograph=False)
def _sum(block):
    return tf.reduce_sum(block)


def _least(function, seconds, clock):
    function()
    start, best = clock(), float("inf")
    while clock() - start < seconds:
        before = clock()
        function()
        best = min(best, clock() - before)
    return best
