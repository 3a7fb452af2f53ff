"""The start by k-means: against NumPy, on replicas, and against a start from data."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import Cosine, Euclidean, Slices, VQBottleneck, VQEMBottleneck
from keras_vqem.layers.bottlenecks import kmeans, starts
from tests.layers.bottlenecks import reference


def clusters(rng, count=600, centres=12, dim=3):
    means = 10 * rng.normal(size=(centres, dim))
    points = means[rng.integers(0, centres, count)] + rng.normal(size=(count, dim))
    return points.astype("float32")


def lloyd(x, start, steps, prepare=lambda x: x):
    """Steps of k-means; the centres that `prepare` gives are those compared."""
    for _ in range(steps):
        start = reference.m_step(x, reference.hard_e_step(x, prepare(start)), start)
    return start


@pytest.mark.parametrize("similarity", [Euclidean(), Cosine()])
def test_kmeans_is_that_of_numpy(similarity, rng):
    x = np.asarray(similarity.prepare(clusters(rng)))
    keep = (rng.random(len(x)) < 0.8).astype("float32")
    uniforms = rng.random(9).astype("float32")
    chosen = reference.plus_plus(x[keep > 0].astype("float64"), uniforms)
    start = x[keep > 0][chosen].astype("float64")
    found, placed = kmeans.plus_plus(x, keep, tf.constant(uniforms))
    np.testing.assert_array_equal(x[found], start.astype("float32"))
    assert np.all(placed) and len(set(chosen)) == 9

    prepare = reference.unit if isinstance(similarity, Cosine) else lambda x: x
    want = lloyd(x[keep > 0].astype("float64"), start, kmeans.STEPS, prepare)
    for function in (kmeans.kmeans, kmeans.compiled):
        centres, counts, placed = function(
            tf.constant(x),
            tf.constant(keep),
            tf.constant(uniforms),
            similarity.prepare,
        )
        np.testing.assert_allclose(centres, want, rtol=1e-4, atol=1e-4)
        assert np.sum(counts) == keep.sum() and np.all(placed)


@pytest.mark.parametrize("kind", [VQEMBottleneck, VQBottleneck])
def test_adapt(kind, rng):
    x = clusters(rng, dim=4).reshape(20, 30, 4)
    bad = np.concatenate([x, np.full_like(x[:1], np.nan)])
    layers = [kind(9, groups=Slices(2), initializer="kmeans", seed=3) for _ in range(3)]
    layers[0].adapt(x)
    layers[1].adapt(bad)
    layers[2].adapt(tf.data.Dataset.from_tensor_slices(bad).batch(4))
    for layer in layers[1:]:
        np.testing.assert_allclose(layer.codebook, layers[0].codebook, atol=1e-5)
    uniforms = keras.random.uniform((2, 9), seed=keras.random.SeedGenerator(3))
    for c in range(2):
        piece = x.reshape(-1, 4)[:, 2 * c : 2 * c + 2].astype("float64")
        start = piece[reference.plus_plus(piece, uniforms[c].numpy())]
        want = lloyd(piece, start, kmeans.STEPS)
        np.testing.assert_allclose(layers[0].codebook[c], want, rtol=1e-4, atol=1e-4)
    if kind is VQEMBottleneck:
        # On average 1, in proportion to use, so that dead codes are known at once.
        counts = layers[0].counts.numpy()
        np.testing.assert_allclose(counts.mean(-1), 1.0, rtol=1e-6)
        used = np.bincount(layers[0].encode(x)[..., 0].numpy().ravel(), minlength=9)
        np.testing.assert_allclose(counts[0], 9 * used / used.sum(), rtol=0.05)
    # Training goes on from there, and does not start again.
    before = layers[0].codebook.numpy()
    layers[0](0.5 * x, training=True)
    assert np.abs(layers[0].codebook.numpy() - before).max() < 1.0
    steps = kind(9, seed=3)
    steps.adapt(tf.data.Dataset.from_tensor_slices(x).batch(4).repeat(), steps=2)
    few = kind(9, seed=3)
    few.adapt(x[:8])
    np.testing.assert_allclose(steps.codebook, few.codebook, atol=1e-5)


def test_adapt_needs_vectors(rng):
    layer = VQEMBottleneck(8, initializer="kmeans")
    x = rng.normal(size=(7, 2)).astype("float32")
    with pytest.raises(ValueError, match="7 finite vectors for 8 codes"):
        layer.adapt(x)
    with pytest.raises(ValueError, match="distinct vectors.* 7 for 8 codes"):
        layer.adapt(np.repeat(x, 2, axis=0))
    assert not np.any(layer.counts)
    data = tf.data.Dataset.from_tensor_slices((x, x)).batch(2)
    with pytest.raises(ValueError, match="lambda x, y: encoder"):
        layer.adapt(data)
    with pytest.raises(ValueError, match="number of batches"):
        layer.adapt(x, steps=2)
    with pytest.raises(ValueError, match="without batches"):
        layer.adapt(data.map(lambda x, y: x).take(0))


@pytest.mark.parametrize("kind", [VQEMBottleneck, VQBottleneck])
def test_the_first_batch_beats_a_start_from_data(kind, rng):
    errors = {"kmeans": [], "data": []}
    for trial in range(3):
        x = clusters(rng)
        for initializer, found in errors.items():
            layer = kind(12, initializer=initializer, seed=trial)
            assert not np.any(layer(x)["quantized"])
            outputs = layer(x, training=True)
            found.append(np.mean((x - outputs["quantized"]) ** 2))
            # Stored, and not done again.
            after = layer(x, training=False)["quantized"]
            assert np.mean((x - after) ** 2) <= found[-1] + 1e-5
    assert np.all(np.array(errors["kmeans"]) < 0.9 * np.array(errors["data"]))


def test_the_weight_of_a_gradient_codebook_is_what_the_step_used(rng):
    x = clusters(rng)
    layer = VQBottleneck(12, initializer="kmeans", seed=1)
    layer.build(x.shape)
    with tf.GradientTape() as tape:
        outputs = layer(x, training=True)
        loss = layer.losses[0]
    table = layer.codebook[0].numpy()
    codes = outputs["codes"].numpy()
    np.testing.assert_array_equal(outputs["quantized"], table[codes])
    want = np.zeros_like(table)
    np.add.at(want, codes, 2 * (table[codes] - x) / x.size)
    np.testing.assert_allclose(tape.gradient(loss, layer.codebook)[0], want, atol=1e-5)


@pytest.mark.parametrize("kind", [VQEMBottleneck, VQBottleneck])
def test_fewer_vectors_than_codes_fill_up_over_batches(kind, rng):
    layer = kind(20, initializer="kmeans", seed=1)
    for batch in range(3):
        x = rng.normal(size=(8, 3)).astype("float32")
        outputs = layer(x, training=True)
        counts = (layer.counts if kind is VQEMBottleneck else layer.placed).numpy()[0]
        assert (counts > 0).sum() == min(8 * (batch + 1), 20)
        assert (counts[np.unique(outputs["codes"])] > 0).all()
        if batch < 2:
            np.testing.assert_allclose(outputs["quantized"], x, atol=1e-6)


def test_a_first_batch_with_nothing_in_it_waits(rng):
    layer = VQEMBottleneck(4, initializer="kmeans", seed=1)
    x = rng.normal(size=(6, 3)).astype("float32")
    layer(x, mask=np.zeros(6, bool), training=True)
    assert not np.any(layer.counts)
    layer(x, training=True)
    assert np.all(layer.counts.numpy() > 0)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("kind", [VQEMBottleneck, VQBottleneck])
def test_replicas_find_the_centres_of_the_whole_batch(
    strategy, kind, bounded, rng, monkeypatch
):
    if bounded:  # 8 * 6 of the 70 vectors are looked at
        monkeypatch.setattr(starts, "VECTORS_PER_CODE", 8)
    x = clusters(rng, 100).reshape(100, 3)
    mask = rng.random(100) < 0.7
    settings = {"initializer": "kmeans", "groups": None, "seed": 1}
    single = kind(6, **settings)
    with strategy.scope():
        double = kind(6, **settings)
        double.build((None, 3))

    @tf.function
    def step(x, mask):
        return double(x, mask=mask, training=True)["quantized"]

    parts = [slice(0, 63), slice(63, 100)]
    for scale in (1.0, 1.1):
        expected = single(scale * x, mask=mask, training=True)["quantized"]
        arguments = (
            strategy.experimental_distribute_values_from_function(
                lambda context, values=values: tf.constant(
                    values[parts[context.replica_id_in_sync_group]]
                )
            )
            for values in ((scale * x).astype("float32"), mask)
        )
        found = strategy.experimental_local_results(
            strategy.run(step, args=tuple(arguments))
        )
        np.testing.assert_allclose(
            np.concatenate(found), expected, rtol=1e-5, atol=1e-5
        )
        for weight, want in zip(double.weights, single.weights, strict=True):
            for copy in strategy.experimental_local_results(weight.value):
                np.testing.assert_allclose(copy, want, rtol=1e-5, atol=1e-5)
