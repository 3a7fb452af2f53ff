"""VQEMBottleneck against the paper's equations."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import Projections, SharedSlices, Slices, VQEMBottleneck
from tests.layers.bottlenecks import reference


def blobs(rng, count=400, centres=10, dim=3):
    """Points around a few centres, float32."""
    means = 4 * rng.normal(size=(centres, dim))
    points = means[rng.integers(0, centres, count)] + rng.normal(size=(count, dim))
    return points.astype("float32")


def start_from(layer, codebook, counts=1.0):
    layer.build((None, codebook.shape[-1]))
    layer.codebook.assign(codebook[None])
    layer.counts.assign(np.broadcast_to(counts, (1, len(codebook))))
    return layer


def test_hard_steps_follow_the_equations(rng):
    x = blobs(rng)
    codebook, counts = x[:7].astype("float64"), np.ones(7)
    layer = start_from(VQEMBottleneck(7, decay=0.9), codebook)
    for batch in np.split(x, 8):
        h = reference.hard_e_step(batch, codebook)
        outputs = layer(batch, training=True)
        np.testing.assert_array_equal(outputs["codes"], h.argmax(-1))
        # The codebook as it was quantises, then it moves.
        np.testing.assert_allclose(outputs["quantized"], h @ codebook, atol=1e-5)
        codebook, counts = reference.ema_step(batch, h, codebook, counts, 0.9)
        np.testing.assert_allclose(layer.codebook[0], codebook, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.counts[0], counts, rtol=1e-5)


@pytest.mark.parametrize("samples", [1, 10])
def test_soft_steps_follow_the_equations(samples, rng):
    x = blobs(rng)
    codebook, counts = x[:7].astype("float64"), np.ones(7)
    layer = VQEMBottleneck(7, num_samples=samples, temperature=4.0, decay=0.9, seed=1)
    start_from(layer, codebook)
    for batch in np.split(x, 8):
        outputs = layer(batch, training=True)
        h = np.eye(7)[outputs["samples"]].mean(axis=1)
        np.testing.assert_allclose(layer.assignments(outputs["samples"]), h, atol=1e-6)
        np.testing.assert_allclose(
            outputs["quantized"], h @ codebook, rtol=1e-4, atol=1e-5
        )
        codebook, counts = reference.ema_step(batch, h, codebook, counts, 0.9)
        np.testing.assert_allclose(layer.codebook[0], codebook, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.counts[0], counts, rtol=1e-5)


def test_without_decay_a_hard_step_is_a_lloyd_step(rng):
    x = blobs(rng)
    # The last code is far from everything, and stays.
    codebook = np.concatenate([x[:9], [[1e3, 1e3, 1e3]]]).astype("float64")
    layer = start_from(VQEMBottleneck(10, decay=0.0), codebook)
    for _ in range(3):
        layer(x, training=True)
        codebook = reference.m_step(x, reference.hard_e_step(x, codebook), codebook)
        np.testing.assert_allclose(layer.codebook[0], codebook, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(layer.codebook[0][-1], [1e3, 1e3, 1e3])


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_repeated_hard_em_reaches_kmeans(decay, rng):
    x = blobs(rng)
    start = x[:10]
    layer = start_from(VQEMBottleneck(10, decay=decay), start)
    step = tf.function(lambda: layer(x, training=True))
    for _ in range(150):
        step()
    expected = reference.inertia(x, reference.lloyd(x, start.astype("float64")))
    assert reference.inertia(x, layer.codebook[0].numpy()) == pytest.approx(
        expected, rel=1e-3
    )


def test_assignments_converge_to_the_posterior(rng):
    x = rng.normal(size=(50, 2)).astype("float32")
    codebook = rng.normal(size=(11, 2))
    exact = reference.posterior(x, codebook, temperature=0.7)
    errors = []
    for samples in (16, 256, 4096):
        layer = VQEMBottleneck(11, num_samples=samples, temperature=0.7, seed=3)
        start_from(layer, codebook)
        rows = layer.assignments(layer(x, training=True)["samples"]).numpy()
        errors.append(np.abs(rows - exact).mean())
    # Each frequency is a binomial mean: within five sigmas, all 550 of them.
    sigma = np.sqrt(exact * (1 - exact) / samples)
    assert (np.abs(rows - exact) < 5 * sigma + 1e-3).all()
    # 16 times the samples, a quarter of the error.
    assert errors[1] < errors[0] / 3 and errors[2] < errors[1] / 3


def test_draws_harden_as_the_temperature_falls(rng):
    x = rng.normal(size=(50, 2)).astype("float32")
    schedule = keras.optimizers.schedules.PolynomialDecay(0.7, 2, 0.0)
    layer = VQEMBottleneck(11, num_samples=4096, temperature=schedule, seed=3)
    start_from(layer, rng.normal(size=(11, 2)))
    for temperature in (0.7, 0.35, 0.0):
        codebook = layer.codebook[0].numpy()
        rows = layer.assignments(layer(x, training=True)["samples"]).numpy()
        if temperature:
            exact = reference.posterior(x, codebook, temperature)
            np.testing.assert_allclose(rows, exact, atol=0.05)
        else:
            np.testing.assert_array_equal(rows, reference.hard_e_step(x, codebook))
    again = VQEMBottleneck.from_config(layer.get_config())
    again.build((None, 2))
    again.set_weights(layer.get_weights())
    assert float(again.temperature.value()) < 1e-5


def test_inference_of_soft_em_is_hard(rng):
    x = blobs(rng)
    layer = VQEMBottleneck(8, num_samples=6, temperature=10.0, seed=1)
    layer(x, training=True)
    outputs = layer(x)
    nearest = reference.hard_e_step(x, layer.codebook[0].numpy())
    np.testing.assert_array_equal(outputs["codes"], nearest.argmax(-1))
    np.testing.assert_array_equal(
        outputs["quantized"], layer.codebook[0].numpy()[outputs["codes"]]
    )


def test_sample_draws_outside_training(rng):
    x = blobs(rng, 20)
    layer = VQEMBottleneck(8, seed=1)
    layer(x, training=True)
    draws = layer.sample(x, 2000)
    rows = layer.assignments(draws).numpy()
    exact = reference.posterior(x, layer.codebook[0].numpy())
    assert np.abs(rows - exact).max() < 0.06


def test_starts_with_codebook_equal_to_sums_over_counts(rng):
    # Where other EMA codes explode (field: sums and counts that disagree at step 0).
    layer = VQEMBottleneck(16, initializer="random_normal", decay=0.999)
    layer.build((None, 4))
    before = layer.codebook.numpy()
    layer(rng.normal(size=(3, 4)).astype("float32"), training=True)
    used = layer.encode(before[0])
    np.testing.assert_array_equal(used, np.arange(16))
    moved = (layer.codebook.numpy() != before).any(-1)[0]
    assert 1 <= moved.sum() <= 3
    np.testing.assert_array_equal(layer.codebook[0][~moved], before[0][~moved])
    # A count of 1 against 0.001 of a vector: a step of a thousandth of the way.
    assert np.abs(layer.codebook.numpy() - before).max() < 0.01


def test_unused_codes_never_move(rng):
    layer = VQEMBottleneck(4, initializer="zeros", decay=0.0)
    layer.build((None, 2))
    start = np.array([[0, 0], [9, 9], [-9, 9], [9, -9]], "float32")
    layer.codebook.assign(start[None])
    for _ in range(200):
        layer(0.1 * rng.normal(size=(5, 2)).astype("float32"), training=True)
    np.testing.assert_array_equal(layer.codebook[0][1:], start[1:])
    assert (layer.counts.numpy() > 0).all()


def test_commitment_loss_and_its_gradient(rng):
    x = tf.constant(blobs(rng, 20))
    layer = start_from(VQEMBottleneck(5, commitment_weight=0.3), x[:5].numpy())
    with tf.GradientTape() as tape:
        tape.watch(x)
        q = layer(x, training=False)["quantized"]
        loss = layer.losses[0]
    difference = x.numpy() - q.numpy()
    assert float(loss) == pytest.approx(0.3 * np.mean(difference**2), rel=1e-5)
    np.testing.assert_allclose(
        tape.gradient(loss, x), 0.3 * 2 * difference / difference.size, atol=1e-6
    )


@pytest.mark.parametrize("groups", [Slices(3), SharedSlices(3), Projections(3, dim=2)])
def test_groups_are_codebooks_side_by_side(groups, rng):
    x = rng.normal(size=(40, 6)).astype("float32")
    layer = VQEMBottleneck(5, groups=groups, decay=0.8, seed=1)
    layer(x, training=True)
    codebook, counts = layer.codebook.numpy(), layer.counts.numpy()
    outputs = layer(x, training=True)

    if isinstance(groups, Projections):
        frame = layer.weights[0].numpy()
        np.testing.assert_allclose(frame.T @ frame, np.eye(6), atol=1e-6)
        pieces = (x @ frame).reshape(40, 3, 2)
    else:
        frame, pieces = np.eye(6), x.reshape(40, 3, 2)
    shared = isinstance(groups, SharedSlices)
    quantized = []
    for c in range(1 if shared else 3):
        part = pieces.reshape(-1, 2) if shared else pieces[:, c]
        h = reference.hard_e_step(part, codebook[c])
        quantized.append(h @ codebook[c])
        want, n = reference.ema_step(part, h, codebook[c], counts[c], 0.8)
        np.testing.assert_allclose(layer.codebook[c], want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.counts[c], n, rtol=1e-5)
    joined = quantized[0].reshape(40, 6) if shared else np.concatenate(quantized, -1)
    np.testing.assert_allclose(outputs["quantized"], joined @ frame.T, atol=1e-5)
    assert outputs["codes"].shape == (40, 3)


def test_metrics_carry_the_name_a_user_gave():
    names = [m.name for m in VQEMBottleneck(4).metrics]
    assert names == ["nonfinite", "perplexity", "usage", "commitment"]
    again = VQEMBottleneck.from_config(VQEMBottleneck(4).get_config())
    assert [m.name for m in again.metrics] == names
    for name in ("image_codes", "top_bottleneck"):
        own = VQEMBottleneck(4, name=name)
        assert f"{name}_perplexity" in [m.name for m in own.metrics]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_codes": 1}, "at least 2"),
        ({"num_codes": 2.5}, "whole number"),
        ({"num_samples": 0}, "None for hard EM"),
        ({"temperature": 0.0}, "num_samples=None"),
        ({"temperature": -1.0}, "above 0"),
        ({"decay": 1.0}, "trainable=False"),
        ({"commitment_weight": -1}, "Use 0"),
        ({"dead_code_threshold": 1.0}, "fraction of the average"),
        ({"groups": 0}, "at least 1"),
        ({"groups": "slices"}, "Slices, SharedSlices"),
        ({"num_codes": None}, "at least 2"),
        ({"num_samples": 2.5}, "whole number"),
        ({"num_samples": float("nan")}, "whole number"),
        ({"initializer": np.zeros((8, 4))}, "initializers.Constant"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        VQEMBottleneck(**{"num_codes": 8, **arguments})


def test_wrong_inputs(rng):
    layer = VQEMBottleneck(8)
    with pytest.raises(ValueError, match=r"x\[None\]"):
        layer(np.zeros(4, "float32"))
    with pytest.raises(ValueError, match="no codebook yet"):
        layer.decode([0])
    layer(np.zeros((2, 4), "float32"))
    with pytest.raises(ValueError, match="built for vectors of size 4"):
        layer(np.zeros((2, 5), "float32"))
    with pytest.raises(ValueError, match="built for vectors of size 4"):
        layer.encode(np.zeros((2, 5), "float32"))
    with pytest.raises(ValueError, match="one value per vector"):
        layer(np.zeros((2, 3, 4), "float32"), mask=np.ones(2, bool))
    with pytest.raises(ValueError, match="one value per vector"):
        layer(np.zeros((2, 3, 4), "float32"), mask=[[True], [False]])
    with pytest.raises(ValueError, match="at least 1"):
        layer.sample(np.zeros((2, 4), "float32"), 0)
    with pytest.raises(ValueError, match="symbolic"):
        layer.encode(keras.Input((4,)))
    with pytest.raises(ValueError, match="`sample` takes tensors"):
        layer.sample(keras.Input((4,)), 2)
    with pytest.raises(ValueError, match="symbolic"):
        layer.decode(keras.Input((), dtype="int32"))
    with pytest.raises(ValueError, match="divides 4"):
        VQEMBottleneck(8, groups=3)(np.zeros((2, 4), "float32"))
    with pytest.raises(ValueError, match=r"num_groups \* dim <= 4"):
        VQEMBottleneck(8, groups=Projections(3, dim=2))(np.zeros((2, 4), "float32"))


def test_wrong_codes():
    layer = VQEMBottleneck(8, groups=2)
    layer(np.zeros((2, 4), "float32"))
    with pytest.raises(ValueError, match="from 0 to 8"):
        layer.decode([[0, 8]])
    with pytest.raises(ValueError, match="between 0 and 7"):
        layer.decode([[0, -1]])
    with pytest.raises(ValueError, match="integers"):
        layer.decode([[0.0, 1.0]])
    with pytest.raises(ValueError, match=r"\[..., 2\]"):
        layer.decode([0, 1, 2])
    graph = tf.function(layer.decode)
    np.testing.assert_array_equal(graph([[7, 0]]), layer.decode([[7, 0]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="between 0 and 7"):
        graph(tf.constant([[0, 8]]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int64"])
def test_codes_of_any_integer_type(dtype, rng):
    # uint8 is the natural store of 256 codes, which it cannot count to.
    layer = VQEMBottleneck(256, initializer="random_normal")
    layer.build((None, 3))
    codes = np.array([[0, 1, 127]], dtype)
    expected = layer.codebook[0].numpy()[codes.astype("int64")]
    for decode in (layer.decode, tf.function(layer.decode)):
        np.testing.assert_array_equal(decode(tf.constant(codes)), expected)
    rows = layer.assignments(codes)
    np.testing.assert_array_equal(np.flatnonzero(rows[0]), [0, 1, 127])


def test_assignments_of_what_is_no_code():
    with pytest.raises(ValueError, match="between 0 and 2"):
        VQEMBottleneck(3).assignments([[3], [0]])


def test_numpy_numbers_are_welcome():
    layer = VQEMBottleneck(np.int64(4), np.int64(2), groups=np.int64(2))
    outputs = layer(np.eye(2), training=True)
    assert outputs["samples"].shape == (2, 2, 2)


def test_integer_vectors_become_floats():
    layer = VQEMBottleneck(2, num_samples=3, temperature=10.0, seed=1)
    outputs = layer(np.array([[0, 0], [9, 9], [1, 0], [9, 8]]), training=True)
    assert outputs["quantized"].dtype == "float32"


def test_checkpoint_names_are_stable():
    # What a saved model depends on.
    layer = VQEMBottleneck(4, groups=Projections(2))
    layer.build((None, 6))
    assert [(w.name, tuple(w.shape)) for w in layer.weights] == [
        ("projection", (6, 6)),
        ("vectors", (2, 4, 3)),
        ("counts", (2, 4)),
    ]
    assert layer.trainable_weights == []
    assert isinstance(layer.codebook, keras.Variable)
