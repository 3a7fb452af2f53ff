"""Every bottleneck on two replicas, against one replica with the whole batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers, micro_batches
from tests.conformance import checks
from tests.conformance.bottleneck_cases import (
    CASES,
    DISCRETE,
    EMA,
    SAMPLED,
    compile_model,
    make_data,
    make_layer,
    make_model,
    metric_results,
    one_of_each_kind,
    quick,
)
from tests.layers.bottlenecks import reference


def per_replica_weights(strategy, layer):
    """The layer's weights as each replica holds them."""
    copies = [
        [np.asarray(c) for c in strategy.experimental_local_results(w.value)]
        for w in layer.weights
    ]
    return list(zip(*copies, strict=True))


def run_replicated(strategy, layer, parts, **arguments):
    """One training step; `parts` and call arguments hold each replica's batch."""

    @tf.function
    def step(x, **arguments):
        return layer(x, training=True, **arguments)

    def distribute(values):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(values[context.replica_id_in_sync_group])
        )

    outputs = strategy.run(
        step,
        args=(distribute(parts),),
        kwargs={key: distribute(values) for key, values in arguments.items()},
    )
    return {k: strategy.experimental_local_results(v) for k, v in outputs.items()}


def halves(x, sizes):
    return np.split(x, np.cumsum(sizes)[:-1])


