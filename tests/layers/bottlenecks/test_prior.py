"""A prior over codes: exact codes and draws, and what it must leave as it was."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import (
    Projections,
    SharedSlices,
    Slices,
    VQBottleneck,
    VQEMBottleneck,
)
from keras_vqem.layers.bottlenecks import posterior
from tests.conformance import checks
from tests.layers.bottlenecks import reference

CODES = 7
GROUPS = [None, Slices(2), SharedSlices(2), Projections(2, dim=2)]


def some_groupings(number):
    names = [type(groups).__name__ for groups in GROUPS[:number]]
    return pytest.mark.parametrize("groups", GROUPS[:number], ids=names)


every_grouping = some_groupings(4)


def make_inputs(rng, groups=None, lead=(5, 9), scale=3.0):
    """Vectors, and logits that often overrule distances."""
    tail = groups.code_shape if groups else ()
    x = rng.normal(size=(*lead, 6)).astype("float32")
    prior = scale * rng.normal(size=(*lead, *tail, CODES))
    return x, prior.astype("float32")


def make_layer(groups=None, layer_class=VQEMBottleneck, **settings):
    """The layer, with a codebook of unit scale; twice the same one if asked twice."""
    if layer_class is VQEMBottleneck:
        settings = {"seed": 1, "decay": 0.8, **settings}
    initializer = keras.initializers.RandomNormal(stddev=1.0, seed=2)
    layer = layer_class(CODES, groups=groups, initializer=initializer, **settings)
    layer.build((None, 6))
    return layer


def posteriors(layer, x, prior, temperature):
    """The posterior [C, M, K] of every piece by the equations, and the pieces."""
    pieces = np.asarray(layer.groups.split(np.reshape(x, (-1, 6))), "float64")
    priors = prior.reshape(-1, *layer.groups.code_shape, CODES)
    if layer.groups.num_codebooks > 1:
        priors = priors.swapaxes(0, 1)
    priors = priors.reshape(*pieces.shape[:2], CODES)
    tables = layer.codebook.numpy().astype("float64")
    p = [
        reference.posterior(piece, table, temperature, logits)
        for piece, table, logits in zip(pieces, tables, priors, strict=True)
    ]
    return np.stack(p), pieces


def by_codebook(layer, codes):
    """Codes of a layer as [C, M]."""
    codes = np.reshape(codes, (-1, *layer.groups.code_shape))
    return np.asarray(layer.groups.split_codes(codes))


@every_grouping
@pytest.mark.parametrize("temperature", [0.3, 5.0])
def test_hard_steps_follow_the_equations(groups, temperature, rng):
    layer = make_layer(groups, temperature=temperature)
    for _ in range(3):
        x, prior = make_inputs(rng, groups)
        p, pieces = posteriors(layer, x, prior, temperature)
        codebook, counts = layer.codebook.numpy(), layer.counts.numpy()
        called = layer(x, prior_logits=prior)
        encoded, nearest = layer.encode(x, prior), layer.encode(x)
        trained = layer(x, training=True, prior_logits=prior)
        for codes in (called["codes"], encoded, trained["codes"]):
            np.testing.assert_array_equal(by_codebook(layer, codes), p.argmax(-1))
        np.testing.assert_array_equal(trained["samples"][..., 0], encoded)
        np.testing.assert_array_equal(trained["quantized"], called["quantized"])
        # The prior matters, and so does the vector.
        assert np.any(encoded != nearest) and np.any(encoded != prior.argmax(-1))
        for c, codes in enumerate(p.argmax(-1)):
            h = np.eye(CODES)[codes]
            want = reference.ema_step(pieces[c], h, codebook[c], counts[c], 0.8)
            np.testing.assert_allclose(layer.codebook[c], want[0], atol=1e-5)
            np.testing.assert_allclose(layer.counts[c], want[1], rtol=1e-5)
        called, codes = layer(x, prior_logits=prior), layer.encode(x, prior)
        np.testing.assert_array_equal(layer.decode(codes), called["quantized"])


@every_grouping
def test_vq_has_the_same_rule(groups, rng):
    layer = make_layer(groups, VQBottleneck)
    x, prior = make_inputs(rng, groups)
    p, _ = posteriors(layer, x, prior, 1.0)
    for training in (True, False):
        codes = layer(x, training=training, prior_logits=prior)["codes"]
        np.testing.assert_array_equal(by_codebook(layer, codes), p.argmax(-1))


@every_grouping
@pytest.mark.parametrize("jit", [False, True])
def test_draws_follow_the_posterior(groups, jit, rng):
    # Few draws of many equal rows: XLA unrolls the draws of a row.
    layer = make_layer(groups, num_samples=4, temperature=4.0, trainable=False)
    x, prior = make_inputs(rng, groups, lead=(4, 1), scale=1.5)
    prior[..., 3] = -np.inf
    p, _ = posteriors(layer, x, prior, 4.0)
    x, prior = np.repeat(x, 1000, 1), np.repeat(prior, 1000, 1)
    step = tf.function(
        lambda: layer(x, training=True, prior_logits=prior), jit_compile=jit
    )
    outputs = step()
    codes = by_codebook(layer, outputs["codes"][:, 0])
    np.testing.assert_array_equal(codes, p.argmax(-1))
    for samples in (outputs["samples"], layer.sample(x, 4, prior)):
        # [4, 1000, G, 4] as [pieces, draws], in the order of `p`.
        drawn = np.moveaxis(np.asarray(samples), 1, -1).reshape(
            4, *layer.groups.code_shape, -1
        )
        drawn = [by_codebook(layer, d) for d in np.moveaxis(drawn, -1, 0)]
        drawn = np.stack(drawn, -1).reshape(-1, 4000)
        for row, exact in zip(drawn, p.reshape(-1, CODES), strict=True):
            seen, expected = np.bincount(row, minlength=CODES), exact * 4000
            assert seen[3] == 0
            enough = expected > 5
            statistic = np.sum((seen - expected)[enough] ** 2 / expected[enough])
            # Pearson's statistic has mean and half variance of its freedom.
            assert statistic < enough.sum() + 6 * np.sqrt(2 * enough.sum())


@every_grouping
@pytest.mark.parametrize("samples", [None, 3])
def test_a_uniform_prior_changes_nothing_to_the_bit(groups, samples, rng):
    # A temperature that is no power of 2, so that scaling would round.
    plain, given = (
        make_layer(groups, num_samples=samples, temperature=0.7) for _ in range(2)
    )
    for _ in range(3):
        # Beside numbers of this size, float32 would forget the distances.
        x, prior = make_inputs(rng, groups, scale=1e9)
        prior = np.repeat(prior[..., :1], CODES, -1)
        checks.assert_same(
            plain(x, training=True), given(x, training=True, prior_logits=prior)
        )
        checks.assert_same(plain(x), given(x, prior_logits=prior))
    checks.assert_same(plain.get_weights(), given.get_weights())


@every_grouping
@pytest.mark.parametrize("samples", [None, 3])
@pytest.mark.parametrize("dynamic", [False, True])
def test_chunks_change_nothing(groups, samples, dynamic, rng, monkeypatch):
    whole, cut = (make_layer(groups, num_samples=samples) for _ in range(2))
    x, prior = make_inputs(rng, groups)
    prior[1, 2, ..., 0] = np.nan
    expected = whole(x, training=True, prior_logits=prior)
    monkeypatch.setattr(posterior, "LOGITS_PER_CHUNK", 8 * 8)
    step = tf.function(lambda x, p: cut(x, training=True, prior_logits=p))
    if dynamic:
        step = step.get_concrete_function(
            tf.TensorSpec((None, None, 6)), tf.TensorSpec((None,) * prior.ndim)
        )
    checks.assert_same(step(tf.constant(x), tf.constant(prior)), expected, atol=1e-6)
    checks.assert_same(cut.get_weights(), whole.get_weights(), atol=1e-6)
    assert float(cut.nonfinite.result()) == 1.0


def copies(graph):
    """Elements of the largest tensor in a graph that is not the input itself."""
    same = ("Placeholder", "Identity", "StopGradient", "Reshape", "While")
    largest = 0
    for operation in graph.get_operations():
        if operation.type in ("While", "StatelessWhile"):
            for key in ("body", "cond"):
                name = operation.get_attr(key).name
                largest = max(largest, copies(graph._get_function(name).graph))
        if not operation.type.endswith(same):
            for output in operation.outputs:
                if output.shape.is_fully_defined():
                    largest = max(largest, output.shape.num_elements())
    return largest


@some_groupings(3)
@pytest.mark.parametrize("samples", [None, 3])
def test_the_prior_is_never_copied(groups, samples, monkeypatch):
    rows, codes = 64, 4096
    monkeypatch.setattr(posterior, "LOGITS_PER_CHUNK", 8 * codes)
    layer = VQEMBottleneck(codes, num_samples=samples, groups=groups, seed=1)
    layer.build((rows, 4))
    step = tf.function(lambda x, p: layer(x, training=True, prior_logits=p))
    tail = layer.groups.code_shape
    # Half precision, because a cast would be a copy too.
    prior = tf.TensorSpec((rows, *tail, codes), "float16")
    layer.dtype_policy = keras.DTypePolicy("mixed_float16")
    graph = step.get_concrete_function(tf.TensorSpec((rows, 4), "float16"), prior).graph
    assert copies(graph) < rows * codes


@every_grouping
def test_xla_computes_the_same(groups, rng):
    plain, compiled = (make_layer(groups, temperature=2.0) for _ in range(2))
    x, prior = make_inputs(rng, groups)
    for place, value in enumerate((np.nan, np.inf, -np.inf)):
        prior[place, place] = value
    prior[4, 4, ..., 5] = np.nan
    # As arguments, because XLA treats NaN in constants in another way.
    step = tf.function(
        lambda x, prior: compiled(x, training=True, prior_logits=prior),
        jit_compile=True,
    )
    expected = plain(x, training=True, prior_logits=prior)
    found = step(tf.constant(x), tf.constant(prior))
    checks.assert_same(found, expected, rtol=1e-5, atol=1e-6)
    checks.assert_same(plain.get_weights(), compiled.get_weights(), atol=1e-5)
    assert float(plain.nonfinite.result()) == float(compiled.nonfinite.result()) == 4


@every_grouping
@pytest.mark.parametrize("samples", [None, 3])
def test_rows_that_are_no_prior_leave_their_vectors_out(groups, samples, rng):
    poisoned, masked = (make_layer(groups, num_samples=samples) for _ in range(2))
    x, prior = make_inputs(rng, groups)
    bad = prior.copy()
    bad[0, 0, ..., 2] = np.nan
    bad[1, 1, ..., 2] = np.inf
    bad[2, 2] = -np.inf
    mask = np.ones(x.shape[:2], bool)
    mask[[0, 1, 2], [0, 1, 2]] = False
    outputs = poisoned(x, training=True, prior_logits=bad)
    expected = masked(x, training=True, mask=mask, prior_logits=prior)
    for key, values in outputs.items():
        np.testing.assert_array_equal(values[mask], expected[key][mask])
    checks.assert_same(poisoned.get_weights(), masked.get_weights())
    assert float(poisoned.losses[0]) == float(masked.losses[0])
    assert float(poisoned.nonfinite.result()) == 3
    assert float(masked.nonfinite.result()) == 0
    # They have the codes of a uniform prior.
    found, nearest = poisoned.encode(x, bad), poisoned.encode(x)
    np.testing.assert_array_equal(found[~mask], nearest[~mask])


def test_masked_rows_of_the_prior_change_nothing(rng):
    x, prior = make_inputs(rng)
    mask = rng.random(x.shape[:2]) < 0.6
    states = []
    for garbage in (0.0, 100.0, np.nan):
        layer = make_layer(num_samples=3)
        noisy = np.where(mask[..., None], prior, garbage * np.arange(CODES))
        layer(x, training=True, mask=mask, prior_logits=noisy.astype("float32"))
        loss = np.float32(layer.losses[0])
        metrics = [np.float32(metric.result()) for metric in layer.metrics]
        states.append([*layer.get_weights(), loss, *metrics])
    checks.assert_same(states[1], states[0])
    checks.assert_same(states[2], states[0])


def test_masks_arrive_from_keras(rng):
    # Keras itself passes a mask only to layers with a single tensor argument.
    inputs = keras.Input((None, 6)), keras.Input((None, CODES))
    layer = make_layer()
    outputs = layer(keras.layers.Masking()(inputs[0]), prior_logits=inputs[1])
    assert outputs["quantized"]._keras_mask is not None
    model = keras.Model(inputs, outputs)
    x, prior = make_inputs(rng)
    x[:, 4:] = 0.0
    model((x, prior), training=True)
    direct = make_layer()
    direct(x, training=True, mask=(x != 0).any(-1), prior_logits=prior)
    checks.assert_same(layer.get_weights(), direct.get_weights())
    assert layer.perplexity.counts.numpy().sum() == 5 * 4


@pytest.mark.parametrize("samples", [None, 50])
def test_codes_without_a_vector_are_never_chosen(samples, rng):
    layer = make_layer(num_samples=samples, temperature=10.0)
    x, prior = make_inputs(rng)
    usable = np.array([False, True, True, False, True, True, False])
    layer.counts.assign(usable[None].astype("float32"))
    prior[..., ~usable] += 1000
    prior[..., 1] = -np.inf
    allowed = usable & (np.arange(CODES) != 1)
    outputs = layer(x, training=True, prior_logits=prior)
    assert allowed[outputs["codes"]].all() and allowed[outputs["samples"]].all()
    # If all codes with a vector are forbidden, it is one of these all the same.
    prior[..., usable] = -np.inf
    outputs = layer(x, training=True, prior_logits=prior)
    assert usable[outputs["codes"]].all() and usable[outputs["samples"]].all()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_rounds_arguments_and_nothing_else(policy, rng):
    half, exact = make_layer(dtype=policy), make_layer()
    x, prior = make_inputs(rng, lead=(20_000,))

    def rounded(values):
        return keras.ops.cast(keras.ops.cast(values, half.compute_dtype), "float32")

    codes = exact.encode(rounded(x), rounded(prior))
    np.testing.assert_array_equal(half.encode(x, prior), codes)
    outputs = half(x, prior_logits=prior)
    np.testing.assert_array_equal(outputs["codes"], codes)
    np.testing.assert_array_equal(half.decode(codes), outputs["quantized"])


def test_no_gradient_reaches_the_logits(rng):
    layer = make_layer(num_samples=3)
    x, prior = (tf.constant(values) for values in make_inputs(rng))
    with tf.GradientTape() as tape:
        tape.watch((x, prior))
        outputs = layer(x, training=True, prior_logits=prior)
        loss = tf.reduce_sum(outputs["quantized"])
    to_x, to_prior = tape.gradient(loss, (x, prior))
    np.testing.assert_array_equal(to_x, np.ones_like(x))
    assert to_prior is None


@some_groupings(2)
def test_functional_model_learns_and_is_saved(groups, rng, tmp_path):
    # The layer is built by the shape of the vectors, not by that of the logits.
    layer = VQEMBottleneck(CODES, groups=groups, num_samples=2, decay=0.8, seed=1)
    inputs = keras.Input((9, 6)), keras.Input((9, 3))
    tail = layer.groups.code_shape
    logits = keras.layers.Dense(CODES * (tail or (1,))[0])(inputs[1])
    logits = keras.layers.Reshape((9, *tail, CODES))(logits)
    outputs = layer(keras.layers.Dense(6)(inputs[0]), prior_logits=logits)
    model = keras.Model(inputs, outputs)
    assert model.output["codes"].shape == (None, 9, *tail)
    model.compile("sgd", loss={"quantized": "mse"})
    data = [rng.normal(size=(32, 9, d)).astype("float32") for d in (6, 3)]
    history = model.fit(data, {"quantized": data[0]}, epochs=5, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    expected = model.predict(data, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    checks.assert_same(loaded.predict(data, verbose=0), expected)
    model.export(tmp_path / "1", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "1"))
    checks.assert_pure(served.signatures["serving_default"])
    checks.assert_same(served.serve(tuple(data)), expected, rtol=1e-5, atol=1e-6)


def test_no_rows_at_all():
    layer = make_layer(num_samples=2)
    outputs = layer(np.zeros((0, 6)), training=True, prior_logits=np.zeros((0, CODES)))
    assert outputs["codes"].shape == (0,) and outputs["samples"].shape == (0, 2)


def test_integers_and_lists_are_logits_too():
    layer = make_layer()
    x = np.zeros((2, 6), "float32")
    rows = [[0, 0, 0, 900, 0, 0, 0], [0, 0, 0, 0, 0, 0, 900]]
    for prior in (rows, np.array(rows)):
        assert layer(x, prior_logits=prior)["codes"].numpy().tolist() == [3, 6]
        assert layer.encode(x, prior).numpy().tolist() == [3, 6]


def test_wrong_logits(rng):
    plain, groups = make_layer(), make_layer(groups=2)
    x, prior = make_inputs(rng)
    ways = (
        lambda layer, wrong: layer(x, prior_logits=wrong),
        lambda layer, wrong: layer.encode(x, wrong),
        lambda layer, wrong: layer.sample(x, 2, wrong),
    )
    for way in ways:
        for wrong in (prior[0], prior[:1], prior[..., :-1], prior[..., None, :]):
            with pytest.raises(ValueError, match=r"\(5, 9, 7\).*broadcast_to"):
                way(plain, wrong)
        with pytest.raises(ValueError, match=r"\(5, 9, 2, 7\).*broadcast_to"):
            way(groups, prior)
    with pytest.raises(ValueError, match=r"\(None, 9, 7\)"):
        plain(keras.Input((9, 6)), prior_logits=keras.Input((8, 7)))
    with pytest.raises(ValueError, match="symbolic"):
        plain.encode(x, keras.Input((9, 7)))
    # Sizes that a graph does not know are checked as it runs.
    step = tf.function(plain.encode).get_concrete_function(
        tf.TensorSpec((None, 6)), tf.TensorSpec((None, CODES))
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        step(tf.zeros((5, 6)), tf.zeros((1, CODES)))
