"""Every bottleneck, by one table. A new one is a new row."""

import keras

from keras_vqem import layers
from tests.conformance import checks, family_cases, strategy_cases

DIM = 12
POSITIONS = 6

# name -> a function that makes the layer, given Layer arguments such as dtype.
CASES = {
    "hard_em": lambda **k: layers.VQEMBottleneck(8, decay=0.9, seed=1, **k),
    "hard_em_revival": lambda **k: layers.VQEMBottleneck(
        8, decay=0.5, initializer="random_normal", dead_code_threshold=0.3, seed=1, **k
    ),
    "hard_em_slices": lambda **k: layers.VQEMBottleneck(
        8, groups=3, decay=0.9, seed=1, **k
    ),
    "hard_em_shared": lambda **k: layers.VQEMBottleneck(
        8, groups=layers.SharedSlices(4), decay=0.9, seed=1, **k
    ),
    "hard_em_projections": lambda **k: layers.VQEMBottleneck(
        8, groups=layers.Projections(2, dim=4), decay=0.9, seed=1, **k
    ),
    "soft_em": lambda **k: layers.VQEMBottleneck(
        8, num_samples=5, temperature=3.0, decay=0.9, seed=1, **k
    ),
    "soft_em_slices": lambda **k: layers.VQEMBottleneck(
        8,
        num_samples=5,
        temperature=keras.optimizers.schedules.ExponentialDecay(1.0, 10, 0.5),
        groups=layers.Slices(2),
        decay=0.9,
        seed=1,
        **k,
    ),
    "vq": lambda **k: layers.VQBottleneck(
        8, initializer=keras.initializers.RandomNormal(stddev=1.0, seed=1), **k
    ),
    "vq_shared": lambda **k: layers.VQBottleneck(
        8,
        groups=layers.SharedSlices(2),
        initializer=keras.initializers.RandomNormal(stddev=1.0, seed=1),
        **k,
    ),
    "gumbel": lambda **k: layers.GumbelSoftmaxBottleneck(8, seed=1, **k),
    "gumbel_straight_through": lambda **k: layers.GumbelSoftmaxBottleneck(
        8, temperature=0.5, straight_through=True, groups=2, seed=1, **k
    ),
    "semantic_hashing": lambda **k: layers.SemanticHashingBottleneck(4, seed=1, **k),
    "semantic_hashing_warm_up": lambda **k: layers.SemanticHashingBottleneck(
        4,
        discrete_rate=keras.optimizers.schedules.PolynomialDecay(0.0, 100, 0.5),
        seed=1,
        **k,
    ),
    "gaussian": lambda **k: layers.GaussianBottleneck(4, kl_weight=0.01, seed=1, **k),
}
EMA = [name for name in CASES if "_em" in name]
# Hard assignments: nothing is drawn in a step, so results compare exactly.
EXACT = [n for n in CASES if n.startswith(("hard_em", "vq")) and "revival" not in n]
SAMPLED = [name for name in CASES if not name.startswith(("hard_em", "vq"))]
DISCRETE = [name for name in CASES if name != "gaussian"]
NEAREST = [name for name in CASES if name.startswith(("hard_em", "soft_em", "vq"))]

KINDS = ("hard_em", "soft_em_slices", "vq", "gaussian")

STRAIGHT = list(NEAREST)
for added in (family_cases, strategy_cases):
    CASES |= added.CASES
    EXACT += added.EXACT
    SAMPLED += added.SAMPLED
    DISCRETE += added.CASES
    STRAIGHT += added.STRAIGHT
    NEAREST += added.NEAREST
EMA += strategy_cases.EMA
KINDS += ("residual",)  # The long tests of the rest of the family are slow ones.


def quick(names):
    """Parameters of a test: variants are slow ones."""
    variants = {*family_cases.VARIANTS, *strategy_cases.VARIANTS}
    return checks.slow_but([n for n in names if n not in variants], names)


def one_of_each_kind(names):
    """Parameters of a test that takes long: all but a few of them are slow ones."""
    return checks.slow_but(KINDS, names)


def make_layer(case, **settings):
    """The layer, built; twice the same one if asked twice."""
    keras.utils.set_random_seed(1)
    layer = CASES[case](**settings)
    layer.build((None, None, DIM))
    return layer


def make_model(name, **settings):
    """An autoencoder with the layer in its middle, and everything the layer returns."""
    keras.utils.set_random_seed(1)
    inputs = keras.Input((None, DIM))
    outputs = CASES[name](**settings)(keras.layers.Dense(DIM)(inputs))
    decoded = keras.layers.Dense(DIM)(outputs["quantized"])
    return keras.Model(inputs, {"decoded": decoded, **outputs})


def compile_model(model, **settings):
    model.compile(keras.optimizers.Adam(0.01), loss={"decoded": "mse"}, **settings)
    return model


def make_data(rng, count=64):
    """Vectors around 8 centres, with some noise: something to be quantized."""
    centres = rng.normal(size=(8, DIM))
    choice = rng.integers(0, 8, size=(count, POSITIONS))
    noise = 0.1 * rng.normal(size=(count, POSITIONS, DIM))
    return (centres[choice] + noise).astype("float32")


def state(layer):
    """All weights of a layer as arrays, by place and name."""
    return {f"{i} {w.name}": w.numpy() for i, w in enumerate(layer.weights)}


def metric_results(layer):
    return {metric.name: float(metric.result()) for metric in layer.metrics}
