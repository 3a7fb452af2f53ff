"""What the layers warn of, and where they must be silent."""

import contextlib
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers
from keras_vqem.layers import VQEMBottleneck
from tests.conformance.bottleneck_cases import CASES, DIM

X = np.random.default_rng(0).normal(size=(64, DIM)).astype("float32")


@contextlib.contextmanager
def silence():
    """Turns each of our warnings into an error."""
    with warnings.catch_warnings():
        module = "keras_vqem.layers.bottlenecks.notices"
        warnings.filterwarnings("error", category=UserWarning, module=module)
        yield


class Forgetful(keras.Model):
    """A model whose `call` does not take `training`."""

    def __init__(self, bottleneck):
        super().__init__()
        self.bottleneck = bottleneck
        self.decoder = keras.layers.Dense(DIM)

    def call(self, inputs):
        return self.decoder(self.bottleneck(inputs)["quantized"])


class Telling(Forgetful):
    def call(self, inputs, training=None):
        return super().call(inputs)


class Inference(Forgetful):
    def call(self, inputs, training=None):
        return self.decoder(self.bottleneck(inputs, training=False)["quantized"])


class OwnStep(Telling):
    """A model whose training step does not say that it is one."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def fit(model, **settings):
    model.compile("adam", "mse", **settings)
    model.fit(X, X, batch_size=32, epochs=2, verbose=0)


@pytest.mark.parametrize("eager", [False, True], ids=["graph", "eager"])
@pytest.mark.parametrize("kind", [Forgetful, OwnStep])
def test_a_training_step_that_is_not_told_is_noticed_once(kind, eager):
    layer = VQEMBottleneck(8)
    model = kind(layer)
    with pytest.warns(UserWarning, match="def call.*training=None") as found:
        fit(model, run_eagerly=eager)
    assert len([w for w in found if "gradients are recorded" in str(w.message)]) == 1
    assert not np.any(layer.codebook)  # It was worth a warning.


@pytest.mark.parametrize("case", CASES)
def test_every_bottleneck_notices_that_it_was_not_told(case):
    layer = CASES[case]()
    layer.build(X.shape)
    with pytest.warns(UserWarning, match="gradients are recorded"):
        with tf.GradientTape():
            layer(X)
    frozen = CASES[case](trainable=False)
    frozen.build(X.shape)
    with silence(), tf.GradientTape():
        frozen(X)


def warnings_of(use):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        use()
    return [str(x.message) for x in found if "ottleneck" in str(x.message)]


@pytest.mark.parametrize("shared", [False, True])
def test_a_residual_bottleneck_warns_for_its_levels(shared):
    def make():
        pattern = VQEMBottleneck(65, decay=0.9, seed=0)
        layer = layers.ResidualBottleneck(pattern, 2, shared=shared, name="codes")
        layer.build(X.shape)
        return layer

    layer = make()
    [message] = warnings_of(lambda: layer.encode(X))
    assert message.startswith("ResidualBottleneck 'codes' is used before its codebook")
    assert not warnings_of(lambda: layer.decode(layer.encode(X)))
    # All levels of a shared codebook are one batch of 128 vectors.
    found = warnings_of(lambda: make()(X, training=True))
    assert len(found) == (0 if shared else 1)
    assert shared or "a batch has 64 vectors for 65 codes" in found[0]
    with tf.GradientTape():
        [message] = warnings_of(lambda: make()(X))
    assert message.startswith("ResidualBottleneck 'codes' is called while gradients")


@pytest.mark.parametrize("strategy_name", [None, "one device"])
def test_a_model_that_passes_training_on_is_silent(strategy_name, tmp_path):
    scope = contextlib.nullcontext()
    if strategy_name:
        scope = tf.distribute.OneDeviceStrategy("CPU:0").scope()
    with silence(), scope:
        model = Telling(VQEMBottleneck(8))
        model.build(X.shape)
        model.summary(print_fn=lambda *_, **__: None)
        model(X[:1])  # often done to build a model
        model.export(tmp_path / "untrained", verbose=False)
        fit(model)
        model.evaluate(X, X, verbose=0)
        model.predict(X, verbose=0)
        model.bottleneck.decode(model.bottleneck.encode(X))
        # Inference that is differentiated, and says so.
        with tf.GradientTape():
            model(X, training=False)


@pytest.mark.parametrize(
    "use",
    [
        lambda layer: layer.encode(X),
        lambda layer: layer.sample(X, 2),
        lambda layer: layer.decode([0]),
        lambda layer: [layer(X) for _ in range(2)],
        lambda layer: layer(X, training=False),
        lambda layer: fit(Inference(layer)),
        lambda layer: Telling(layer).predict(X, verbose=0),
    ],
    ids=["encode", "sample", "decode", "call", "False", "fit", "predict"],
)
def test_an_empty_codebook_is_told_once(use):
    layer = VQEMBottleneck(8)
    layer.build(X.shape)
    with pytest.warns(UserWarning, match="initializer") as found:
        use(layer)
        use(layer)
    assert len([w for w in found if "seen any data" in str(w.message)]) == 1


@pytest.mark.parametrize(
    "layer",
    [VQEMBottleneck(8, initializer="random_normal"), layers.VQBottleneck(8)],
    ids=lambda layer: type(layer).__name__,
)
def test_a_codebook_from_an_initializer_is_never_empty(layer):
    with silence():
        layer.encode(X)
        layer(X, training=False)


def test_loaded_weights_are_no_empty_codebook():
    trained, loaded = (VQEMBottleneck(8, seed=0) for _ in range(2))
    trained(X, training=True)
    loaded.build(X.shape)
    loaded.set_weights(trained.get_weights())
    with silence():
        loaded.encode(X)


@pytest.mark.parametrize("groups, vectors", [(None, 7), (2, 7), ("shared", 3)])
def test_a_batch_with_fewer_vectors_than_codes_is_told(groups, vectors):
    groups = layers.SharedSlices(2) if groups == "shared" else groups
    layer = VQEMBottleneck(8, groups=groups)
    with pytest.warns(UserWarning, match=f"a batch has {7 if vectors == 7 else 6} v"):
        layer(X[:vectors], training=True)
    with silence():
        layer(X[:vectors], training=True)  # told once
        VQEMBottleneck(8, groups=groups)(X[:8], training=True)


def test_an_epoch_with_fewer_vectors_than_codes_is_told():
    layer = VQEMBottleneck(100)
    model = Telling(layer)
    fit(model)  # of 32 vectors a batch, which Keras does not tell when it traces
    layer.counts.assign(layer.counts * (np.arange(100) < 64))
    with pytest.warns(UserWarning, match="36 of 100 codes without a vector"):
        model.evaluate(X, X, verbose=0)


@pytest.mark.parametrize(
    "shape, told",
    [
        ((None, 64, 8, 8), True),
        ((2, 4, 8, 8), True),
        ((None, 8, 8, 64), False),
        ((None, 8, 8, 8), False),
        ((None, 8, 16, 64), False),
        ((None, None, None, 64), False),
        ((None, 64, 8), False),
        ((None, 6, 4, 4, 4), False),
    ],
)
def test_channels_first_are_told(shape, told):
    layer = VQEMBottleneck(8)
    with pytest.warns(UserWarning, match="Permute") if told else silence():
        layer.build(shape)


def test_channels_first_of_the_configuration_are_told():
    keras.config.set_image_data_format("channels_first")
    try:
        with pytest.warns(UserWarning, match="Permute"):
            VQEMBottleneck(8).build((None, 8, 8, 64))
    finally:
        keras.config.set_image_data_format("channels_last")


def test_the_remedy_for_channels_first_keeps_shapes():
    inputs = keras.Input((64, 8, 8))
    with silence():
        x = keras.layers.Permute((2, 3, 1))(inputs)
        x = VQEMBottleneck(8)(x)["quantized"]
    assert keras.layers.Permute((3, 1, 2))(x).shape == inputs.shape


def test_a_layer_that_is_given_the_whole_dict_names_its_parts():
    parts = [keras.Input((4,)), VQEMBottleneck(8, name="vq"), keras.layers.Dense(3)]
    with pytest.raises(ValueError, match=r"received 3.*name=vq\[\"quantized\"\]"):
        keras.Sequential(parts)
