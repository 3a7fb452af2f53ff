"""GroupedPixels: exact against brute force, and each group sees only those before."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers
from tests.conformance import checks

ORDER = {2: [(0, 0), (1, 1), (0, 1), (1, 0)]}
ORDER[4] = [
    (2 * row + y, 2 * column + x) for y, x in ORDER[2] for row, column in ORDER[2]
]
both_sizes = pytest.mark.parametrize(
    "size", [2, pytest.param(4, marks=pytest.mark.slow)]
)


def make(size=2, levels=4, features=2, inner=None, **settings):
    inner = inner or layers.LogisticMixture(2, levels, 1.0)
    likelihood = layers.GroupedPixels(
        inner, features, channels=4, num_blocks=1, cell_size=size, seed=3, **settings
    )
    likelihood.build()
    return checks.shake(likelihood)


def batch(likelihood, rng, shape=(2, 4, 8)):
    outputs = rng.normal(size=(*shape, likelihood.parameters))
    images = rng.integers(0, likelihood.levels, (*shape, 3))
    base = rng.uniform(0, likelihood.levels - 1, (*shape, 3))
    return outputs.astype("float32"), images.astype("int32"), base.astype("float32")


def places(size, shape):
    """Group of each pixel of an image, [H, W]."""
    return np.array(
        [
            [ORDER[size].index((y % size, x % size)) for x in range(shape[1])]
            for y in range(shape[0])
        ]
    )


def all_images():
    """All 2 x 2 images of two levels."""
    values = np.array(list(itertools.product([0, 1], repeat=12)), "int32")
    return values.reshape(-1, 2, 2, 3)


def tiny(rng):
    """A likelihood with two levels, and the log probabilities of all 2 x 2 images."""
    inner = layers.LogisticMixture(2, levels=2, spread=0.3)
    likelihood = make(inner=inner)
    outputs, _, base = batch(likelihood, rng, (1, 2, 2))
    images = all_images()
    many = [np.repeat(x, len(images), axis=0) for x in (outputs, base)]
    nats = likelihood.log_prob(many[0], images, many[1])
    return likelihood, outputs, base, np.sum(nats, axis=(1, 2), dtype="float64")


def test_probabilities_of_all_images_sum_to_one(rng):
    *_, nats = tiny(rng)
    assert np.exp(nats).sum() == pytest.approx(1.0, abs=1e-5)
    assert nats.std() > 1.0


def test_samples_come_as_often_as_their_probability_says(rng):
    likelihood, outputs, base, nats = tiny(rng)
    count = 20_000
    many = [np.repeat(x, count, axis=0) for x in (outputs, base)]
    drawn = likelihood.sample(many[0], (3, 4), many[1]).numpy()
    assert drawn.dtype == "int32" and drawn.shape == (count, 2, 2, 3)
    seen = np.bincount(drawn.reshape(count, 12) @ 2 ** np.arange(11, -1, -1))
    seen = np.pad(seen, (0, 4096 - len(seen)))
    expected = count * np.exp(nats)
    enough = expected > 5
    assert enough.sum() > 30
    statistic = np.sum((seen - expected)[enough] ** 2 / expected[enough])
    freedom = enough.sum()
    assert statistic < freedom + 6 * np.sqrt(2 * freedom)


@both_sizes
def test_it_is_the_sum_of_groups_computed_one_by_one(size, rng):
    """The inputs of the network are put together pixel by pixel."""
    likelihood = make(size)
    outputs, images, base = batch(likelihood, rng)
    inner, levels = likelihood.likelihood, likelihood.levels
    expected = np.zeros(images.shape[:3])
    for group, (down, right) in enumerate(ORDER[size]):
        rows, columns = 4 // size, 8 // size
        inputs = []
        for b, i, j in np.ndindex(2, rows, columns):
            parts = {"given": [], "base": [], "seen": []}
            for other, (y, x) in enumerate(ORDER[size]):
                at = (b, i * size + y, j * size + x)
                parts["given"].append(outputs[at])
                parts["base"].append((base[at] - (levels - 1) / 2) * 2 / levels)
                known = (images[at] - base[at]) / inner.spread
                parts["seen"].append(known if other < group else np.zeros(3))
            inputs.append(np.concatenate([np.ravel(x) for x in parts.values()]))
        inputs = np.reshape(inputs, (2, rows, columns, -1)).astype("float32")
        correction = likelihood.network(inputs, np.full(2, group, "int32"))
        own = np.s_[:, down::size, right::size]
        found = outputs[own][..., : inner.parameters] + correction
        expected[own] = inner.log_prob(found, images[own], base[own])
    nats = likelihood.log_prob(outputs, images, base)
    np.testing.assert_allclose(nats, expected, rtol=1e-4, atol=1e-4)
    assert not np.allclose(nats, inner.log_prob(outputs[..., :20], images, base))


@both_sizes
def test_groups_depend_on_all_groups_before_and_on_no_other(size, rng):
    likelihood = make(size)
    outputs, images, base = batch(likelihood, rng)
    group_of = places(size, images.shape[1:3])
    nats = likelihood.log_prob(outputs, images, base).numpy()
    for group in range(size**2):
        moved = np.where(
            (group_of == group)[..., None], (images + 1) % likelihood.levels, images
        )
        changed = likelihood.log_prob(outputs, moved, base).numpy() != nats
        assert not changed[:, group_of < group].any()
        for later in range(group, size**2):
            assert changed[:, group_of == later].any()


@both_sizes
def test_estimates_of_all_groups_have_the_log_probability_as_their_mean(size, rng):
    likelihood = make(size)
    outputs, images, base = batch(likelihood, rng)
    nats = likelihood.log_prob(outputs, images, base)
    number = size**2
    # Two images with different groups in one batch.
    estimates = [
        likelihood.estimate(
            outputs, images, np.array([k, (k + 1) % number], "int32"), base
        ).numpy()
        for k in range(number)
    ]
    np.testing.assert_allclose(np.mean(estimates, axis=0), nats, rtol=1e-4, atol=1e-4)
    assert np.count_nonzero(estimates[0]) == nats.numpy().size / number


def test_drawn_groups_are_equally_likely_and_spread_over_a_batch():
    likelihood = make()
    draws = np.array([likelihood.draw_groups(6) for _ in range(400)])
    for column in draws.T:
        counts = np.bincount(column, minlength=4)
        assert counts.sum() == 400 and counts.min() > 60
    assert all(np.bincount(row, minlength=4).min() >= 1 for row in draws)
    # The same seed draws the same groups.
    again = make()
    np.testing.assert_array_equal(
        draws[:5], [again.draw_groups(6).numpy() for _ in range(5)]
    )


def test_a_new_network_leaves_the_probabilities_of_its_likelihood(rng):
    inner = layers.CategoricalPixels(8)
    likelihood = layers.GroupedPixels(inner, features=4, channels=4, num_blocks=1)
    outputs, images, base = batch(likelihood, rng)
    own = outputs[..., : inner.parameters]
    for based in (base, None):
        np.testing.assert_allclose(
            likelihood.log_prob(outputs, images, based),
            inner.log_prob(own, images, based),
            rtol=1e-5,
            atol=1e-5,
        )
        np.testing.assert_allclose(
            likelihood.mean(outputs, based), inner.mean(own, based), rtol=1e-5
        )


def test_means_are_those_of_samples(rng):
    likelihood = make(levels=16)
    outputs, _, base = batch(likelihood, rng, (1, 2, 2))
    many = [np.repeat(x, 4000, axis=0) for x in (outputs, base)]
    drawn = likelihood.sample(many[0], (0, 1), many[1]).numpy()
    mean = likelihood.mean(outputs, base)
    # The first group is exact but for rounding, the others as if their dependence was
    # linear.
    np.testing.assert_allclose(mean[0, 0, 0], drawn.mean(0)[0, 0], atol=0.4)
    np.testing.assert_allclose(mean[0], drawn.mean(0), atol=2.0)


@pytest.mark.slow
def test_rows_do_not_depend_on_each_other(rng):
    likelihood = make()
    outputs, images, base = batch(likelihood, rng, (3, 4, 4))
    seeds = np.array([[1, 2], [3, 4], [1, 2]], "int32")
    nats = likelihood.log_prob(outputs, images, base)
    drawn = likelihood.sample(outputs, seeds, base)
    for row in range(3):
        one = np.s_[row : row + 1]
        np.testing.assert_allclose(
            likelihood.log_prob(outputs[one], images[one], base[one])[0],
            nats[row],
            rtol=1e-4,
            atol=1e-5,
        )
        alone = likelihood.sample(outputs[one], seeds[one], base[one])
        np.testing.assert_array_equal(alone[0], drawn[row])
    same = [np.repeat(x[:1], 3, axis=0) for x in (outputs, base)]
    drawn = likelihood.sample(same[0], seeds, same[1]).numpy()
    np.testing.assert_array_equal(drawn[0], drawn[2])
    assert (drawn[0] != drawn[1]).any()


def test_seeds_decide_samples(rng):
    likelihood = make(levels=256)
    outputs, _, base = batch(likelihood, rng)
    first = likelihood.sample(outputs, (1, 2), base).numpy()
    np.testing.assert_array_equal(first, likelihood.sample(outputs, (1, 2), base))
    other = likelihood.sample(outputs, (1, 3), base).numpy()
    # Every group has noise of its own.
    changed, group_of = (first != other).any((0, 3)), places(2, (4, 8))
    assert all(changed[group_of == group].any() for group in range(4))


@pytest.mark.slow
@both_sizes
def test_eager_graph_and_xla_agree(size, rng):
    likelihood = make(size, inner=layers.LogisticMixture(2))
    arguments = [tf.constant(x) for x in batch(likelihood, rng)]
    groups = tf.constant([1, 3])

    def learn(outputs, images, base):
        with tf.GradientTape() as tape:
            estimate = likelihood.estimate(outputs, images, groups, base)
        return estimate, *tape.gradient(estimate, likelihood.trainable_weights)

    def evaluate(outputs, images, base):
        nats = likelihood.log_prob(outputs, images, base)
        return nats, likelihood.mean(outputs, base)

    signature = [
        tf.TensorSpec((None, None, None, x.shape[-1]), x.dtype) for x in arguments
    ]
    graph = tf.function(evaluate, input_signature=signature)
    compiled = tf.function(learn, jit_compile=True)
    for function, eager in (graph, evaluate), (compiled, learn):
        for value, other in zip(function(*arguments), eager(*arguments), strict=True):
            np.testing.assert_allclose(value, other, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"outputs": np.zeros((2, 4, 8, 7))}, "needs 22 numbers.*= 22 units"),
        ({"outputs": np.zeros((2, 3, 8, 22))}, "multiples of 2"),
        ({"images": np.zeros((2, 4, 8, 3))}, "0 to 3, received float64"),
        ({"images": np.zeros((2, 4, 8, 1), "int32")}, "`images`.*grey"),
        ({"base": np.zeros((2, 4, 3))}, "`base`"),
    ],
)
def test_bad_tensors_get_the_remedy(change, message, rng):
    likelihood = make()
    outputs, images, base = batch(likelihood, rng)
    arguments = {"outputs": outputs, "images": images, "base": base, **change}
    with pytest.raises(ValueError, match=message):
        likelihood.log_prob(**arguments)


def test_bad_arguments_get_the_remedy():
    with pytest.raises(ValueError, match="`cell_size` must be 2 or 4, received 3"):
        layers.GroupedPixels(cell_size=3)
    with pytest.raises(ValueError, match="`channels`.*at least 1, received 0"):
        layers.GroupedPixels(channels=0)
    likelihood = make()
    outputs = np.zeros((3, 2, 2, likelihood.parameters))
    with pytest.raises(ValueError, match="two integers for each of 3"):
        likelihood.sample(outputs, np.zeros((2, 2), "int32"))


def test_configs_make_the_same_again():
    likelihood = make(4, inner=layers.CategoricalPixels(8, 2.0))
    config = keras.saving.serialize_keras_object(likelihood)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == likelihood.get_config()
    assert again.parameters == likelihood.parameters == 29
