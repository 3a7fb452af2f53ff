"""Every public layer: built, restored from its config, saved, exported, compiled."""

import inspect
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers
from tests.conformance import bottleneck_cases, checks
from tests.conformance.layer_cases import CASES, Holder, public_name

every_layer = pytest.mark.parametrize("name", CASES)
# Those that are compiled by XLA in the quick tests too.
KINDS = ("FeedForward", "LogisticMixture", "Projections", "TransformerDecoder")
NOISY = (
    "LocalTransformer",
    "ReplicaDropout",
    "SequenceCompressor",
    "SequenceDecompressor",
    "TransformerDecoder",
    "TransformerEncoder",
)
# Bases are in the tables by their subclasses.
BASES = {"DiscreteBottleneck"}
# Functions have tests of their own, and nothing to build or save.
FUNCTIONS = {"ctc_alignment", "ctc_loss"}


def make_layer(case, arguments, **settings):
    """The layer, built; twice the same one if asked twice."""
    keras.utils.set_random_seed(1)
    layer = CASES[case].make(**settings)
    layer.build(next(iter(arguments.values())).shape)
    return checks.shake(layer)


def call(name, layer, arguments, training=False):
    return layer(**arguments, **CASES[name].options, training=training)


def call_with_gradients(name, layer, arguments, training=False):
    """Outputs, and gradients for all floating arguments and trainable weights."""
    arguments = {key: tf.convert_to_tensor(v) for key, v in arguments.items()}
    floats = [value for value in arguments.values() if value.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(floats)
        outputs = call(name, layer, arguments, training)
        loss = checks.mixed(outputs)
    sources = [*floats, *layer.trainable_weights]
    return outputs, [tf.convert_to_tensor(g) for g in tape.gradient(loss, sources)]


def make_model(name, arguments):
    """A Functional model of the layer alone."""
    inputs = {
        key: keras.Input(value.shape[1:], dtype=value.dtype.name, name=key)
        for key, value in arguments.items()
    }
    outputs = call(name, make_layer(name, arguments), inputs)
    return keras.Model(inputs, outputs)


def test_every_public_layer_is_in_a_table():
    made = {name: public_name(case.make()) for name, case in CASES.items()}
    for name, public in made.items():
        assert name.split()[0] == public
    bottlenecks = [make() for make in bottleneck_cases.CASES.values()]
    for base in BASES:
        assert any(isinstance(x, getattr(layers, base)) for x in bottlenecks)
    tables = {*made.values(), *map(public_name, bottlenecks)}
    assert sorted(tables | BASES | FUNCTIONS) == sorted(layers.__all__)


@every_layer
def test_build_creates_all_state(name, rng):
    arguments = CASES[name].arguments(rng)
    layer = make_layer(name, arguments)
    before = checks.variables(layer)
    call(name, layer, arguments, training=True)
    assert checks.variables(layer) == before
    # A layer that nobody built is built the same by its first call.
    fresh = CASES[name].make()
    call(name, fresh, arguments)
    assert checks.variables(fresh) == before


@every_layer
def test_config_round_trip(name, rng):
    arguments = CASES[name].arguments(rng)
    layer = make_layer(name, arguments, name="mine", dtype="mixed_bfloat16")
    config = json.loads(json.dumps(layer.get_config()))
    copy = type(layer).from_config(config)
    assert json.loads(json.dumps(copy.get_config())) == config
    call(name, copy, arguments)
    copy.set_weights(layer.get_weights())
    checks.assert_same(call(name, copy, arguments), call(name, layer, arguments))


@every_layer
def test_config_holds_all_arguments(name):
    made = CASES[name].make()
    public = made.part if isinstance(made, Holder) else made
    config = public.get_config()
    parameters = inspect.signature(type(public)).parameters
    own = {key: p for key, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
    assert own.keys() <= config.keys()
    if isinstance(made, Holder):  # a layer has those of keras.layers.Layer too
        assert own.keys() == config.keys()


@every_layer
def test_keras_round_trip_of_a_functional_model(name, rng, tmp_path):
    arguments = CASES[name].arguments(rng)
    model = make_model(name, arguments)
    expected = model(arguments)
    direct = call(name, make_layer(name, arguments), arguments)
    checks.assert_same(expected, direct, rtol=1e-6, atol=1e-6)
    # Sizes that are known of the inputs are known of the outputs.
    checks.assert_same_shapes(model.output, expected)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    checks.assert_same(loaded(arguments), expected)


@every_layer
def test_export(name, rng, tmp_path):
    arguments = CASES[name].arguments(rng)
    model = make_model(name, arguments)
    model.export(tmp_path / "1", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "1"))
    found = served.serve({k: tf.constant(v) for k, v in arguments.items()})
    checks.assert_same(found, model(arguments), rtol=1e-5, atol=1e-5)
    checks.assert_pure(served.signatures["serving_default"])


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@every_layer
def test_mixed_precision(name, policy, rng):
    arguments = CASES[name].arguments(rng)
    layer = make_layer(name, arguments, dtype=policy)
    assert all(weight.dtype == "float32" for weight in layer.weights)
    outputs, gradients = call_with_gradients(name, layer, arguments, training=True)
    expected = "float32" if CASES[name].float32 else layer.compute_dtype
    floats = [x for x in keras.tree.flatten(outputs) if x.dtype.is_floating]
    assert floats and {x.dtype.name for x in floats} == {expected}
    # Inputs and weights matter, whatever is rounded or dropped.
    for gradient in gradients:
        assert gradient.dtype == "float32"
        assert np.isfinite(gradient).all() and np.any(gradient)
    # About the numbers of float32.
    exact = call(name, make_layer(name, arguments), arguments)
    for a, b in zip(
        keras.tree.flatten(call(name, layer, arguments)),
        keras.tree.flatten(exact),
        strict=True,
    ):
        error = np.abs(np.asarray(a, "float64") - np.asarray(b, "float64"))
        assert error.max() <= 0.05 * np.abs(b).max()


@pytest.mark.parametrize("name", checks.slow_but(KINDS, CASES))
def test_xla_computes_the_same(name, rng):
    arguments = CASES[name].arguments(rng)
    layer = make_layer(name, arguments)

    @tf.function(jit_compile=True)
    def compiled():
        return call_with_gradients(name, layer, arguments)

    expected = call_with_gradients(name, layer, arguments)
    checks.assert_same(compiled(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NOISY)
def test_replicas_draw_different_noise(name, strategy, rng):
    arguments = CASES[name].arguments(rng)
    with strategy.scope():
        layer = make_layer(name, arguments)

    def run(training):
        # Both replicas see the same data: equal outputs would mean equal noise.
        step = tf.function(lambda: call(name, layer, arguments, training))
        outputs = strategy.experimental_local_results(strategy.run(step))
        return [np.asarray(output) for output in outputs]

    first, second = run(training=True)
    assert np.any(first != second)
    again, _ = run(training=True)
    assert np.any(first != again)
    np.testing.assert_array_equal(*run(training=False))


def test_all_layers_with_noise_are_tried_on_replicas(rng):
    noisy = set()
    for name, case in CASES.items():
        arguments = case.arguments(rng)
        layer = make_layer(name, arguments)
        outputs = [call(name, layer, arguments, training=True) for _ in range(2)]
        first, second = (keras.tree.flatten(output) for output in outputs)
        if any(np.any(a != b) for a, b in zip(first, second, strict=True)):
            noisy.add(public_name(layer))
    assert noisy == set(NOISY)
