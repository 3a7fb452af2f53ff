"""Attention, encoder and decoder: against NumPy, step by step, and under masks."""

import numpy as np
import pytest

from keras_vqem import layers
from keras_vqem.layers.position_signal import position_signal


def reference_attention(layer, query, memory, bias):
    """Scaled dot-product attention, one head after the other."""
    to_query, to_keys_values, to_output = (w.numpy() for w in layer.weights)
    keys, values = np.split(memory @ to_keys_values, 2, axis=-1)
    query = query @ to_query
    size = query.shape[-1] // layer.num_heads
    found = []
    for head in range(layer.num_heads):
        part = slice(head * size, (head + 1) * size)
        scores = query[..., part] @ keys[..., part].swapaxes(1, 2) / size**0.5 + bias
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        found.append(weights @ values[..., part])
    return np.concatenate(found, axis=-1) @ to_output


def test_attention_against_numpy(rng):
    layer = layers.CachedAttention(num_heads=3)
    query = rng.normal(size=(2, 4, 12)).astype("float32")
    memory = rng.normal(size=(2, 5, 12)).astype("float32")
    bias = rng.normal(size=(2, 4, 5)).astype("float32")
    found = layer(query, memory, bias[:, None])
    expected = reference_attention(layer, query, memory, bias)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("num_heads", [3, 0, -2])
def test_heads_must_divide_the_width(num_heads):
    with pytest.raises(ValueError, match=f"size 10 and num_heads={num_heads}"):
        layers.CachedAttention(num_heads=num_heads).build((None, None, 10))


def test_tied_embedding_is_one_matrix(rng):
    layer = layers.TiedEmbedding(input_dim=10, output_dim=4)
    vectors = layer(np.array([[3, 7]]))
    matrix = layer.get_weights()[0]
    np.testing.assert_allclose(vectors[0], matrix[[3, 7]] * 2.0, rtol=1e-6)
    np.testing.assert_allclose(
        layer(vectors, reverse=True), vectors.numpy() @ matrix.T, rtol=1e-5
    )


def test_position_signal_starts_anywhere():
    whole = np.asarray(position_signal(9, 8))
    np.testing.assert_allclose(position_signal(2, 8, start=7), whole[:, 7:], atol=1e-6)
    np.testing.assert_allclose(whole[0, 3, 0], np.sin(3.0), rtol=1e-6)
    np.testing.assert_allclose(whole[0, 3, 7], np.cos(3.0 / 10_000), rtol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_nothing(rng, causal):
    encoder = layers.TransformerEncoder(2, num_heads=2, intermediate_dim=16)
    decoder = layers.TransformerDecoder(
        2, num_heads=2, intermediate_dim=16, causal=causal
    )
    x = rng.normal(size=(1, 6, 8)).astype("float32")
    memory = encoder(x)
    alone = decoder(x, memory)
    mask = np.arange(9)[None] < 6
    padded = np.concatenate([x, rng.normal(size=(1, 3, 8))], axis=1).astype("float32")
    memory = encoder(padded, mask=mask)
    found = decoder(padded, memory, mask=mask, memory_mask=mask)
    np.testing.assert_allclose(found[:, :6], alone, atol=1e-5)


def test_steps_equal_the_whole(rng):
    decoder = layers.TransformerDecoder(2, num_heads=2, intermediate_dim=16)
    x = rng.normal(size=(3, 5, 8)).astype("float32")
    memory = rng.normal(size=(3, 4, 8)).astype("float32")
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)
    whole = decoder(x, memory, memory_mask=mask)
    memories, caches = decoder.memories(memory), decoder.empty_caches(3)
    # The same with room for all positions from the start, and two more.
    fixed = decoder.empty_caches(3, 7)
    for t in range(5):
        found, caches = decoder.step(x[:, t : t + 1], caches, memories, mask)
        np.testing.assert_allclose(found, whole[:, t : t + 1], atol=1e-5)
        found, fixed = decoder.step(x[:, t : t + 1], fixed, memories, mask, position=t)
        np.testing.assert_allclose(found, whole[:, t : t + 1], atol=1e-5)
    assert fixed[0][0].shape[2] == 7


