"""Bottlenecks in models of other kinds: subclassed, compiled, masked, two in one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers
from tests.conformance import checks
from tests.conformance.bottleneck_cases import DIM, make_data


class Autoencoder(keras.Model):
    """Two bottlenecks, one of them used twice."""

    def __init__(self):
        super().__init__()
        self.top = layers.VQEMBottleneck(4, num_samples=2, name="top", seed=1)
        self.bottom = layers.VQEMBottleneck(
            8, groups=2, dead_code_threshold=0.05, name="bottom"
        )
        self.out = keras.layers.Dense(DIM)

    def call(self, x, training=None):
        first = self.top(x, training=training)["quantized"]
        second = self.top(2 * x, training=training)["quantized"]
        rest = self.bottom(x - first, training=training)["quantized"]
        return self.out(first + second + rest)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"jit_compile": True}, marks=pytest.mark.slow),
        {"run_eagerly": True},
        {"steps_per_execution": 2},
        {"accumulate": 2},
    ],
    ids=str,
)
def test_subclassed_model(settings, rng):
    x = make_data(rng, 40)
    settings = dict(settings)
    optimizer = keras.optimizers.Adam(
        0.01, gradient_accumulation_steps=settings.pop("accumulate", None)
    )
    model = Autoencoder()
    model.compile(optimizer, loss="mse", **settings)
    # 40 = 2 * 16 + 8: an uneven last batch.
    history = model.fit(x, x, epochs=4, batch_size=16, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    # Both report under their names, and every epoch starts anew.
    counts = model.top.usage.counts.numpy().sum()
    assert counts == pytest.approx(2 * x.shape[0] * x.shape[1])
    assert {"top_perplexity", "bottom_perplexity"} <= history.keys()
    losses = model.evaluate(x, x, verbose=0, return_dict=True)
    assert np.isfinite(list(losses.values())).all()


@pytest.mark.slow
def test_masked_model_compiled_by_xla(rng):
    x = make_data(rng, 40)
    x[:, 4:] = 0.0
    inputs = keras.Input((None, DIM))
    layer = layers.VQEMBottleneck(
        8, num_samples=3, groups=layers.SharedSlices(2), dead_code_threshold=0.05
    )
    quantized = layer(keras.layers.Masking()(inputs))["quantized"]
    model = keras.Model(inputs, keras.layers.Dense(DIM)(quantized))
    model.compile("adam", loss="mse", jit_compile=True)
    model.fit(x, x, epochs=1, batch_size=16, verbose=0)
    # Four positions of six, two codes each.
    assert layer.usage.counts.numpy().sum() == pytest.approx(40 * 4 * 2)


def test_exported_subclassed_model_is_pure(tmp_path, rng):
    x = make_data(rng, 8)
    model = Autoencoder()
    model.compile("adam", loss="mse")
    model.fit(x, x, verbose=0)
    model.export(tmp_path / "model", verbose=False)
    served = tf.saved_model.load(tmp_path / "model")
    checks.assert_pure(served.signatures["serving_default"])
    np.testing.assert_allclose(
        served.serve(x), model.predict(x, verbose=0), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_evaluate_and_predict_on_two_replicas(strategy, rng):
    x = make_data(rng, 21)
    single = Autoencoder()
    single.compile("adam", loss="mse")
    single.fit(x, x, verbose=0)
    with strategy.scope():
        double = Autoencoder()
        double(x)
        double.compile("adam", loss="mse")
    double.set_weights(single.get_weights())
    # 21 = 20 + 1: the last batch leaves a replica with nothing.
    np.testing.assert_allclose(
        single.predict(x, batch_size=20, verbose=0),
        double.predict(x, batch_size=20, verbose=0),
        atol=1e-6,
    )
    one, two = (
        model.evaluate(x, x, batch_size=20, verbose=0, return_dict=True)
        for model in (single, double)
    )
    for key in ("top_perplexity", "bottom_usage"):
        assert one[key] == pytest.approx(two[key], rel=1e-6)
