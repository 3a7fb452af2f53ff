"""Penalties and the commitment metric, against NumPy and on replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import (
    AssignmentEntropy,
    OrthogonalCodes,
    Slices,
    VQBottleneck,
    VQEMBottleneck,
)
from keras_vqem.layers.bottlenecks import posterior
from tests.layers.bottlenecks import reference


def entropy(p):
    return -np.sum(p * np.log(np.maximum(p, 1e-300)), axis=-1)


def call(layer, x, **arguments):
    """The loss of the penalties alone, and its gradients for inputs and codebook."""
    x = tf.constant(x, "float32")
    if not layer.built:
        layer.build(x.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        layer(x, training=True, **arguments)
        penalized = layer.losses[0]
        penalties, layer.penalties = layer.penalties, []
        layer(x, training=True, **arguments)
        loss = penalized - layer.losses[0]
        layer.penalties = penalties
    found = tape.gradient(loss, [x, layer.codebook.value])
    return float(loss), *(None if g is None else tf.convert_to_tensor(g) for g in found)


@pytest.mark.parametrize("codes, dim", [(9, 3), (3, 9)])
def test_orthogonality_is_the_mean_of_squared_cosines(codes, dim, rng):
    layer = VQBottleneck(
        codes,
        groups=Slices(2),
        penalties=OrthogonalCodes(2.0),
        initializer="random_normal",
    )
    loss, _, gradient = call(layer, rng.normal(size=(5, 2 * dim)))
    u = reference.unit(layer.codebook.numpy().astype("float64"))
    cosines = u @ u.transpose(0, 2, 1) - np.eye(codes)
    assert loss == pytest.approx(2.0 * np.mean(np.sum(cosines**2, (1, 2))) / codes**2)
    # A step along it makes codes more orthogonal, and a norm does not matter.
    assert np.abs(np.sum(gradient * layer.codebook, -1)).max() < 1e-6
    layer.codebook.assign(layer.codebook - 1e-3 * gradient)
    assert call(layer, rng.normal(size=(5, 2 * dim)))[0] < loss


def test_orthogonal_codes_cost_nothing():
    layer = VQBottleneck(3, penalties=OrthogonalCodes())
    layer.build((None, 4))
    layer.codebook.assign(5.0 * np.eye(4)[None, :3])
    assert call(layer, np.ones((2, 4)))[0] == pytest.approx(0.0, abs=1e-6)
    layer.codebook.assign(np.zeros((1, 3, 4)))
    loss, _, gradient = call(layer, np.ones((2, 4)))
    assert loss == 0.0 and np.isfinite(gradient).all()


@pytest.mark.parametrize("chunked", [False, True])
def test_entropy_and_its_gradient(chunked, rng, monkeypatch):
    if chunked:  # 4 rows at a time
        monkeypatch.setattr(posterior, "LOGITS_PER_CHUNK", 4 * 6)
    x = rng.normal(size=(21, 4)).astype("float32")
    mask = rng.random(21) < 0.7
    penalty = AssignmentEntropy(0.5, diversity=0.8, temperature=0.7)
    layer = VQBottleneck(6, groups=2, penalties=[penalty])
    layer.build(x.shape)
    layer.codebook.assign(rng.normal(size=(2, 6, 2)))
    loss, to_inputs, to_codebook = call(layer, x, mask=mask)

    # The same by automatic differentiation of all of it at once.
    rows, table = tf.constant(x[mask]), layer.codebook.value
    want = 0.0
    with tf.GradientTape() as tape:
        tape.watch([rows])
        for c in range(2):
            pieces = rows[:, None, 2 * c : 2 * c + 2]
            squares = tf.reduce_sum((pieces - table[c]) ** 2, -1)
            p = tf.nn.softmax(-squares / 0.7)
            mean = tf.reduce_mean(p, 0)
            each = -tf.reduce_mean(tf.reduce_sum(p * tf.math.log(p), -1))
            want += 0.25 * (each + 0.8 * tf.reduce_sum(mean * tf.math.log(mean)))
    gradients = tape.gradient(want, [rows, table])
    assert loss == pytest.approx(float(want), rel=1e-4)
    np.testing.assert_allclose(to_inputs[mask], gradients[0], rtol=1e-3, atol=1e-6)
    assert not np.any(to_inputs[~mask])
    np.testing.assert_allclose(to_codebook, gradients[1], rtol=1e-3, atol=1e-6)
    p = reference.posterior(x[mask][:, :2], layer.codebook.numpy()[0], 0.7)
    assert entropy(p).mean() < np.log(6)  # the reference of the reference


def test_penalties_and_commitment_on_two_replicas(strategy, rng):
    x = rng.normal(size=(24, 4)).astype("float32")

    def make():
        inputs = keras.Input((4,))
        dense = keras.layers.Dense(
            4, kernel_initializer=keras.initializers.GlorotUniform(seed=1)
        )
        layer = VQBottleneck(
            5,
            initializer=keras.initializers.RandomNormal(seed=2),
            penalties=[OrthogonalCodes(0.5), AssignmentEntropy(0.5)],
        )
        model = keras.Model(inputs, layer(dense(inputs))["quantized"])
        model.compile(keras.optimizers.SGD(0.5), loss="mse")
        return model

    # 24 = 14 + 10: each half of the last batch is smaller.
    data = tf.data.Dataset.from_tensor_slices((x, x)).batch(14)
    single = make()
    with strategy.scope():
        double = make()
    runs = [model.fit(data, epochs=3, verbose=0).history for model in (single, double)]
    assert runs[0]["commitment"][-1] > 0
    for key, values in runs[0].items():
        np.testing.assert_allclose(runs[1][key], values, rtol=1e-4, err_msg=key)
    for a, b in zip(single.get_weights(), double.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [VQEMBottleneck, VQBottleneck])
def test_commitment_is_the_unweighted_error_of_the_epoch(kind, rng):
    layer = kind(5, commitment_weight=0.0, initializer="random_normal", groups=2)
    layer.build((None, 4))
    layer.trainable = False
    total, count = 0.0, 0
    for size in (10, 3):
        x = rng.normal(size=(size, 4)).astype("float32")
        mask = rng.random(size) < 0.7
        error = (x - layer(x, mask=mask, training=False)["quantized"].numpy()) ** 2
        total, count = total + error[mask].sum(), count + 4 * mask.sum()
    assert float(layer.commitment.result()) == pytest.approx(total / count, rel=1e-5)
    layer(x)  # training=None changes nothing
    assert float(layer.commitment.result()) == pytest.approx(total / count, rel=1e-5)


def test_penalties_are_saved_and_checked():
    penalties = [OrthogonalCodes(3.0), AssignmentEntropy(0.2, 0.3, 0.4)]
    layer = VQBottleneck(4, penalties=penalties)
    again = VQBottleneck.from_config(layer.get_config())
    assert [p.get_config() for p in again.penalties] == [
        {"weight": 3.0},
        {"weight": 0.2, "diversity": 0.3, "temperature": 0.4},
    ]
    with pytest.raises(ValueError, match="OrthogonalCodes.*'orthogonal'"):
        VQBottleneck(4, penalties="orthogonal")
    with pytest.raises(ValueError, match="negative"):
        OrthogonalCodes(-1.0)
    with pytest.raises(ValueError, match="above 0"):
        AssignmentEntropy(temperature=0.0)
    with pytest.raises(ValueError, match="no gradient reaches.*VQBottleneck"):
        VQEMBottleneck(4, penalties=OrthogonalCodes())
