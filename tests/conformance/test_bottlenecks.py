"""Every bottleneck on one device: built, trained, saved, compiled, masked, frozen."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.conformance.bottleneck_cases import (
    CASES,
    DIM,
    DISCRETE,
    EXACT,
    NEAREST,
    POSITIONS,
    STRAIGHT,
    compile_model,
    make_data,
    make_layer,
    make_model,
    metric_results,
    one_of_each_kind,
    quick,
    state,
)

every_bottleneck = pytest.mark.parametrize("name", quick(CASES))


def bottleneck_of(model):
    return next(layer for layer in model.layers if "bottleneck" in layer.name)


def assert_same(first, second, **tolerance):
    assert first.keys() == second.keys()
    for key in first:
        np.testing.assert_allclose(first[key], second[key], err_msg=key, **tolerance)


@every_bottleneck
def test_build_creates_all_state(name, rng):
    layer = CASES[name]()
    layer.build((None, None, DIM))
    before = [variable.path for variable in layer.variables]
    layer(make_data(rng), training=True)
    assert [variable.path for variable in layer.variables] == before
    for variable in layer.weights:
        if variable.dtype != "int32":
            assert variable.dtype == "float32"


@every_bottleneck
def test_contract(name, rng):
    layer, x = make_layer(name), make_data(rng)
    trained = layer(x, training=True)
    called = layer(x, training=False)
    bare = layer(x)
    assert list(trained) == list(called) == list(bare)
    for key in trained:
        assert trained[key].shape == called[key].shape, key
        assert trained[key].dtype == called[key].dtype, key
        np.testing.assert_array_equal(called[key], bare[key])
    np.testing.assert_array_equal(layer.decode(layer.encode(x)), called["quantized"])
    assert trained["quantized"].shape[:-1] == x.shape[:-1]
    if name in DISCRETE:
        np.testing.assert_array_equal(layer.encode(x), called["codes"])
        assert trained["samples"].shape[:-1] == trained["codes"].shape
        np.testing.assert_array_equal(
            called["samples"],
            np.repeat(called["codes"][..., None], called["samples"].shape[-1], -1),
        )
        rows = layer.assignments(trained["samples"])
        assert rows.shape == (*trained["codes"].shape, layer.num_codes)
        np.testing.assert_allclose(np.sum(rows, -1), 1.0, rtol=1e-6)
    if name in NEAREST:
        np.testing.assert_array_equal(
            layer.encode(layer.decode(called["codes"])), called["codes"]
        )


@pytest.mark.parametrize("shape", [(7, DIM), (3, 4, DIM), (2, 3, 4, DIM)])
@every_bottleneck
def test_any_rank(name, shape, rng):
    layer = make_layer(name)
    x = rng.normal(size=shape).astype("float32")
    outputs = layer(x, training=True)
    assert outputs["quantized"].shape[:-1] == shape[:-1]
    # The same vectors in another arrangement have the same codes.
    flat = layer(x.reshape(-1, DIM))["quantized"]
    np.testing.assert_array_equal(np.reshape(layer(x)["quantized"], flat.shape), flat)


@pytest.mark.parametrize("name", one_of_each_kind(CASES))
def test_fit_learns(name, rng):
    x = make_data(rng)
    model = compile_model(make_model(name))
    history = model.fit(x, {"decoded": x}, epochs=25, batch_size=16, verbose=0).history
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    assert history["nonfinite"] == [0.0] * 25
    if name in DISCRETE:
        assert 1.0 < history["perplexity"][-1] <= bottleneck_of(model).num_codes
        assert 0.0 < history["usage"][-1] <= 1.0
    results = model.evaluate(x, {"decoded": x}, verbose=0, return_dict=True)
    assert np.isfinite(list(results.values())).all()


@every_bottleneck
def test_config_round_trip(name, rng):
    layer = make_layer(name, name="codes_of_mine")
    config = json.loads(json.dumps(layer.get_config()))
    copy = type(layer).from_config(config)
    assert json.loads(json.dumps(copy.get_config())) == config
    x = make_data(rng)
    layer(x, training=True)
    copy(x)
    copy.set_weights(layer.get_weights())
    assert_same(layer(x), copy(x))


@pytest.mark.parametrize("name", one_of_each_kind(CASES))
def test_keras_round_trip(name, rng, tmp_path):
    x = make_data(rng)
    model = compile_model(make_model(name))
    model.fit(x, {"decoded": x}, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same(model.predict(x, verbose=0), loaded.predict(x, verbose=0), atol=0)
    # Training goes on as if nothing had happened. (Seeds are not in Keras' files.)
    if name in EXACT:
        for one in (model, loaded):
            one.fit(x, {"decoded": x}, epochs=1, verbose=0, shuffle=False)
        for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@every_bottleneck
def test_mixed_precision(name, policy, rng):
    layer, x = make_layer(name, dtype=policy), tf.constant(make_data(rng))
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=True)
        loss = tf.reduce_sum(tf.cast(outputs["quantized"], "float32"))
        loss = loss + sum(layer.losses)
    gradients = tape.gradient(loss, [x, *layer.trainable_weights])
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert outputs["quantized"].dtype == keras.DTypePolicy(policy).compute_dtype
    assert all(w.dtype in ("float32", "int32") for w in layer.weights)
    half = layer.compute_dtype
    # Distances are those of float32: codes equal those of the same numbers in float32.
    exact = make_layer(name)
    exact(x)
    exact.set_weights(layer.get_weights())
    rounded = keras.ops.cast(keras.ops.cast(x, half), "float32")
    if name in DISCRETE:
        np.testing.assert_array_equal(layer.encode(x), exact.encode(rounded))
    np.testing.assert_array_equal(layer.decode(layer.encode(x)), layer(x)["quantized"])


@pytest.mark.parametrize("name", one_of_each_kind(CASES))
def test_xla(name, rng):
    x = make_data(rng)
    model = compile_model(make_model(name), jit_compile=True)
    history = model.fit(x, {"decoded": x}, epochs=5, batch_size=16, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]


@every_bottleneck
def test_other_default_floats(name, rng):
    keras.config.set_floatx("float64")
    try:
        layer = make_layer(name)
        outputs = layer(make_data(rng), training=True)
        assert outputs["quantized"].dtype == "float64"
        assert all(w.dtype in ("float32", "int32") for w in layer.weights)
    finally:
        keras.config.set_floatx("float32")


@pytest.mark.parametrize("name", quick(EXACT))
def test_xla_computes_the_same(name, rng):
    # Eager and XLA draw different noise for one seed, so only exact layers compare.
    x = make_data(rng)
    plain, compiled = make_layer(name), make_layer(name)
    plain(x, training=True)
    compiled.set_weights(plain.get_weights())
    step = tf.function(lambda x: compiled(x, training=True), jit_compile=True)
    assert_same(plain(2 * x, training=True), step(2 * x), rtol=1e-5, atol=1e-6)
    assert_same(state(plain), state(compiled), rtol=1e-5, atol=1e-6)


@every_bottleneck
def test_masked_positions_change_nothing(name, rng):
    x = make_data(rng)
    mask = rng.random(x.shape[:2]) < 0.6
    mask[0] = True
    mask[1] = False

    def run(garbage):
        layer = make_layer(name)
        outputs, losses = [], []
        for _ in range(3):
            noisy = np.where(mask[..., None], x, garbage).astype("float32")
            outputs.append(layer(noisy, mask=mask, training=True))
            losses.append([float(loss) for loss in layer.losses])
        kept = [{k: np.asarray(v)[mask] for k, v in o.items()} for o in outputs]
        return kept, losses, state(layer), metric_results(layer)

    first = run(0.0)
    for garbage in (100.0 * rng.normal(size=x.shape), np.nan):
        second = run(garbage)
        for a, b in zip(first[0], second[0], strict=True):
            assert_same(a, b, atol=0)
        assert first[1] == second[1]
        assert_same(first[2], second[2], atol=0)
        assert first[3] == second[3]


@pytest.mark.parametrize("name", quick(EXACT))
def test_mask_equals_leaving_out(name, rng):
    x = make_data(rng)
    mask = rng.random(x.shape[:2]) < 0.6
    results = []
    for inputs, m in ((x, mask), (x[mask], None)):
        layer = make_layer(name)
        for _ in range(3):
            layer(inputs, mask=m, training=True)
        results.append((state(layer), float(sum(layer.losses)), metric_results(layer)))
    (a, loss_a, metrics_a), (b, loss_b, metrics_b) = results
    assert_same(a, b, rtol=1e-5, atol=1e-6)
    assert loss_a == pytest.approx(loss_b, rel=1e-5)
    assert metrics_a == pytest.approx(metrics_b, rel=1e-5)


@every_bottleneck
def test_mask_arrives_from_keras(name, rng):
    # A Masking layer before it is enough, and the mask travels on.
    inputs = keras.Input((None, DIM))
    outputs = make_layer(name)(keras.layers.Masking()(inputs))
    assert outputs["quantized"]._keras_mask is not None
    model = keras.Model(inputs, outputs)
    layer = bottleneck_of(model)
    x = make_data(rng)
    x[:, POSITIONS // 2 :] = 0.0
    model(x, training=True)
    direct = make_layer(name)
    direct(x, mask=np.any(x != 0, axis=-1), training=True)
    assert metric_results(layer) == pytest.approx(metric_results(direct), rel=1e-6)


@every_bottleneck
def test_inference_never_learns(name, rng):
    layer, x = make_layer(name), make_data(rng)
    layer(x, training=True)
    before = state(layer)
    layer(2 * x, training=False)
    layer(2 * x)
    layer.encode(2 * x)
    assert_same(before, state(layer), atol=0)


@every_bottleneck
def test_frozen_never_learns(name, rng):
    layer, x = make_layer(name), make_data(rng)
    layer(x, training=True)
    layer.trainable = False
    assert layer.trainable_weights == []
    before = state(layer)
    layer(2 * x, training=True)
    assert_same(before, state(layer), atol=0)


@every_bottleneck
def test_non_finite_vectors_are_left_out_and_counted(name, rng):
    x = make_data(rng)
    bad = x.copy()
    bad[0, 0, 0] = np.nan
    bad[1, 1] = np.inf
    bad[2, 2, 3] = -np.inf
    bad[3, 3] = 3e38  # finite, but its distances are not
    mask = np.ones(x.shape[:2], bool)
    mask[0, 0] = mask[1, 1] = mask[2, 2] = mask[3, 3] = False
    poisoned, masked = make_layer(name), make_layer(name)
    for _ in range(2):
        poisoned(bad, training=True)
        masked(x, mask=mask, training=True)
    for a, b in zip(poisoned.weights, masked.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [float(loss) for loss in poisoned.losses] == [
        float(loss) for loss in masked.losses
    ]
    # What the decoder gets is finite as well.
    for value in poisoned(bad, training=False).values():
        assert np.isfinite(value).all()
    results = metric_results(poisoned)
    assert results.pop("nonfinite") == 12.0
    masked(x, mask=mask, training=False)
    expected = metric_results(masked)
    assert expected.pop("nonfinite") == 0.0
    assert results == expected


@every_bottleneck
def test_gradient_reaches_the_inputs(name, rng):
    layer, x = make_layer(name), tf.constant(make_data(rng))
    layer(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, training=True)
        loss = tf.reduce_sum(outputs["quantized"])
    gradient = tape.gradient(loss, x).numpy()
    if name in STRAIGHT:
        np.testing.assert_array_equal(gradient, np.ones_like(gradient))
    else:
        assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


@pytest.mark.parametrize("name", quick(DISCRETE))
def test_metrics_span_the_epoch(name, rng):
    layer, x = make_layer(name), make_data(rng)
    layer.trainable = False
    layer(x)
    for batch in np.split(x, 4):
        layer(batch, training=False)
    codes = layer.encode(x).numpy().reshape(-1, layer.groups.num_codebooks)
    perplexities, used = [], []
    for column in codes.T:
        counts = np.bincount(column, minlength=layer.num_codes)
        p = counts[counts > 0] / counts.sum()
        perplexities.append(np.exp(-np.sum(p * np.log(p))))
        used.append(np.mean(counts > 0))
    results = metric_results(layer)
    assert results["perplexity"] == pytest.approx(np.mean(perplexities), rel=1e-5)
    assert results["usage"] == pytest.approx(np.mean(used), rel=1e-5)
