"""GridTransformer: causal, step by step as whole, and a proper distribution."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.models import GridTransformer, ImageTransformer

SMALL = {
    "hidden_dim": 8,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_dim": 16,
    "block_length": 4,
}


@pytest.fixture(params=["neighbours", "previous"])
def model(request):
    keras.utils.set_random_seed(1)
    model = GridTransformer((2, 3, 2), 5, **SMALL, context=request.param)
    model.build()
    for weight in model.weights:  # away from a start at which nothing matters
        weight.assign(weight + 0.3 * np.random.default_rng(0).normal(size=weight.shape))
    return model


def test_a_prediction_sees_what_is_before_it_and_nothing_else(model, rng):
    symbols = rng.integers(5, size=(1, 12))
    whole = np.reshape(model({"symbols": symbols.reshape(1, 2, 3, 2)}), (12, 5))
    for place in range(12):
        other = symbols.copy()
        other[0, place] = (other[0, place] + 1) % 5
        found = np.reshape(model({"symbols": other.reshape(1, 2, 3, 2)}), (12, 5))
        np.testing.assert_array_equal(found[: place + 1], whole[: place + 1])
        assert place == 11 or np.abs(found[place + 1] - whole[place + 1]).max() > 1e-4


@pytest.mark.parametrize("dtype, most", [("float32", 1e-5), ("float64", 1e-13)])
def test_steps_are_the_whole_up_to_rounding(model, dtype, most, rng):
    symbols = rng.integers(5, size=(3, 2, 3, 2))
    twin = GridTransformer.from_config({**model.get_config(), "dtype": dtype})
    twin.build()
    twin.set_weights(model.get_weights())
    whole = np.reshape(twin({"symbols": symbols}), (3, 12, 5))
    assert whole.dtype == dtype
    state, constants = twin.start(3), twin.step_constants()
    ids = tf.zeros([3], "int32")
    for place in range(12):
        logits, state = twin.step(ids, state, tf.constant(place), constants)
        assert logits.dtype == dtype
        np.testing.assert_allclose(logits, whole[:, place], rtol=0, atol=most)
        ids = tf.constant(symbols.reshape(3, 12)[:, place], "int32")


def test_the_row_above_is_seen_beyond_the_reach_of_attention(rng):
    model = GridTransformer(
        (3, 5, 1), 5, **{**SMALL, "num_layers": 1, "block_length": 1}
    )
    symbols = rng.integers(5, size=(1, 3, 5, 1))
    other = symbols.copy()
    other[0, 0, 1] = (other[0, 0, 1] + 1) % 5
    change = np.abs(model({"symbols": symbols}) - model({"symbols": other}))
    # Position 1 is the left one of 2, and above 5, 6 and 7; attention with blocks of 1
    # adds those one further.
    changed = change.reshape(15, 5).max(-1) > 0
    assert changed.nonzero()[0].tolist() == [2, 3, 5, 6, 7, 8]


def test_the_plain_form_sees_as_far_as_attention(rng):
    brief = {**SMALL, "num_layers": 1, "block_length": 1}
    model = GridTransformer((3, 5, 1), 5, **brief, context="previous")
    symbols = rng.integers(5, size=(1, 3, 5, 1))
    other = symbols.copy()
    other[0, 0, 1] = (other[0, 0, 1] + 1) % 5
    change = np.abs(model({"symbols": symbols}) - model({"symbols": other}))
    assert (change.reshape(15, 5).max(-1) > 0).nonzero()[0].tolist() == [2, 3]
    with pytest.raises(ValueError, match="one of 'neighbours', 'previous', received"):
        GridTransformer((3, 5, 1), 5, **brief, context="all")


@pytest.mark.parametrize("columns", [1, 2])
def test_narrow_grids_are_causal_and_sampled_as_they_are_predicted(columns):
    keras.utils.set_random_seed(2)
    model = GridTransformer((3, columns, 2), 4, **SMALL)
    found = model.sample(4, seed=(0, 0), temperature=0.0)
    best = np.argmax(model({"symbols": found}), axis=-1)
    np.testing.assert_array_equal(found, best)


def test_it_starts_from_a_codebook_and_the_codes_frequencies(rng):
    codebook = rng.normal(size=(2, 5, 3)) * [[[3.0]], [[0.1]]] + 7.0
    symbols = np.minimum(rng.geometric(0.4, size=(50, 2, 3, 2)) - 1, 4)
    model = GridTransformer((2, 3, 2), 5, **SMALL, vector_dim=4)
    model.compile()
    model.init_from_codebook(codebook, symbols)
    counts = np.stack(
        [np.bincount(symbols[..., s].ravel(), minlength=5) for s in (0, 1)]
    )
    shares = (counts + 1) / (counts + 1).sum(-1, keepdims=True)
    np.testing.assert_allclose(np.exp(model.bias), shares, rtol=1e-5)
    # What it gives before training is close to that.
    bits = model.evaluate({"symbols": symbols}, verbose=0, return_dict=True)[
        "bits_per_symbol"
    ]
    entropy = -np.sum(counts / counts.sum(-1, keepdims=True) * np.log2(shares), -1)
    assert abs(bits - entropy.mean()) < 0.05
    # Slots may share a codebook.
    model.init_from_codebook(codebook[:1], symbols)
    shared = np.array(model.vectors)
    model.init_from_codebook(np.stack([codebook[0]] * 2), symbols)
    np.testing.assert_array_equal(model.vectors, shared)
    model.init_from_codebook(codebook, symbols)
    # Whatever a slot's scale and place: centred, as long as random vectors.
    vectors = np.asarray(model.vectors)
    np.testing.assert_allclose(np.einsum("sk,skv->sv", shares, vectors), 0, atol=1e-5)
    power = np.einsum("sk,skv->s", shares, np.square(vectors))
    np.testing.assert_allclose(power, 4.0, rtol=1e-4)
    # The same distances but for the scale.
    np.testing.assert_allclose(
        np.linalg.norm(vectors[0, 1:] - vectors[0, :1], axis=-1)
        / np.linalg.norm(codebook[0, 1:] - codebook[0, :1], axis=-1),
        np.linalg.norm(vectors[0, 1] - vectors[0, 0])
        / np.linalg.norm(codebook[0, 1] - codebook[0, 0]),
        rtol=1e-5,
    )


def test_weights_start_with_numbers_of_their_own():
    model = GridTransformer((4, 4, 4), 8, **SMALL)
    model.build()
    rows, columns, slots = (
        np.ravel(w) for w in (model.row_signal, model.column_signal, model.slot_signal)
    )
    assert not np.any(rows == columns) and not np.any(rows == slots)


def test_symbols_of_another_grid_are_refused(model):
    with pytest.raises(ValueError, match=r"\[B, 2, 3, 2\], received \[2, 4, 3, 1\]"):
        model({"symbols": np.zeros((2, 4, 3, 1), "int32")})


def test_a_prefix_that_fits_no_grid_is_refused(model):
    for shape in [(3, 4), (2, 13), (2, 2, 2)]:
        with pytest.raises(ValueError, match=r"shape \(2, P\) with P up to 12"):
            model.sample(2, seed=(0, 0), prefix=np.zeros(shape, "int32"))
    with pytest.raises(ValueError, match="from 0 to 4, .* are from 0 to 5"):
        model.sample(1, seed=(0, 0), prefix=[[0, 5]])
    empty = model.sample(2, seed=(5, 6), prefix=np.zeros((2, 0), "int32"))
    np.testing.assert_array_equal(empty, model.sample(2, seed=(5, 6)))


def test_vectors_of_another_shape_are_refused():
    model = GridTransformer((2, 3, 2), 5, **SMALL, vector_dim=4)
    with pytest.raises(ValueError, match=r"\(2, 5, n\) with n up to 4.*Set `vector"):
        model.init_from_codebook(np.zeros((2, 5, 6)), np.zeros((1, 2, 3, 2), "int32"))


def test_probabilities_of_all_grids_sum_to_one():
    model = GridTransformer((1, 2, 2), 3, **SMALL)
    grids = np.array(list(itertools.product(range(3), repeat=4))).reshape(-1, 1, 2, 2)
    nats = model.nats({"symbols": grids}, model({"symbols": grids}))
    total = np.exp(-np.sum(nats, axis=(1, 2, 3))).sum()
    np.testing.assert_allclose(total, 1.0, rtol=1e-5)


def test_greedy_sampling_follows_the_whole_model(model):
    found = model.sample(2, seed=(0, 0), temperature=0.0)
    best = np.argmax(model({"symbols": found}), axis=-1)
    np.testing.assert_array_equal(found, best)


def test_samples_have_the_models_distribution():
    keras.utils.set_random_seed(0)
    model = GridTransformer((1, 1, 2), 3, **SMALL)
    model.build()
    for weight in model.weights:
        weight.assign(weight + 0.5 * np.random.default_rng(1).normal(size=weight.shape))
    found = model.sample(20_000, seed=(3, 4)).numpy().reshape(-1, 2)
    grids = np.array(list(itertools.product(range(3), repeat=2)))
    inputs = {"symbols": grids.reshape(-1, 1, 1, 2)}
    expected = np.exp(-np.sum(model.nats(inputs, model(inputs)), axis=(1, 2, 3)))
    share = np.bincount(found[:, 0] * 3 + found[:, 1], minlength=9) / len(found)
    np.testing.assert_allclose(share, expected, atol=0.015)
    assert expected.max() - expected.min() > 0.1


def test_a_prefix_is_kept_and_the_rest_follows_from_it(model, rng):
    prefix = rng.integers(5, size=(3, 7))
    found = model.sample(3, seed=(0, 0), temperature=0.0, prefix=prefix)
    flat = found.numpy().reshape(3, 12)
    np.testing.assert_array_equal(flat[:, :7], prefix)
    best = np.argmax(model({"symbols": found}), axis=-1).reshape(3, 12)
    np.testing.assert_array_equal(flat[:, 7:], best[:, 7:])


def test_an_exported_model_samples_as_the_model_does(model, tmp_path):
    model.export(tmp_path / "1")
    call = tf.saved_model.load(str(tmp_path / "1")).signatures["sample"]
    seeds = np.array([[5, 6], [7, 8], [5, 6]], "int32")
    found = call(seed=tf.constant(seeds))["symbols"]
    np.testing.assert_array_equal(found, model.sample(3, seeds))
    np.testing.assert_array_equal(found[0], found[2])


def test_sampling_is_the_same_in_a_graph(model):
    graph = tf.function(lambda: model.sample(2, seed=(5, 6)))
    np.testing.assert_array_equal(graph(), model.sample(2, seed=(5, 6)))


def test_soft_labels_are_the_mean_over_draws(model, rng):
    symbols = rng.integers(5, size=(2, 2, 3, 2))
    samples = rng.integers(5, size=(2, 2, 3, 2, 4))
    logits = model({"symbols": symbols})
    found = model.nats({"symbols": symbols, "samples": samples}, logits)
    each = [model.nats({"symbols": samples[..., i]}, logits) for i in range(4)]
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-5)


def test_it_learns_what_the_row_above_says(rng):
    keras.utils.set_random_seed(0)
    model = GridTransformer((2, 4, 1), 8, **SMALL)
    model.compile(keras.optimizers.Adam(0.01))
    above = rng.integers(8, size=(512, 1, 4, 1))
    symbols = np.concatenate([above, (above + 1) % 8], axis=1)
    history = model.fit({"symbols": symbols}, batch_size=32, epochs=8, verbose=0)
    # The upper row is noise, 3 bits a symbol; the lower one is known.
    assert history.history["bits_per_symbol"][-1] < 1.7
    np.testing.assert_allclose(
        history.history["bits_per_symbol"],
        np.array(history.history["loss"]) / np.log(2),
        rtol=1e-3,
    )


def test_a_grid_needs_three_numbers():
    with pytest.raises(
        ValueError, match=r"\(rows, columns, slots\), received \(8, 8\)"
    ):
        GridTransformer((8, 8), 256)


def test_image_transformer_counts_bits(rng):
    model = ImageTransformer(4, 4, **{**SMALL, "block_length": 8})
    model.compile()
    images = rng.integers(256, size=(4, 4, 4, 3)).astype("uint8")
    # Before training all 256 values are about as likely: 8 bits.
    assert (
        abs(
            model.evaluate({"images": images}, verbose=0, return_dict=True)[
                "bits_per_dim"
            ]
            - 8
        )
        < 0.1
    )
    assert model.sample(1, seed=(0, 1)).dtype == "uint8"


def entropy(symbols):
    """Bits a symbol, each slot with frequencies of its own."""
    shares = [np.bincount(x.ravel()) / x.size for x in np.moveaxis(symbols, -1, 0)]
    return np.mean([-np.sum(p * np.log2(np.maximum(p, 1e-30))) for p in shares])


@pytest.mark.parametrize("pixels", [False, True])
def test_a_start_from_frequencies_needs_their_entropy(pixels):
    rng = np.random.default_rng(0)
    sizes = {
        "hidden_dim": 16,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_dim": 16,
        "block_length": 8,
    }
    if pixels:
        model = ImageTransformer(4, 4, **sizes)
        model.build()
        vectors, most = np.array(model.vectors), 255
    else:
        model = GridTransformer((4, 4, 3), 32, vector_dim=8, **sizes)
        vectors, most = rng.normal(size=(3, 32, 5)), 31
    symbols = rng.binomial(most, [0.2, 0.5, 0.9], size=(200, 4, 4, 3)).astype("uint8")
    model.init_from_codebook(vectors, symbols)
    model.compile()
    inputs = {"images" if pixels else "symbols": symbols}
    name = "bits_per_dim" if pixels else "bits_per_symbol"
    bits = model.evaluate(inputs, verbose=0, return_dict=True)[name]
    assert entropy(symbols) < bits < entropy(symbols) + 0.3
    # The way from one symbol to another has the direction that it had.
    for slot, found in enumerate(np.array(model.vectors)):
        way, expected = found[1] - found[0], vectors[slot, 1] - vectors[slot, 0]
        expected = np.pad(expected, (0, len(way) - len(expected)))
        cosine = way @ expected / np.linalg.norm(way) / np.linalg.norm(expected)
        np.testing.assert_allclose(cosine, 1, atol=1e-5)


@pytest.mark.parametrize("model_class", [GridTransformer, ImageTransformer])
def test_scaled_symbols_are_refused(model_class):
    if model_class is GridTransformer:
        model, name = GridTransformer((2, 2, 3), 256, **SMALL), "symbols"
    else:
        model, name = ImageTransformer(2, 2, **SMALL), "images"
    with pytest.raises(ValueError, match=f"`{name}` must be integers from 0 to 255"):
        model({name: np.zeros((1, 2, 2, 3), "float32")})