def assert_two_replicas_equal_one(strategy, name, given, rng):
    # An even batch, an uneven last one, and one that leaves a replica with nothing.
    batches = [
        (make_data(rng, sum(sizes)), sizes) for sizes in ((8, 8), (5, 2), (3, 0))
    ]
    single = make_layer(name)
    with strategy.scope():
        double = make_layer(name)
    double.set_weights(single.get_weights())
    for x, sizes in batches:
        prior_logits = 3 * rng.normal(size=(*single.encode(x).shape, single.num_codes))
        prior_logits[0, 0] = np.nan
        arguments = {
            "mask": rng.random(x.shape[:2]) < 0.7,
            "prior_logits": prior_logits.astype("float32"),
        }
        arguments = {key: arguments[key] for key in given}
        expected = single(x, training=True, **arguments)
        parts = {key: halves(values, sizes) for key, values in arguments.items()}
        outputs = run_replicated(strategy, double, halves(x, sizes), **parts)
        for key in expected:
            np.testing.assert_allclose(
                np.concatenate(outputs[key]), expected[key], rtol=1e-6, atol=1e-6
            )
        for copy in per_replica_weights(strategy, double):
            for got, want in zip(copy, single.weights, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    assert metric_results(double) == pytest.approx(metric_results(single), rel=1e-6)


@pytest.mark.parametrize("given", [(), ("mask",), ("prior_logits",)], ids=str)
@pytest.mark.parametrize("name", quick([n for n in EMA if not n.startswith("soft")]))
def test_two_replicas_equal_one(strategy, name, given, rng):
    assert_two_replicas_equal_one(strategy, name, given, rng)


@pytest.mark.parametrize("name", ["residual", "residual_shared"])
def test_two_replicas_equal_one_at_all_levels(strategy, name, rng):
    assert_two_replicas_equal_one(strategy, name, ("mask",), rng)


def test_parts_of_a_batch_on_two_replicas(strategy, rng):
    # Codes get places in the first part, and dead ones later on.
    settings = {"decay": 0.5, "dead_code_threshold": 0.3, "seed": 1}
    single = layers.VQEMBottleneck(8, **settings)
    with strategy.scope():
        double = layers.VQEMBottleneck(8, **settings)
        double.build((None, None, 4))

    def in_parts(layer, parts):
        sums = {}
        for number, part in enumerate(parts):
            with micro_batches.part(number, len(parts), sums):
                layer(part, training=True)

    @tf.function
    def step(*parts):
        strategy.run(lambda *parts: in_parts(double, parts), args=parts)

    for _ in range(3):
        shares = rng.normal(size=(3, 2, 4, 3, 4)).astype("float32")
        in_parts(single, shares.reshape(3, 8, 3, 4))
        step(
            *(
                strategy.experimental_distribute_values_from_function(
                    lambda context, part=part: tf.constant(
                        part[context.replica_id_in_sync_group]
                    )
                )
                for part in shares
            )
        )
        for copy in per_replica_weights(strategy, double):
            for got, want in zip(copy, single.weights, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", quick([n for n in EMA if n.startswith("soft")]))
def test_soft_em_is_one_step_on_the_codes_it_drew(strategy, name, rng):
    # Draws differ between one replica and two, so take theirs, and do the M step of
    # the whole batch by hand.
    with strategy.scope():
        layer = make_layer(name)
    run_replicated(strategy, layer, halves(make_data(rng, 16), (8, 8)))
    for sizes in ((5, 2), (3, 0)):
        codebook, counts = layer.codebook.numpy(), layer.counts.numpy()
        x = make_data(rng, sum(sizes))
        outputs = run_replicated(strategy, layer, halves(x, sizes))
        samples = np.concatenate(outputs["samples"])
        samples = samples.reshape(-1, *samples.shape[2:])
        pieces = layer.groups.split(x.reshape(-1, x.shape[-1]))
        pieces = np.asarray(layer.similarity.prepare(pieces))
        for c in range(layer.groups.num_codebooks):
            drawn = samples[:, c] if samples.ndim == 3 else samples
            h = np.mean(np.eye(layer.num_codes)[drawn], axis=1)
            want = reference.ema_step(pieces[c], h, codebook[c], counts[c], layer.decay)
            for vectors, held in per_replica_weights(strategy, layer.ema):
                np.testing.assert_allclose(vectors[c], want[0], rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(held[c], want[1], rtol=1e-6)


@pytest.mark.parametrize("name", quick(SAMPLED))
def test_replicas_draw_different_noise_and_agree_on_weights(strategy, name, rng):
    with strategy.scope():
        layer = make_layer(name)
    x = make_data(rng, 8)
    for _ in range(2):
        # Both replicas see the same data: equal outputs would mean equal noise.
        outputs = run_replicated(strategy, layer, [x, x])
    key = "samples" if name in DISCRETE else "quantized"
    first, second = (np.asarray(part) for part in outputs[key])
    assert (first != second).any()
    a, b = per_replica_weights(strategy, layer)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", one_of_each_kind(CASES))
def test_fit_on_two_replicas(strategy, name, rng):
    x = make_data(rng, 64)
    # 64 = 3 * 20 + 4: the last batch is smaller.
    data = tf.data.Dataset.from_tensor_slices((x, {"decoded": x})).batch(20)
    with strategy.scope():
        model = compile_model(make_model(name))
    history = model.fit(data, epochs=6, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    layer = next(layer for layer in model.layers if "bottleneck" in layer.name)
    for one, other in zip(*per_replica_weights(strategy, layer), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name",
    [
        *("hard_em", "hard_em_shared", "vq", "lookup_free_projected"),
        *checks.slow_but((), ["residual", "sim_vq", "finite_scalar_projected"]),
    ],
)
def test_fit_on_two_replicas_equals_one(strategy, name, rng):
    # The whole training: gradients of the commitment loss and metrics included.
    x = make_data(rng, 60)
    data = tf.data.Dataset.from_tensor_slices((x, {"decoded": x})).batch(20)
    single = compile_model(make_model(name))
    with strategy.scope():
        double = compile_model(make_model(name))
    double.set_weights(single.get_weights())
    runs = [m.fit(data, epochs=3, verbose=0).history for m in (single, double)]
    for key in runs[0]:
        np.testing.assert_allclose(runs[0][key], runs[1][key], rtol=1e-4, err_msg=key)
    for a, b in zip(single.get_weights(), double.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("initializer", ["data", "normal"])
def test_replicas_exchange_little_once_codes_have_places(strategy, initializer, rng):
    with strategy.scope():
        layer = layers.VQEMBottleneck(64, initializer=initializer)
        layer.build((None, 8))

    @tf.function
    def step(x):
        def on_replica(x):
            layer(x, training=True)
            return sum(layer.losses)

        return strategy.run(on_replica, args=(x,))

    x = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(rng.normal(size=(50, 8)), "float32")
    )
    graph = step.get_concrete_function(x).graph
    sums = [op for op in graph.get_operations() if op.type == "CollectiveReduceV2"]
    # Per replica: numbers of vectors; counts and sums of all codes as one; and for
    # seeding the vectors of codes without a place, whose number is not fixed.
    assert len(sums) == 2 * (3 if initializer == "data" else 2)
    large = [op for op in sums if (op.inputs[0].shape.num_elements() or 0) >= 64 * 8]
    assert len(large) == 2


def test_keras_own_generator_would_repeat_itself(strategy):
    # Why ReplicaSeedGenerator exists; when this fails it can go.
    with strategy.scope():
        generator = keras.random.SeedGenerator(1)
    draw = tf.function(lambda: keras.random.uniform((4,), seed=generator))
    first, second = strategy.experimental_local_results(strategy.run(draw))
    np.testing.assert_array_equal(first, second)
