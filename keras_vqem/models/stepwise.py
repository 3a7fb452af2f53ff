"""Sequences written one id after the other, by an embedding and a cached decoder."""

from keras import ops

from keras_vqem import decoding
from keras_vqem.layers.position_signal import position_signal


def write(
    embedding,
    decoder,
    memory,
    memory_mask,
    start_id,
    end_id,
    pad_id,
    max_length,
    min_length=0,
    num_beams=1,
    length_penalty=0.6,
    temperature=None,
    seed=None,
    all_beams=False,
):
    """Ids [B, L] given a memory: the most probable, the best of a beam, or drawn.

    Args:
        embedding: A `TiedEmbedding`, of the ids that come in and go out.
        decoder: A causal `TransformerDecoder`.
        memory, memory_mask: [B, S, D], and booleans [B, S] or None.
        start_id, end_id, pad_id, max_length, min_length: As in
            `keras_vqem.decoding.greedy_search`.
        num_beams, length_penalty: As in `keras_vqem.decoding.beam_search`; 1 beam is
            greedy search.
        temperature, seed: As in `keras_vqem.decoding.sample_search`; None does not
            sample.
        all_beams: Return [B, beams, L], best first, instead of the best.
    """
    rows = ops.shape(memory)[0]
    if temperature is not None and (num_beams > 1 or seed is None):
        raise ValueError(
            f"Sampling (temperature={temperature!r}) needs `seed`, two integers, and "
            f"has no beams; received seed={seed!r} and num_beams={num_beams!r}. Leave "
            f"`temperature` out to search."
        )
    if num_beams > 1:
        memory = ops.repeat(memory, num_beams, axis=0)
        if memory_mask is not None:
            memory_mask = ops.repeat(memory_mask, num_beams, axis=0)
    memories = decoder.memories(memory)

    def step(ids, caches, position):
        x = embedding(ids[:, None])
        x = x + position_signal(1, x.shape[-1], start=position, dtype=x.dtype)
        x, caches = decoder.step(x, caches, memories, memory_mask)
        return embedding(x[:, 0], reverse=True), caches

    search = (step, decoder.empty_caches(rows * num_beams), rows)
    limits = {
        "start_id": start_id,
        "end_id": end_id,
        "pad_id": pad_id,
        "min_length": min_length,
        "max_length": max_length,
    }
    if temperature is not None:
        return decoding.sample_search(
            *search, temperature=temperature, seed=seed, **limits
        )
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
