"""write: sequences, id by id, with an embedding and a decoder that caches."""

import functools

import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import decoding
from keras_vqem.decoding.fixed_greedy_search import fixed_greedy_search
from keras_vqem.decoding.loop import row_limits
from keras_vqem.layers import TiedEmbedding, TransformerDecoder
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models import compiled

_NEVER = -float("inf")


def write(
    embedding: TiedEmbedding,
    decoder: TransformerDecoder,
    memory: tf.Tensor,
    memory_mask: tf.Tensor | None,
    start_id: int,
    end_id: int,
    pad_id: int,
    max_length: int | tf.Tensor,
    min_length: int = 0,
    num_beams: int = 1,
    length_penalty: float = 0.6,
    temperature: float | None = None,
    seed: ArrayLike | None = None,
    num_samples: int | None = None,
    all_beams: bool = False,
    patience: float | None = None,
    end_threshold: float | None = None,
    prefix: tf.Tensor | None = None,
    most: int | tf.Tensor | None = None,
) -> tf.Tensor:
    """Writes a sequence of ids for each row of a memory.

    Args:
        embedding: A `TiedEmbedding` of the ids, used for input and for logits.
        decoder: A causal `TransformerDecoder`.
        memory: Floats `[B, S, D]` to attend to.
        memory_mask: Booleans `[B, S]`, False for padding. None means no padding.
        start_id: Id before the first position.
        end_id: Id that ends a sequence.
        pad_id: Id that fills a sequence after its end.
        max_length: Maximum number of ids, the end included: an integer, or a tensor
            `[B]` with one limit per row.
        min_length: Number of ids that must come before the end.
        num_beams: Number of hypotheses per row. 1 is greedy search.
        length_penalty: Exponent of the length in the score of a hypothesis, as in
            `keras_vqem.decoding.beam_search`.
        temperature: Temperature of sampling. None searches instead.
        seed: Seed of sampling: two integers, or two per row, as in
            `keras_vqem.decoding.sample_search`. With `num_samples`, two integers.
        num_samples: Number of sequences to draw for each row, independently. None
            draws one, without an axis of its own.
        all_beams: Whether to return all hypotheses of a beam search instead of the
            best.
        patience: Factor by which a hypothesis is assumed to grow at most, as in
            `keras_vqem.decoding.beam_search`.
        end_threshold: Probability of the end above which a sequence ends, and below
            which it goes on. None treats the end as any other id.
        prefix: Ids that come first, int32 `[B, P]`, with -1 from where on ids are not
            given. The search compares the probabilities of what follows. None gives no
            ids.
        most: Number that no `max_length` is above. Where XLA compiles parts, it
            compiles a greedy search with room for so many ids. None if there is no such
            number: then it does not.

    Returns:
        int32 `[B, L]`. With `all_beams` and several beams, `[B, num_beams, L]`, best
        first. With `num_samples`, `[B, num_samples, L]`, in no order.
    """
    rows = ops.shape(memory)[0]
    if temperature is not None and (num_beams > 1 or seed is None):
        raise ValueError(
            f"Sampling (temperature={temperature!r}) needs two integers as `seed` and "
            f"num_beams=1, received seed={seed!r} and num_beams={num_beams!r}. Pass "
            f"num_beams=1, or leave `temperature` out to search."
        )
    if num_samples is not None and temperature is None:
        raise ValueError(
            f"num_samples={num_samples!r} needs a `temperature`, received None. Pass "
            f"temperature=1.0 to sample from the model's own distribution."
        )
    limits = {
        "start_id": start_id,
        "end_id": end_id,
        "pad_id": pad_id,
        "min_length": min_length,
    }
    greedy = temperature is None and num_beams == 1
    if greedy and most is not None and compiled.is_compiling():

        def search(memory, memory_mask, max_length, prefix):
            step = _stepper(embedding, decoder, 1, end_id, end_threshold, fixed=True)
            return fixed_greedy_search(
                functools.partial(
                    step, parts=_parts(decoder, memory, memory_mask, prefix)
                ),
                decoder.empty_caches(ops.shape(memory)[0], most),
                max_length=max_length,
                length=most,
                **limits,
            )

        ids, length = compiled.part(
            search, memory, memory_mask, row_limits(max_length, rows), prefix
        )
        return ids[:, :length]
    # Hypotheses or draws of an example share its row of the memory.
    copies = num_beams if num_samples is None else num_samples
    parts = _parts(decoder, memory, memory_mask, prefix)
    stepper = _stepper(embedding, decoder, copies, end_id, end_threshold)

    def step(ids, caches, position, parts=parts):
        return stepper(ids, caches, position, parts)

    if num_samples is not None:
        rows = rows * num_samples
        if np.ndim(max_length):
            max_length = ops.repeat(max_length, num_samples)
    search = (step, decoder.empty_caches(rows * num_beams), rows)
    limits["max_length"] = max_length
    if temperature is not None:
        ids = decoding.sample_search(
            *search, temperature=temperature, seed=seed, **limits
        )
        if num_samples is None:
            return ids
        return ops.reshape(ids, (rows // num_samples, num_samples, ops.shape(ids)[1]))
    if num_beams == 1:
        return decoding.greedy_search(*search, memory=parts, **limits)
    ids, _ = decoding.beam_search(
        *search,
        num_beams=num_beams,
        length_penalty=length_penalty,
        best_only=not all_beams,
        patience=patience,
        memory=parts,
        **limits,
    )
    return ids if all_beams else ids[:, 0]


def _parts(decoder, memory, memory_mask, prefix):
    """What all steps read and none changes: a dict of tensors `[B, ...]`."""
    parts = {"memories": decoder.memories(memory), "mask": memory_mask}
    if prefix is not None:
        # The last column stands for all positions behind it.
        parts["prefix"] = ops.pad(prefix, [[0, 0], [0, 1]], constant_values=-1)
    return {name: part for name, part in parts.items() if part is not None}


def _stepper(embedding, decoder, copies, end_id, end_threshold, fixed=False):
    """Returns the step of a search, for caches that grow or for those of fixed length.

    The step is a function of ids, caches, a position and what `_parts` returns.
    """

    def step(ids, caches, position, parts):
        x = embedding(ids[:, None])
        x = x + position_signal(1, x.shape[-1], start=position, dtype=x.dtype)
        x, caches = decoder.step(
            x,
            caches,
            parts["memories"],
            parts.get("mask"),
            num_beams=copies,
            position=position if fixed else None,
        )
        logits = embedding(x[:, 0], reverse=True)
        if "prefix" in parts:
            last = ops.shape(parts["prefix"])[1] - 1
            forced = tf.gather(parts["prefix"], ops.minimum(position, last), axis=1)
            forced = ops.repeat(forced, copies, axis=0)[:, None]
            others = (ops.arange(logits.shape[-1]) != forced) & (forced >= 0)
            logits = ops.where(others, ops.cast(_NEVER, logits.dtype), logits)
        if end_threshold is not None:
            logits = _decide_end(logits, end_id, end_threshold)
        return logits, caches

    return step


def _decide_end(logits, end_id, threshold):
    """Makes the end certain where its probability is above the threshold, else out."""
    logits = ops.cast(logits, "float32")
    ends = tf.nn.softmax(logits)[:, end_id : end_id + 1] > threshold
    # Others keep their logits, for the case that the end is not allowed yet.
    decided = ops.where(ends, ops.max(logits, axis=-1, keepdims=True) + 50.0, -1e9)
    return ops.where(ops.arange(logits.shape[-1]) == end_id, decided, logits)