def test_beams_share_a_row_of_the_memory(rng):
    decoder = layers.TransformerDecoder(2, num_heads=2, intermediate_dim=16)
    x = rng.normal(size=(6, 1, 8)).astype("float32")
    memory = rng.normal(size=(2, 4, 8)).astype("float32")
    mask = np.array([[1, 1, 1, 1], [1, 0, 0, 0]], bool)
    decoder(x, np.repeat(memory, 3, axis=0))
    caches = decoder.empty_caches(6)
    found, _ = decoder.step(x, caches, decoder.memories(memory), mask, num_beams=3)
    apart = [np.repeat(array, 3, axis=0) for array in (memory, mask)]
    wanted, _ = decoder.step(x, caches, decoder.memories(apart[0]), apart[1])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_causal_or_not(rng):
    x = rng.normal(size=(1, 5, 8)).astype("float32")
    changed = x.copy()
    changed[:, -1] += 1.0
    for causal in (True, False):
        decoder = layers.TransformerDecoder(
            1, num_heads=2, intermediate_dim=16, causal=causal
        )
        difference = np.abs(decoder(x, x) - decoder(changed, x))[:, :-1].max()
        assert (difference == 0) == causal


@pytest.mark.parametrize("length", [3, 4, 8, 11])
def test_local_attention_is_full_attention_under_a_mask(rng, length):
    layer = layers.LocalAttention(num_heads=2, block_length=4)
    x = rng.normal(size=(2, length, 8)).astype("float32")
    found = layer(x)
    here, there = np.arange(length)[:, None], np.arange(length)[None]
    seen = (there <= here) & (there // 4 >= here // 4 - 1)
    bias = np.where(seen, 0.0, -np.inf)
    np.testing.assert_allclose(found, reference_attention(layer, x, x, bias), atol=1e-5)


def test_local_steps_equal_the_whole(rng):
    layer = layers.LocalTransformer(2, num_heads=2, intermediate_dim=16, block_length=3)
    x = rng.normal(size=(2, 14, 8)).astype("float32")
    whole, caches = layer(x), layer.empty_caches(2)
    for t in range(14):
        found, caches = layer.step(x[:, t : t + 1], caches)
        np.testing.assert_allclose(found, whole[:, t : t + 1], atol=1e-5)
    # What is no longer seen is not kept.
    assert caches[0][0].shape[2] == 5


@pytest.mark.parametrize("num_compress_steps", [1, 3])
def test_compressor_halves_and_ignores_padding(rng, num_compress_steps):
    block = 2**num_compress_steps
    layer = layers.SequenceCompressor(num_compress_steps)
    x = rng.normal(size=(2, 2 * block, 8)).astype("float32")
    # The second sentence ends within its second block.
    mask = np.arange(2 * block)[None] < np.array([[2 * block], [block + 1]])
    alone = layer(x, mask=mask).numpy()
    assert alone.shape == (2, 2, 8)
    longer = rng.normal(size=(2, 5 * block, 8)).astype("float32")
    longer[:, : 2 * block] = np.where(mask[..., None], x, longer[:, : 2 * block])
    mask = np.concatenate([mask, np.zeros((2, 3 * block), bool)], axis=1)
    np.testing.assert_allclose(layer(longer, mask=mask)[:, :2], alone, atol=1e-5)


def test_compressor_may_attend_to_a_memory(rng):
    layer = layers.SequenceCompressor(1, num_heads=2)
    x, memory = rng.normal(size=(2, 1, 4, 8)).astype("float32")
    before = layer(x, memory=memory).numpy()
    assert np.abs(before - layer(x, memory=memory + 1.0)).max() > 1e-3


def test_attention_to_nothing_else_is_attention_to_itself(rng):
    x = rng.normal(size=(2, 5, 8)).astype("float32")
    layer = layers.CachedAttention(num_heads=2)
    np.testing.assert_array_equal(layer(x), layer(x, x))


def test_local_attention_refuses_what_it_would_not_look_at(rng):
    x = rng.normal(size=(2, 5, 8)).astype("float32")
    layer = layers.LocalAttention(num_heads=2, block_length=4)
    for given in ({"memory": x}, {"bias": np.zeros((1, 1, 5, 5), "float32")}):
        with pytest.raises(ValueError, match="use CachedAttention"):
            layer(x, **given)


def test_decompressor_doubles_and_ignores_padding(rng):
    layer = layers.SequenceDecompressor(num_decompress_steps=2)
    x = rng.normal(size=(1, 2, 8)).astype("float32")
    alone = layer(x).numpy()
    assert alone.shape == (1, 8, 8)
    longer = np.concatenate([x, rng.normal(size=(1, 3, 8))], axis=1).astype("float32")
    found = layer(longer, mask=np.arange(5)[None] < 2)
    np.testing.assert_allclose(found[:, :8], alone, atol=1e-5)
