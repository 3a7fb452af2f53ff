"""Finite scalar and lookup-free quantization against their equations."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import (
    FiniteScalarBottleneck,
    LookupFreeBottleneck,
    SemanticHashingBottleneck,
)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("levels", [(8, 5, 5, 5), (2, 3, 4, 6, 7), (16, 9), (2,)])
def test_every_code_is_the_code_of_its_vector(levels, dtype):
    layer = FiniteScalarBottleneck(levels, dtype=dtype)
    layer.build((None, len(levels)))
    codes = np.arange(np.prod(levels))
    vectors = layer.decode(codes)
    np.testing.assert_array_equal(layer.encode(vectors), codes)
    np.testing.assert_array_equal(layer(vectors)["quantized"], vectors)
    # A grid from -1 to 1, and the first number is the lowest digit.
    grids = [np.linspace(-1, 1, n) for n in levels]
    grid = np.array(list(itertools.product(*grids[::-1])))[:, ::-1]
    np.testing.assert_allclose(np.asarray(vectors, "float32"), grid, atol=4e-3)


@pytest.mark.parametrize("number", [*range(2, 40), 255, 1000, 4096])
def test_every_level_is_rounded_to_itself(number):
    layer = FiniteScalarBottleneck((number,))
    layer.build((None, 1))
    codes = np.arange(number)
    np.testing.assert_array_equal(layer.encode(layer.decode(codes)), codes)


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6, 7, 8])
def test_levels_are_symmetric_and_all_reached(number, rng):
    layer = FiniteScalarBottleneck((number,))
    z = rng.normal(size=(20_000, 1)).astype("float32")
    codes = layer.encode(z).numpy()
    np.testing.assert_array_equal(layer.encode(-z), number - 1 - codes)
    share = np.bincount(codes, minlength=number) / len(codes)
    assert share.min() > 0.4 / number
    # The order is that of the numbers.
    order = np.argsort(z[:, 0])
    assert (np.diff(codes[order]) >= 0).all()


def test_finite_scalar_by_hand(rng):
    z = tf.constant(3 * rng.normal(size=(50, 2)).astype("float32"))
    layer = FiniteScalarBottleneck((8, 5))
    with tf.GradientTape() as tape:
        tape.watch(z)
        quantized = layer(z, training=True)["quantized"]
    slope = np.array([2 / np.sqrt(7), 1.0])
    bounded = np.tanh(slope * z) / np.tanh(slope)
    grids = [np.linspace(-1, 1, 8), np.linspace(-1, 1, 5)]
    for i, grid in enumerate(grids):
        nearest = np.argmin(np.abs(bounded[:, i, None] - grid), axis=1)
        np.testing.assert_allclose(quantized[:, i], grid[nearest], atol=1e-6)
    derivative = slope / np.tanh(slope) * (1 - np.tanh(slope * z) ** 2)
    np.testing.assert_allclose(tape.gradient(quantized, z), derivative, atol=1e-5)
    assert layer.losses == [] and layer.weights == []


def test_linear_maps_where_sizes_differ(rng):
    x = rng.normal(size=(50, 6)).astype("float32")
    layer = FiniteScalarBottleneck((5, 5))
    quantized = layer(x)["quantized"]
    z = x @ layer.kernel[0].numpy() + layer.bias[0].numpy()
    inner = FiniteScalarBottleneck((5, 5))
    np.testing.assert_array_equal(layer.encode(x), inner.encode(z))
    np.testing.assert_allclose(
        quantized, inner(z)["quantized"] @ layer.output_kernel[0].numpy(), atol=1e-5
    )


def posteriors(z, temperature):
    """Probabilities of all codes, from distances to all corners, [N, 2 ** b]."""
    corners = np.array(list(itertools.product([-1, 1], repeat=z.shape[1])))[:, ::-1]
    logits = -np.sum((z[:, None] - corners[None]) ** 2, axis=-1) / temperature
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def entropy(p):
    return -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1)


@pytest.mark.parametrize("entropy_bits", [1, 3, 5, 8])
def test_lookup_free_entropies_by_hand(entropy_bits, rng):
    z = 0.5 * rng.normal(size=(30, 5)).astype("float32")
    mask = rng.random(30) < 0.7
    layer = LookupFreeBottleneck(
        5,
        entropy_weight=0.3,
        diversity_weight=0.7,
        commitment_weight=0.2,
        temperature=2.0,
        entropy_bits=entropy_bits,
    )
    outputs = layer(z, mask=mask, training=True)
    np.testing.assert_array_equal(outputs["codes"], (z > 0) @ [1, 2, 4, 8, 16])
    np.testing.assert_array_equal(outputs["quantized"], np.sign(z))
    kept = z[mask].astype("float64")
    per_sample = entropy(posteriors(kept, 2.0)).mean()
    batch = sum(
        entropy(posteriors(kept[:, start : start + entropy_bits], 2.0).mean(0))
        for start in range(0, 5, entropy_bits)
    )
    wanted = 0.3 * (per_sample - 0.7 * batch)
    wanted += 0.2 * np.mean((kept - np.sign(kept)) ** 2)
    assert float(layer.losses[0]) == pytest.approx(wanted, rel=1e-5)


def test_lookup_free_gradient_is_that_of_its_loss(rng):
    z = 0.5 * rng.normal(size=(6, 3))
    layer = LookupFreeBottleneck(3, entropy_weight=1.0, diversity_weight=2.0)

    def loss(z):
        layer(tf.cast(z, "float32"), training=True)
        return layer.losses[0]

    x = tf.constant(z, "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(x)
    gradient = tape.gradient(value, x).numpy()
    for place in ((0, 0), (2, 1), (5, 2)):
        step = np.zeros_like(z)
        step[place] = 3e-3
        slope = (float(loss(z + step)) - float(loss(z - step))) / 6e-3
        assert gradient[place] == pytest.approx(slope, rel=0.02, abs=1e-3)


def test_lookup_free_every_code_is_the_code_of_its_vector():
    layer = LookupFreeBottleneck(10)
    layer.build((None, 10))
    codes = np.arange(1024)
    np.testing.assert_array_equal(layer.encode(layer.decode(codes)), codes)


def test_the_entropy_of_the_batch_brings_codes_into_use(rng):
    # All vectors start with the same code.
    start = (0.3 + 0.05 * rng.normal(size=(64, 4))).astype("float32")
    used = []
    for weight in (0.0, 2.0):
        z = tf.Variable(start)
        layer = LookupFreeBottleneck(
            4, entropy_weight=1.0, diversity_weight=weight, commitment_weight=0.0
        )
        layer.build(z.shape)

        @tf.function
        def step(z=z, layer=layer):
            with tf.GradientTape() as tape:
                layer(z, training=True)
                loss = layer.losses[0]
            z.assign_sub(2.0 * tape.gradient(loss, z))

        for _ in range(50):
            step()
        used.append(len(np.unique(layer.encode(z))))
    assert used == [1, 16]


def test_groups_of_bits(rng):
    x = rng.normal(size=(7, 3, 12)).astype("float32")
    for layer in (
        LookupFreeBottleneck(4, groups=3),
        FiniteScalarBottleneck((3, 3), groups=3),
        SemanticHashingBottleneck(4, groups=3),
    ):
        outputs = layer(x, training=True)
        assert outputs["codes"].shape == (7, 3, 3)
        np.testing.assert_array_equal(
            layer.decode(layer.encode(x)), layer(x)["quantized"]
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FiniteScalarBottleneck(8), "sequence of integers"),
        (lambda: FiniteScalarBottleneck(()), "from 2 to"),
        (lambda: FiniteScalarBottleneck((8, 1)), "at least 2"),
        (lambda: FiniteScalarBottleneck((1024, 1025)), "use `groups`"),
        (lambda: LookupFreeBottleneck(21), "from 1 to 20"),
        (lambda: LookupFreeBottleneck(4, entropy_weight=-1), "negative"),
        (lambda: LookupFreeBottleneck(4, temperature=0), "above 0"),
        (lambda: LookupFreeBottleneck(4, entropy_bits=0), "at least 1"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
