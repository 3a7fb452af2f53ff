"""Where codes come from: seeding by the first data, and revival."""

import numpy as np
import tensorflow as tf

from keras_vqem.layers import Slices, VQEMBottleneck


def rows_of(codebook, data):
    """For each code the index of the data vector it equals, -1 if none."""
    equal = (codebook[:, None] == data[None]).all(-1)
    return np.where(equal.any(-1), equal.argmax(-1), -1)


def seeded(layer, x, **call):
    """Codebook and counts as a step finds them: seeded, before it learns."""
    if not layer.built:
        layer.build(x.shape)
    pieces = layer.groups.split(x.reshape(-1, x.shape[-1]))
    keep = np.ones(len(pieces[0]), "float32") if not call else call["keep"]
    keep = layer.groups.split_rows(tf.constant(keep))
    state = layer.ema.seed(pieces, keep, tf.reduce_sum(keep[0])[None])
    return [np.asarray(x) for x in state]


def test_first_batch_places_every_code(rng):
    x = rng.normal(size=(50, 3)).astype("float32")
    codebook, counts = seeded(VQEMBottleneck(20, seed=1), x)
    rows = rows_of(codebook[0], x)
    # Distinct vectors, spread over the whole batch.
    assert len(set(rows)) == 20 and rows.min() >= 0
    assert np.diff(np.sort(rows)).max() <= 4
    assert (counts > 0).all()


def test_groups_are_seeded_from_their_own_slices(rng):
    x = rng.normal(size=(30, 6)).astype("float32")
    codebook, _ = seeded(VQEMBottleneck(8, groups=Slices(2), seed=1), x)
    for c in range(2):
        assert rows_of(codebook[c], x[:, 3 * c : 3 * c + 3]).min() >= 0


def test_masked_vectors_are_never_seeds(rng):
    x = rng.normal(size=(50, 3)).astype("float32")
    keep = (rng.random(50) < 0.5).astype("float32")
    codebook, _ = seeded(VQEMBottleneck(20, seed=1), x, keep=keep)
    rows = rows_of(codebook[0], x)
    assert len(set(rows)) == 20 and keep[rows].all()


def test_fewer_vectors_than_codes_fill_up_over_batches(rng):
    layer = VQEMBottleneck(20, seed=1, decay=0.999)
    for batch in range(3):
        x = rng.normal(size=(8, 3)).astype("float32")
        outputs = layer(x, training=True)
        placed = (layer.counts.numpy()[0] > 0).sum()
        assert placed == min(8 * (batch + 1), 20)
        # Codes without a place are never used.
        used = np.unique(np.concatenate([outputs["codes"], layer.encode(x)]))
        assert (layer.counts.numpy()[0][used] > 0).all()
    # Each vector became a code: the last one is exact.
    assert placed == 20


def test_first_batch_with_nothing_in_it_waits(rng):
    layer = VQEMBottleneck(4, seed=1)
    x = rng.normal(size=(6, 3)).astype("float32")
    layer(x, mask=np.zeros(6, bool), training=True)
    assert (layer.counts.numpy() == 0).all()
    assert np.isfinite(layer(x)["quantized"]).all()
    layer(x, training=True)
    assert (layer.counts.numpy() > 0).all()


def test_first_steps_weigh_batches_equally(rng):
    # With no memory of the start and a decay near 1, a code that two batches went to
    # lies at the mean of both.
    layer = VQEMBottleneck(2, seed=1, decay=0.9999)
    near, far, later = (rng.normal(size=(25, 2)).astype("float32") for _ in range(3))
    layer(np.concatenate([near, far + 100]), training=True)
    layer(later, training=True)
    codebook = layer.codebook[0].numpy()
    codebook = codebook[codebook[:, 0].argsort()]
    want = np.concatenate([near, later]).mean(0), (far + 100).mean(0)
    np.testing.assert_allclose(codebook, want, atol=1e-3)


def dead_layer(dead_code_threshold, decay=0.9):
    layer = VQEMBottleneck(
        4,
        initializer="zeros",
        decay=decay,
        dead_code_threshold=dead_code_threshold,
        seed=1,
    )
    layer.build((None, 2))
    start = np.array([[0, 0], [1, 1], [500, 500], [-500, 500]], "float32")
    layer.codebook.assign(start[None])
    return layer, start


def test_dead_codes_are_revived_and_stay(rng):
    layer, start = dead_layer(dead_code_threshold=0.1)
    x = rng.normal(size=(40, 2)).astype("float32")
    for _ in range(60):
        layer(x, training=True)
    codebook = layer.codebook[0].numpy()
    assert np.abs(codebook).max() < 10
    # Its averages were reset with it, so nothing draws it back.
    for _ in range(20):
        layer(x, training=True)
    assert np.abs(layer.codebook.numpy()).max() < 10
    np.testing.assert_array_equal(np.unique(layer.encode(x)), np.arange(4))


def test_without_revival_dead_codes_stay_dead(rng):
    layer, start = dead_layer(dead_code_threshold=0.0)
    for _ in range(60):
        layer(rng.normal(size=(40, 2)).astype("float32"), training=True)
    np.testing.assert_array_equal(layer.codebook[0][2:], start[2:])


def test_a_revived_code_starts_with_the_average_count(rng):
    layer, _ = dead_layer(dead_code_threshold=0.5)
    layer.counts.assign([[5.0, 5.0, 0.01, 5.0]])
    x = rng.normal(size=(40, 2)).astype("float32")
    vectors, counts = seeded(layer, x)
    np.testing.assert_allclose(counts, [[5.0, 5.0, 15.01 / 4, 5.0]], rtol=1e-6)
    assert rows_of(vectors[0], x)[2] >= 0
    np.testing.assert_array_equal(vectors[0][3], [-500, 500])


def test_frozen_codebook_is_not_seeded(rng):
    layer = VQEMBottleneck(4, trainable=False)
    layer(rng.normal(size=(10, 3)).astype("float32"), training=True)
    assert (layer.counts.numpy() == 0).all()
