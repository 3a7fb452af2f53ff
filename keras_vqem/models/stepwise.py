"""write: sequences, id by id, with an embedding and a decoder that caches."""

import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import decoding
from keras_vqem.layers import TiedEmbedding, TransformerDecoder
from keras_vqem.layers.position_signal import position_signal


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
    copies = num_beams if num_samples is None else num_samples
    if copies > 1:
        memory = ops.repeat(memory, copies, axis=0)
        if memory_mask is not None:
            memory_mask = ops.repeat(memory_mask, copies, axis=0)
    memories = decoder.memories(memory)

    def step(ids, caches, position):
        x = embedding(ids[:, None])
        x = x + position_signal(1, x.shape[-1], start=position, dtype=x.dtype)
        x, caches = decoder.step(x, caches, memories, memory_mask)
        return embedding(x[:, 0], reverse=True), caches

    if num_samples is not None:
        rows = rows * num_samples
        if np.ndim(max_length):
            max_length = ops.repeat(max_length, num_samples)
    search = (step, decoder.empty_caches(rows * num_beams), rows)
    limits = {
        "start_id": start_id,
        "end_id": end_id,
        "pad_id": pad_id,
        "min_length": min_length,
        "max_length": max_length,
    }
    if temperature is not None:
        ids = decoding.sample_search(
            *search, temperature=temperature, seed=seed, **limits
        )
        if num_samples is None:
            return ids
        return ops.reshape(ids, (rows // num_samples, num_samples, ops.shape(ids)[1]))
    if num_beams == 1:
        return decoding.greedy_search(*search, **limits)
    ids, _ = decoding.beam_search(
        *search,
        num_beams=num_beams,
        length_penalty=length_penalty,
        best_only=not all_beams,
        **limits,
    )
    return ids if all_beams else ids[:, 0]
