"""ResidualBottleneck against a plain loop in NumPy, and what is special about it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers, micro_batches
from keras_vqem.layers import ResidualBottleneck, VQBottleneck, VQEMBottleneck
from tests.layers.bottlenecks import reference


def make(num_quantizers=3, num_codes=6, decay=0.8, outer=None, **settings):
    pattern = VQEMBottleneck(
        num_codes,
        decay=decay,
        initializer=keras.initializers.RandomNormal(stddev=1.0, seed=5),
        seed=3,
        **settings,
    )
    return ResidualBottleneck(pattern, num_quantizers, **(outer or {}))


def states(layer):
    """Codebooks and counts of all levels, float64."""
    return [
        [w[0].numpy().astype("float64") for w in (level.codebook, level.counts)]
        for level in layer.quantizers
    ]


def test_residual_hard_em_is_the_plain_loop(rng):
    layer = make()
    layer.build((None, 4))
    wanted = states(layer)
    for _ in range(5):
        x = rng.normal(size=(40, 4)).astype("float32")
        outputs = layer(x, training=True)
        residual = x.astype("float64")
        for level, (codebook, counts) in enumerate(wanted):
            h = reference.hard_e_step(residual, codebook)
            np.testing.assert_array_equal(outputs["codes"][:, level], h.argmax(-1))
            wanted[level] = reference.ema_step(residual, h, codebook, counts, 0.8)
            loss = 0.25 * np.mean((residual - h @ codebook) ** 2)
            assert float(layer.losses[level]) == pytest.approx(loss, rel=1e-4)
            residual = residual - h @ codebook
        np.testing.assert_allclose(outputs["quantized"], x - residual, atol=1e-5)
        for got, want in zip(states(layer), wanted, strict=True):
            np.testing.assert_allclose(got[0], want[0], atol=1e-5)
            np.testing.assert_allclose(got[1], want[1], rtol=1e-5)


def test_residual_soft_em_learns_from_the_residuals_of_means(rng):
    layer = make(2, num_samples=4, temperature=2.0)
    layer.build((None, 4))
    before = states(layer)
    x = rng.normal(size=(30, 4)).astype("float32")
    samples = layer(x, training=True)["samples"].numpy()
    residual = x.astype("float64")
    for level, (codebook, counts) in enumerate(before):
        h = np.mean(np.eye(6)[samples[:, level]], axis=1)
        want = reference.ema_step(residual, h, codebook, counts, 0.8)
        np.testing.assert_allclose(states(layer)[level][0], want[0], atol=1e-5)
        np.testing.assert_allclose(states(layer)[level][1], want[1], rtol=1e-5)
        residual = residual - h @ codebook


@pytest.mark.parametrize("parts", [1, 2])
def test_a_shared_codebook_makes_one_step_for_all_levels(parts, rng):
    layer = make(3, outer={"shared": True})
    layer.build((None, 4))
    [(codebook, counts)] = states(layer)
    for _ in range(3):
        x = rng.normal(size=(40, 4)).astype("float32")
        sums = {}
        for number, part in enumerate(np.split(x, parts)):
            with micro_batches.part(number, parts, sums):
                layer(part, training=True)
        residual, pieces, chosen = x.astype("float64"), [], []
        for _ in range(3):
            h = reference.hard_e_step(residual, codebook)
            pieces.append(residual)
            chosen.append(h)
            residual = residual - h @ codebook
        codebook, counts = reference.ema_step(
            np.concatenate(pieces), np.concatenate(chosen), codebook, counts, 0.8
        )
        np.testing.assert_allclose(states(layer)[0][0], codebook, atol=1e-5)
        np.testing.assert_allclose(states(layer)[0][1], counts, rtol=1e-5)
    # Outside of a step, nothing is divided into parts.
    assert micro_batches.num_parts() == 1


def test_schedules_of_a_shared_codebook_count_steps(rng):
    schedule = keras.optimizers.schedules.PolynomialDecay(0.9, 10, 0.1)
    layer = make(3, num_samples=2, temperature=schedule, outer={"shared": True})
    for _ in range(2):
        layer(rng.normal(size=(8, 4)).astype("float32"), training=True)
    temperature = float(layer.quantizers[0].temperature.value())
    assert temperature == pytest.approx(0.9 - 2 * 0.08, rel=1e-5)


def test_prefixes_are_coarser(rng):
    layer = make(3)
    x = rng.normal(size=(5, 20, 4)).astype("float32")
    for _ in range(5):
        layer(x, training=True)
    codes = layer.encode(x)
    sums, errors = 0.0, []
    for n, level in enumerate(layer.quantizers):
        sums = sums + level.decode(codes[..., n])
        np.testing.assert_array_equal(layer.decode(codes[..., : n + 1]), sums)
        errors.append(np.mean((x - sums) ** 2))
    assert errors[0] > errors[1] > errors[2]


def test_groups_are_grouped_residual_quantization(rng):
    # Each slice is quantized as if it were alone.
    x = rng.normal(size=(30, 6)).astype("float32")
    both = make(2, groups=2)
    both.build((None, 6))
    outputs = both(x, training=True)
    assert outputs["codes"].shape == (30, 2, 2)
    for group, piece in enumerate(np.split(x, 2, axis=1)):
        one = make(2)
        one.build((None, 3))
        start = make(2, groups=2)
        start.build((None, 6))
        for level, source in zip(one.quantizers, start.quantizers, strict=True):
            level.codebook.assign(source.codebook[group][None])
        alone = one(piece, training=True)
        np.testing.assert_array_equal(outputs["codes"][:, :, group], alone["codes"])
        for level, source in zip(one.quantizers, both.quantizers, strict=True):
            np.testing.assert_allclose(
                source.codebook[group], level.codebook[0], atol=1e-6
            )


def test_losses_reach_the_inputs_from_every_level(rng):
    x = tf.constant(rng.normal(size=(20, 4)).astype("float32"))
    layer = make(3, commitment_weight=0.5)
    layer.build((None, 4))
    with tf.GradientTape() as tape:
        tape.watch(x)
        layer(x, training=False)
        loss = sum(layer.losses)
    codes, wanted = layer.encode(x), 0.0
    for n in range(1, 4):
        wanted += 0.5 * 2 * (x - layer.decode(codes[:, :n])) / x.shape.num_elements()
    np.testing.assert_allclose(tape.gradient(loss, x), wanted, atol=1e-6)


def test_quantizer_dropout_uses_the_first_levels(rng):
    layer = make(3, outer={"quantizer_dropout": 1.0, "seed": 1})
    x = rng.normal(size=(40, 4)).astype("float32")
    layer.build((None, 4))
    seen = []
    for _ in range(15):
        before = states(layer)
        codes = layer.encode(x)
        sums = [layer.decode(codes[:, :n]) for n in (1, 2, 3)]
        outputs = layer(x, training=True)
        same = [np.array_equal(outputs["quantized"], total) for total in sums]
        used = 1 + np.flatnonzero(same)
        seen.extend(used)
        # The codes are there all the same.
        np.testing.assert_array_equal(outputs["codes"], codes)
        for level, (old, new) in enumerate(zip(before, states(layer), strict=True)):
            assert np.array_equal(old[0], new[0]) == (level >= used[0])
        assert [float(loss) > 0 for loss in layer.losses] == [
            level < used[0] for level in range(3)
        ]
    assert len(seen) == 15 and set(seen) == {1, 2, 3}
    # Outside training all levels are used.
    np.testing.assert_array_equal(layer(x)["quantized"], layer.decode(layer.encode(x)))


def test_replicas_drop_the_same_levels(strategy, rng):
    with strategy.scope():
        layer = make(3, outer={"quantizer_dropout": 1.0, "seed": 1})
        layer.build((None, 4))
    x = tf.constant(rng.normal(size=(20, 4)).astype("float32"))
    step = tf.function(lambda: layer(x, training=True)["quantized"])
    for _ in range(4):
        one, other = strategy.experimental_local_results(strategy.run(step))
        np.testing.assert_array_equal(one, other)


def test_levels_have_names_and_seeds_of_their_own():
    layer = make(2, outer={"name": "sound"}, groups=layers.Projections(2))
    assert [level.name for level in layer.quantizers] == [
        "sound_level_0",
        "sound_level_1",
    ]
    names = {metric.name for metric in layer.metrics}
    assert {"sound_perplexity", "sound_level_1_perplexity"} <= names
    layer.build((None, 4))
    first, second = layer.quantizers
    assert (first.seed, second.seed) == (3, 4)
    assert np.abs(first.codebook - second.codebook).max() > 0.1
    assert np.abs(first.groups._frame - second.groups._frame).max() > 0.1


def test_a_list_gives_each_level_its_own_settings(rng):
    layer = ResidualBottleneck([VQEMBottleneck(4, decay=0.9), VQBottleneck(4)])
    assert layer.num_quantizers == 2
    outputs = layer(rng.normal(size=(9, 3)).astype("float32"), training=True)
    assert outputs["codes"].shape == (9, 2)
    assert [w.name for w in layer.trainable_weights] == ["codebook"]
    assert len(layer.codebook_weights) == 3


def test_levels_with_the_exact_posterior(rng):
    x = rng.normal(size=(40, 3)).astype("float32")
    layer = ResidualBottleneck(VQEMBottleneck(8, num_samples="exact", seed=1), 2)
    for _ in range(5):
        outputs = layer(x, training=True)
    first, second = layer.quantizers
    coarse = first.decode(layer.encode(x)[..., 0])
    np.testing.assert_array_equal(
        layer(x)["quantized"], coarse + second.decode(second.encode(x - coarse))
    )
    assert outputs["codes"].shape == (40, 2)


def test_frozen_from_the_start(rng):
    layer = make(2, outer={"trainable": False})
    layer.build((None, 4))
    before = states(layer)
    layer(rng.normal(size=(9, 4)).astype("float32"), training=True)
    for old, new in zip(before, states(layer), strict=True):
        np.testing.assert_array_equal(old[0], new[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((layers.GumbelSoftmaxBottleneck(4), 2), "nearest vector"),
        ((layers.RandomProjectionBottleneck(4), 2), "nearest vector"),
        (([], 2), "nearest vector"),
        ((VQEMBottleneck(4),), "num_quantizers"),
        (([VQEMBottleneck(4)], 2), "one layer per level"),
        (([VQEMBottleneck(4), VQEMBottleneck(8)],), "same `num_codes`"),
        (([VQEMBottleneck(4), VQEMBottleneck(4, num_samples=2)],), "`num_samples`"),
        (([VQEMBottleneck(4), VQEMBottleneck(4, groups=2)],), "same number of groups"),
        ((VQEMBottleneck(4), 2, False, 1.5), "probability"),
        ((VQEMBottleneck(4, similarity="cosine"), 2), "Cosine.*Leave out"),
        ((VQBottleneck(4, gradient="rotation"), 2), "RotationTrick.*Leave out"),
        ((VQEMBottleneck(4, groups=layers.LearnedProjections(dim=2)), 2), "learned"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ResidualBottleneck(*arguments)


def test_a_pattern_has_no_weights_yet():
    pattern = VQEMBottleneck(4)
    pattern.build((None, 2))
    with pytest.raises(ValueError, match="built already"):
        ResidualBottleneck(pattern, 2)


def test_wrong_codes():
    layer = make(2, groups=2)
    with pytest.raises(ValueError, match="no codebook yet"):
        layer.decode([[[0, 0]]])
    layer.build((None, 4))
    for shape in ((5, 3, 2), (5, 2, 3), (2,)):
        with pytest.raises(ValueError, match="n from 1 to 2"):
            layer.decode(np.zeros(shape, "int32"))
    with pytest.raises(ValueError, match="between 0 and 5"):
        layer.decode([[[0, 6]]])


def test_the_sum_of_levels_is_the_same_in_each_run(rng):
    # Additions of more than two tensors become an AddN in a graph. It begins with one
    # whose memory is free, which may be another one in the next run.
    x = tf.constant(rng.normal(size=(32, 12)), "float32")
    layer = ResidualBottleneck(VQEMBottleneck(8, decay=0.9, seed=1), 4)
    layer(x, training=True)
    step = tf.function(lambda x: layer(x, training=False)["quantized"])
    decoded = layer.decode(layer.encode(x))
    for _ in range(30):
        np.testing.assert_array_equal(step(x), decoded)
    operations = step.get_concrete_function(x).graph.get_operations()
    assert not [
        o
        for o in operations
        if o.type in ("AddN", "AddV2") and o.outputs[0].shape == x.shape
    ]
