"""Parts of a batch, on layers; on models in tests/conformance/test_public_models.py."""

import keras
import numpy as np
import tensorflow as tf

from keras_vqem import layers, micro_batches


def in_parts(parts, function):
    """Calls a function on each part, as a training step does."""
    sums = {}
    found = []
    for number, part in enumerate(parts):
        with micro_batches.part(number, len(parts), sums):
            found.append(function(part))
    return found


def test_sums_are_told_in_the_last_part():
    one, two = object(), object()

    def add(x):
        return [
            micro_batches.sum_over_parts(owner, [tf.constant(factor * x)])
            for owner, factor in ((one, 1), (two, 10))
        ]

    assert in_parts([1, 2, 3], add) == [[None, None], [None, None], [[6], [60]]]
    assert add(5) == [[5], [50]]  # a batch as a whole
    assert micro_batches.is_last() and micro_batches.num_parts() == 1


def test_a_step_that_failed_leaves_nothing_behind():
    def fail(x):
        micro_batches.sum_over_parts("codes", [tf.constant(x)])
        raise KeyError

    for _ in range(2):
        try:
            in_parts([1, 2], fail)
        except KeyError:
            pass
    found = in_parts([1, 2], lambda x: micro_batches.sum_over_parts("codes", [x]))
    assert found == [None, [3]]


def test_schedules_and_codebooks_move_once_per_step(rng):
    schedule = keras.optimizers.schedules.ExponentialDecay(2.0, 10, 0.5)
    settings = {"decay": 0.9, "temperature": schedule, "seed": 1}
    whole, divided = (layers.VQEMBottleneck(8, **settings) for _ in range(2))
    x = rng.normal(size=(40, 4)).astype("float32")
    for layer in (whole, divided):
        layer.build(x.shape)
        layer.codebook.assign(x[None, :8])
        layer.counts.assign(np.full((1, 8), 3.0))
    for _ in range(3):
        whole(x, training=True)
        in_parts([x[:7], x[7:7], x[7:]], lambda part: divided(part, training=True))
    for one, other in zip(whole.weights, divided.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=one.path)


def test_codes_get_places_part_by_part(rng):
    # Five vectors, then three more: all of the eight codes have a place at the end.
    layer = layers.VQEMBottleneck(8, seed=1)
    x = rng.normal(size=(8, 4)).astype("float32")
    first, second = in_parts(
        [x[:5], x[5:]], lambda part: layer(part, training=True)["codes"]
    )
    assert sorted([*first.numpy(), *second.numpy()]) == list(range(8))
    found = np.sort(layer.codebook[0], axis=0)
    np.testing.assert_allclose(found, np.sort(x, axis=0), rtol=1e-6)
