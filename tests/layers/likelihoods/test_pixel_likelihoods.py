"""Distributions over pixels: their equations, their extremes, and their manners."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers.likelihoods.categorical_pixels import CategoricalPixels
from keras_vqem.layers.likelihoods.logistic_mixture import LogisticMixture
from tests.layers.likelihoods import reference

LEVELS = 6
MIXTURES = 3
SMALL = [CategoricalPixels(LEVELS), LogisticMixture(MIXTURES, LEVELS)]
NARROW = [CategoricalPixels(LEVELS, 0.4), LogisticMixture(MIXTURES, LEVELS, 0.4)]
BYTES = [CategoricalPixels(), LogisticMixture(4)]
# All colours as an image of one row.
COLOURS = np.indices((LEVELS,) * 3).reshape(3, -1).T[None, None].astype("int32")


def name(likelihood):
    return f"{type(likelihood).__name__}-{likelihood.levels}-{likelihood.spread}"


small = pytest.mark.parametrize("likelihood", SMALL, ids=name)
all_levels = pytest.mark.parametrize("likelihood", SMALL + BYTES, ids=name)
with_and_without_base = pytest.mark.parametrize("based", [False, True])


def pixel(likelihood, rng, based=False):
    """Numbers of one pixel and its base, if wanted."""
    outputs = rng.normal(size=likelihood.parameters)
    return outputs, rng.uniform(-1, LEVELS, size=3) if based else None


def table(likelihood, outputs, base=None):
    """[levels] * 3 probabilities of one pixel, as the layer sees them."""
    outputs = np.broadcast_to(outputs, (*COLOURS.shape[:-1], len(outputs)))
    base = None if base is None else np.broadcast_to(base, COLOURS.shape)
    nats = likelihood.log_prob(outputs, COLOURS, base)
    return np.exp(nats.numpy().astype("float64")).reshape((LEVELS,) * 3)


def exact(likelihood, outputs, base=None):
    if isinstance(likelihood, CategoricalPixels):
        return reference.categorical_table(outputs, LEVELS, base, likelihood.spread)
    return reference.mixture_table(outputs, LEVELS, MIXTURES, base, likelihood.spread)


def batch(likelihood, rng, shape=(2, 3, 5)):
    outputs = rng.normal(size=(*shape, likelihood.parameters))
    images = rng.integers(0, likelihood.levels, (*shape, 3))
    base = rng.uniform(0, likelihood.levels - 1, (*shape, 3))
    return outputs.astype("float32"), images.astype("int32"), base.astype("float32")


@pytest.mark.parametrize("likelihood", SMALL + NARROW, ids=name)
@with_and_without_base
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_follow_the_equations_and_sum_to_one(likelihood, based, seed):
    outputs, base = pixel(likelihood, np.random.default_rng(seed), based)
    p = table(likelihood, outputs, base)
    np.testing.assert_allclose(
        p, exact(likelihood, outputs, base), rtol=2e-5, atol=1e-10
    )
    assert p.sum() == pytest.approx(1.0, abs=1e-5)


@small
def test_pixels_of_a_batch_do_not_mix(likelihood, rng):
    outputs, images, base = batch(likelihood, rng, (2, 1, 3))
    nats = likelihood.log_prob(outputs, images, base).numpy()
    for at in np.ndindex(nats.shape):
        expected = exact(likelihood, outputs[at], base[at])[tuple(images[at])]
        assert nats[at] == pytest.approx(np.log(expected), rel=1e-4)


@all_levels
def test_no_base_is_mid_grey(likelihood, rng):
    outputs, images, _ = batch(likelihood, rng)
    grey = np.full(images.shape, (likelihood.levels - 1) / 2, "float32")
    np.testing.assert_allclose(
        likelihood.log_prob(outputs, images),
        likelihood.log_prob(outputs, images, grey),
        rtol=1e-4,
    )
    np.testing.assert_allclose(
        likelihood.mean(outputs), likelihood.mean(outputs, grey), atol=1e-3
    )


@small
def test_outputs_of_0_are_broad_and_symmetric_about_the_base(likelihood):
    p = table(likelihood, np.zeros(likelihood.parameters), np.full(3, 2.0))
    red = p.sum((1, 2))
    assert red.argmax() == 2
    np.testing.assert_allclose(red[1], red[3], rtol=1e-4)
    # The base is no certainty: no level of six is rarer than one in 200.
    assert red.min() > 0.005 and red.max() < 0.5


@small
@with_and_without_base
def test_samples_come_as_often_as_their_probability_says(likelihood, based, rng):
    outputs, base = pixel(likelihood, rng, based)
    count = 50_000
    many = np.broadcast_to(outputs, (1, 1, count, len(outputs)))
    base_many = None if base is None else np.broadcast_to(base, (1, 1, count, 3))
    drawn = likelihood.sample(many, (3, 4), base_many)
    assert drawn.dtype == "int32" and drawn.shape == (1, 1, count, 3)
    flat = np.ravel_multi_index(drawn.numpy().reshape(-1, 3).T, (LEVELS,) * 3)
    seen = np.bincount(flat, minlength=LEVELS**3)
    expected = count * exact(likelihood, outputs, base).ravel()
    enough = expected > 5
    assert enough.sum() > 30
    # Pearson's statistic has mean and half variance of its degrees of freedom.
    statistic = np.sum((seen - expected)[enough] ** 2 / expected[enough])
    freedom = enough.sum()
    assert statistic < freedom + 6 * np.sqrt(2 * freedom)


@all_levels
def test_seeds_decide_samples(likelihood, rng):
    outputs, _, base = batch(likelihood, rng)
    first = likelihood.sample(outputs, (1, 2), base)
    np.testing.assert_array_equal(first, likelihood.sample(outputs, (1, 2), base))
    assert (first != likelihood.sample(outputs, (1, 3), base)).numpy().any()
    assert (first.numpy() >= 0).all() and (first.numpy() < likelihood.levels).all()


@small
@with_and_without_base
def test_means_are_those_of_all_levels(likelihood, based, rng):
    outputs, base = pixel(likelihood, rng, based)
    tolerance = 1e-4
    if isinstance(likelihood, LogisticMixture):
        # Without couplings only the rounding to levels is approximate.
        outputs[-3 * MIXTURES :] = 0.0
        outputs[4 * MIXTURES : -3 * MIXTURES] = rng.uniform(0, 1, 3 * MIXTURES)
        tolerance = 0.02
    p = exact(likelihood, outputs, base)
    levels = np.arange(LEVELS)
    expected = [p.sum((1, 2)) @ levels, p.sum((0, 2)) @ levels, p.sum((0, 1)) @ levels]
    base = None if base is None else base[None]
    mean = likelihood.mean(outputs[None], base)
    np.testing.assert_allclose(mean[0], expected, atol=tolerance)


def test_means_follow_the_couplings():
    # One narrow component: red at 60 beyond mid-grey, green half of that, blue both.
    likelihood = LogisticMixture(1)
    reach = 60 / likelihood.spread
    outputs = np.zeros((1, 10), "float32")
    outputs[0, 1] = reach
    outputs[0, 4:7] = -3.0
    outputs[0, 7:] = np.arctanh([0.5, 0.25, -0.5])
    offset = likelihood.mean(outputs)[0].numpy() - 127.5
    np.testing.assert_allclose(offset, [60.0, 30.0, 0.0], atol=0.01)


@all_levels
@pytest.mark.parametrize("size", [30.0, 1e4])
def test_extremes_are_finite_and_so_are_their_gradients(likelihood, size, rng):
    top = likelihood.levels - 1
    outputs, images, base = batch(likelihood, rng, (4, 8, 8))
    # Signs alone: far-away means, the smallest and the largest scales, one-sided
    # logits, on the first, the last and other levels.
    outputs = tf.constant(size * np.sign(outputs))
    images = np.where(rng.random(images.shape) < 0.6, top * (images % 2), images)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        nats = likelihood.log_prob(outputs, images, base)
    gradient = tape.gradient(nats, outputs)
    assert np.isfinite(nats).all() and (nats.numpy() <= 1e-5).all()
    assert np.isfinite(gradient).all() and np.any(gradient)
    mean = likelihood.mean(outputs, base).numpy()
    assert (mean >= 0).all() and (mean <= top).all()
    drawn = likelihood.sample(outputs, (0, 0), base).numpy()
    assert (drawn >= 0).all() and (drawn <= top).all()


@pytest.mark.parametrize("distance", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("log_scale", [-30.0, -4.0, 0.0, 5.0])
@pytest.mark.parametrize("level", [0, 1, 128, 255])
def test_bins_keep_their_digits_where_differences_underflow(distance, log_scale, level):
    outputs = np.zeros((1, 10))
    outputs[0, 1] = distance / np.exp(reference.start(256))
    outputs[0, 4:7] = log_scale
    nats = LogisticMixture(1).log_prob(outputs, np.full((1, 3), level))
    # Longer floats and the log of either tail's difference.
    scale = np.exp(np.longdouble(reference.bounded(log_scale + reference.start(256))))
    expected = np.longdouble(0.0)
    for mean in (distance, 0, 0):
        z = (np.longdouble(2 * level / 255) - 1 - mean) / scale
        half = 1 / (255 * scale)
        a, b = (z + half, z - half) if z < 0 else (half - z, -z - half)
        near, far = np.exp(a) / (1 + np.exp(a)), np.exp(b) / (1 + np.exp(b))
        if level == (0 if z < 0 else 255):
            p = near
        elif level in (0, 255):
            p = 1 - far
        else:
            p = near - far
        expected += np.log(p)
    assert float(nats[0]) == pytest.approx(float(expected), rel=2e-4, abs=1e-5)


@all_levels
def test_gradients_are_those_of_differences(likelihood, rng):
    outputs, images, base = batch(likelihood, rng, (1, 2, 2))
    outputs, base = tf.constant(outputs), tf.constant(base)
    directions = [rng.normal(size=x.shape).astype("float32") for x in (outputs, base)]
    directions[0] /= np.sqrt(likelihood.parameters)
    directions[1] *= 0.1 * likelihood.levels
    with tf.GradientTape() as tape:
        tape.watch([outputs, base])
        nats = tf.reduce_sum(likelihood.log_prob(outputs, images, base))
    gradients = tape.gradient(nats, [outputs, base])
    for which in range(2):
        step = 1e-2

        def moved(sign, which=which, step=step):
            arguments = [outputs, base]
            arguments[which] += sign * step * directions[which]
            nats = likelihood.log_prob(arguments[0], images, arguments[1])
            return np.sum(nats, dtype="float64")

        difference = (moved(1) - moved(-1)) / (2 * step)
        slope = np.sum(gradients[which] * directions[which])
        assert slope == pytest.approx(difference, rel=1e-2, abs=1e-2)


@pytest.mark.parametrize("likelihood", BYTES, ids=name)
def test_eager_graph_and_xla_agree(likelihood, rng):
    arguments = [tf.constant(x) for x in batch(likelihood, rng)]

    def everything(outputs, images, base):
        with tf.GradientTape() as tape:
            tape.watch(outputs)
            nats = likelihood.log_prob(outputs, images, base)
        gradient = tape.gradient(nats, outputs)
        drawn = likelihood.sample(outputs, tf.constant([5, 6]), base)
        return drawn, nats, gradient, likelihood.mean(outputs, base)

    signature = [
        tf.TensorSpec((None, None, None, x.shape[-1]), x.dtype) for x in arguments
    ]
    expected_draw, *expected = everything(*arguments)
    graph = tf.function(everything, input_signature=signature)
    compiled = tf.function(everything, jit_compile=True)
    for function, least in (graph, 1.0), (compiled, 0.95):
        drawn, *values = function(*arguments)
        for value, other in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, other, rtol=1e-4, atol=1e-4)
        # XLA rounds differently, which moves a draw at a boundary by a level.
        assert np.mean(drawn == expected_draw) >= least


@all_levels
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats_are_computed_in_float32(likelihood, dtype, rng):
    outputs, images, base = batch(likelihood, rng)
    outputs = tf.cast(outputs, dtype)
    nats = likelihood.log_prob(outputs, images.astype("uint8"), base)
    mean = likelihood.mean(outputs, base)
    assert nats.dtype == "float32" and mean.dtype == "float32"
    assert likelihood.sample(outputs, (0, 1), base).dtype == "int32"
    single = tf.cast(outputs, "float32")
    np.testing.assert_allclose(nats, likelihood.log_prob(single, images, base))
    np.testing.assert_allclose(mean, likelihood.mean(single, base))


@all_levels
def test_configs_make_the_same_again(likelihood):
    config = keras.saving.serialize_keras_object(likelihood)
    assert config["registered_name"] == f"keras_vqem>{type(likelihood).__name__}"
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(likelihood)
    assert again.get_config() == likelihood.get_config()
    assert again.parameters == likelihood.parameters


def test_numbers_of_parameters():
    assert CategoricalPixels(256).parameters == 3 * 257
    assert LogisticMixture(5).parameters == 50


@small
@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"outputs": np.zeros((2, 4, 4, 7))},
            r"needs {n} numbers.*4, 7\).*= {n} units",
        ),
        ({"images": np.zeros((2, 4, 4, 3))}, "0 to 5, received float64.*cast"),
        ({"images": np.zeros((2, 4, 4, 1), "int32")}, r"\(2, 4, 4, 3\).*4, 1\).*grey"),
        ({"images": np.zeros((1, 4, 4, 3), "int32")}, r"`images`.*\(1, 4, 4, 3\)"),
        ({"base": np.zeros((2, 4, 3))}, r"`base`.*received \(2, 4, 3\)"),
    ],
)
def test_bad_tensors_get_the_remedy(likelihood, changes, message):
    arguments = {
        "outputs": np.zeros((2, 4, 4, likelihood.parameters)),
        "images": np.zeros((2, 4, 4, 3), "int32"),
        "base": np.zeros((2, 4, 4, 3)),
    }
    likelihood.log_prob(**arguments)
    with pytest.raises(ValueError, match=message.format(n=likelihood.parameters)):
        likelihood.log_prob(**{**arguments, **changes})


@small
def test_bad_seeds_get_the_remedy(likelihood):
    with pytest.raises(ValueError, match=r"two integers, received shape \(\).*seed="):
        likelihood.sample(np.zeros((1, 1, 1, likelihood.parameters)), 3)


@pytest.mark.parametrize("levels", [1, 0, 2.5, "256", None])
@pytest.mark.parametrize("likelihood", [CategoricalPixels, LogisticMixture])
def test_bad_levels_get_the_remedy(likelihood, levels):
    with pytest.raises(ValueError, match=f"`levels`.*2, received {levels!r}.*256"):
        likelihood(levels=levels)


def test_bad_numbers_of_mixtures_are_named():
    with pytest.raises(ValueError, match="`num_mixtures`.*at least 1, received 0"):
        LogisticMixture(0)


def test_bad_spreads_are_named():
    with pytest.raises(ValueError, match="`spread` must be more than 0, received 0"):
        LogisticMixture(spread=0)
