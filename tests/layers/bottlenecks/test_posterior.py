"""The E step: exact in chunks, exact in distribution, and small in memory."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import VQEMBottleneck
from keras_vqem.layers.bottlenecks import posterior, segments
from tests.layers.bottlenecks import reference


def draws(x, codebook, usable=None, samples=1000, seed=0, **settings):
    noise = np.random.default_rng(seed).random((len(x), samples, 2)).astype("float32")
    usable = np.ones(len(codebook), bool) if usable is None else usable
    return posterior.assign(
        tf.constant(x, tf.float32),
        tf.constant(codebook, tf.float32),
        tf.constant(usable),
        tf.constant(noise),
        **settings,
    )


@pytest.mark.parametrize("codes", [2, 3, 16, 100, 1000, 1024, 1500])
def test_draws_follow_the_posterior(codes, rng):
    x, codebook = rng.normal(size=(4, 3)), rng.normal(size=(codes, 3))
    _, samples = draws(x, codebook, samples=20_000, temperature=2.0)
    exact = reference.posterior(x, codebook, temperature=2.0)
    for row, p in zip(samples.numpy(), exact, strict=True):
        seen = np.bincount(row, minlength=codes)
        assert len(seen) == codes
        expected = p * len(row)
        enough = expected > 5
        # Pearson's statistic has mean and half variance of its degrees of freedom.
        statistic = np.sum((seen - expected)[enough] ** 2 / expected[enough])
        freedom = enough.sum()
        assert statistic < freedom + 6 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("number", [20, 1100])
def test_unusable_codes_are_never_chosen(number, rng):
    x, codebook = rng.normal(size=(50, 3)), rng.normal(size=(number, 3))
    usable = rng.random(number) < 0.3
    codes, samples = draws(x, codebook, usable, temperature=100.0)
    assert usable[codes.numpy()].all() and usable[samples.numpy()].all()
    nearest = np.flatnonzero(usable)[
        reference.squared_distances(x, codebook[usable]).argmin(-1)
    ]
    np.testing.assert_array_equal(codes, nearest)


def test_without_a_usable_code_draws_are_still_codes(rng):
    # As before the first data: nothing is placed yet.
    _, samples = draws(rng.normal(size=(9, 3)), np.zeros((5, 3)), np.zeros(5, bool))
    assert set(np.unique(samples)) == set(range(5))


@pytest.mark.parametrize("number", [7, 1100])
def test_a_codebook_of_nan_gives_codes_that_exist(number):
    codes, samples = draws(np.ones((5, 3)), np.full((number, 3), np.nan), samples=4)
    for some in (codes.numpy(), samples.numpy()):
        assert some.min() >= 0 and some.max() < number


def test_a_certain_posterior_is_drawn_with_certainty(rng):
    codebook = 100 * rng.normal(size=(30, 3))
    codes, samples = draws(codebook, codebook)
    np.testing.assert_array_equal(codes, np.arange(30))
    assert (samples.numpy() == np.arange(30)[:, None]).all()


@pytest.mark.parametrize("rows", [1, 7, 16, 50])
@pytest.mark.parametrize("dynamic", [False, True])
def test_chunks_change_nothing(rows, dynamic, rng, monkeypatch):
    x = rng.normal(size=(rows, 5)).astype("float32")
    codebook = rng.normal(size=(33, 5)).astype("float32")
    whole = draws(x, codebook, samples=6, temperature=3.0)
    monkeypatch.setattr(posterior, "LOGITS_PER_CHUNK", 33 * 8)
    noise = np.random.default_rng(0).random((rows, 6, 2)).astype("float32")
    function = tf.function(
        lambda x, noise: posterior.assign(
            x, tf.constant(codebook), tf.ones(33, bool), noise, temperature=3.0
        )
    )
    if dynamic:
        function = function.get_concrete_function(
            tf.TensorSpec((None, 5)), tf.TensorSpec((None, 6, 2))
        )
    for a, b in zip(whole, function(tf.constant(x), tf.constant(noise)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_offset_of_ten_spreads_swaps_no_codes(rng):
    # Logits are differences of large numbers then; decision 0005 gives the range.
    x = (rng.normal(size=(500, 16)) + 10).astype("float32")
    codebook = (rng.normal(size=(32, 16)) + 10).astype("float32")
    codes, _ = draws(x, codebook, samples=1)
    exact = reference.squared_distances(x.astype("float64"), codebook.astype("float64"))
    np.testing.assert_array_equal(codes, exact.argmin(-1))


@pytest.mark.parametrize("number", [3, 1024])
def test_no_rows_at_all(number):
    codes, samples = draws(np.zeros((0, 3)), np.zeros((number, 3)), samples=4)
    assert codes.shape == (0,) and samples.shape == (0, 4)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("number", [5, 1000, 1024, 4096])
def test_the_likeliest_code_is_the_first_of_equals(number, jit, rng):
    # Few values, so that a row has many largest ones; 0 equals -0.
    logits = rng.integers(-5, 1, size=(60, number)) * 0.5
    logits = np.where(rng.random(logits.shape) < 0.5, logits, -logits * (logits == 0))
    logits[0] = posterior.NEVER
    logits[1] = -0.0
    logits[2, number // 2 :] = 7.0
    logits = logits.astype("float32")
    codes = tf.function(posterior._largest, jit_compile=jit)(tf.constant(logits))
    np.testing.assert_array_equal(codes, logits.argmax(-1))


def largest_tensor(function, *arguments):
    """Elements of the largest tensor in a traced function, loops included."""
    largest = 0
    graphs = [function.get_concrete_function(*arguments).graph]
    while graphs:
        graph = graphs.pop()
        for operation in graph.get_operations():
            for output in operation.outputs:
                if output.shape.is_fully_defined():
                    largest = max(largest, output.shape.num_elements())
            for key in ("body", "cond"):
                if operation.type in ("While", "StatelessWhile"):
                    graphs.append(
                        getattr(operation, key, None)
                        or graph._get_function(operation.get_attr(key).name).graph
                    )
    return largest


def test_many_draws_from_few_codes_are_chunked_too(monkeypatch):
    monkeypatch.setattr(posterior, "LOGITS_PER_CHUNK", 2**12)
    noise = tf.TensorSpec((400, 50, 2))
    function = tf.function(
        lambda noise: posterior.assign(
            tf.ones((400, 2)), tf.ones((16, 2)), tf.ones(16, bool), noise
        )
    )
    # Noise and draws themselves, but not draws times codes.
    assert largest_tensor(function, noise) <= 2 * 400 * 50 * 2


@pytest.mark.parametrize("samples", [None, 3])
def test_a_training_step_never_holds_rows_over_the_codebook(samples, monkeypatch):
    rows, codes, dim = 64, 4096, 4
    monkeypatch.setattr(posterior, "LOGITS_PER_CHUNK", 8 * codes)
    layer = VQEMBottleneck(codes, num_samples=samples)
    layer.build((rows, dim))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x, training=True)
            loss = tf.reduce_sum(outputs["quantized"]) + sum(layer.losses)
        return tape.gradient(loss, x)

    assert largest_tensor(step, tf.TensorSpec((rows, dim))) < rows * codes
    x = np.random.default_rng(0).normal(size=(rows, dim)).astype("float32")
    assert np.isfinite(step(tf.constant(x))).all()


@pytest.mark.parametrize("dim", [4, segments.NARROW])
@pytest.mark.parametrize("samples", [1, 2, 9])
@pytest.mark.parametrize("jit", [False, True])
def test_segments_against_one_hot(dim, samples, jit, rng):
    rows = rng.normal(size=(30, dim)).astype("float32")
    table = rng.normal(size=(7, dim)).astype("float32")
    codes = rng.integers(0, 7, size=(30, samples)).astype("int32")
    dropped = codes.copy()
    dropped[::3] = -1
    h = np.eye(7)[codes].mean(1)
    kept = h * (np.arange(30) % 3 != 0)[:, None]

    def compiled(function):
        return tf.function(function, jit_compile=jit)

    mean = compiled(lambda: segments.mean_of_rows(tf.constant(table), codes))
    np.testing.assert_allclose(mean(), h @ table, atol=1e-5)
    total = compiled(lambda: segments.sum_by_code(tf.constant(rows), dropped, 7))
    np.testing.assert_allclose(total(), kept.T @ rows, atol=1e-5)
    count = compiled(lambda: segments.count_by_code(tf.constant(dropped), 7))
    np.testing.assert_allclose(count(), kept.sum(0), atol=1e-5)


def test_the_short_products_of_gpus_would_swap_near_codes(rng):
    # Why a Run turns TF32 off: 10 bits after the point, here rounded by hand.
    def short(x):
        bits = x.astype("float32").view("int32")
        return ((bits + 0x1000) & ~0x1FFF).view("float32")

    x = rng.normal(size=(2000, 16)).astype("float32")
    codebook = (x[:200] + 0.02 * rng.normal(size=(200, 16))).astype("float32")
    codebook = np.concatenate([codebook, codebook + 0.002 * rng.normal(size=(200, 16))])
    exact = np.sum((x[:, None].astype("float64") - codebook) ** 2, axis=-1).argmin(1)
    usable = np.ones(400, bool)

    def codes(round_):
        rows, table = (tf.constant(round_(a), "float32") for a in (x, codebook))
        return posterior.assign(rows, table, usable)[0].numpy()

    assert np.mean(codes(lambda a: a) != exact) < 0.001
    assert np.mean(codes(short) != exact) > 0.01
