"""Rows of the bottlenecks' table: residual, scalar and frozen ones."""

import keras

from keras_vqem import layers


def hard_em(num_codes=8, **settings):
    return layers.VQEMBottleneck(num_codes, decay=0.9, seed=1, **settings)


CASES = {
    "residual": lambda **k: layers.ResidualBottleneck(hard_em(), 3, **k),
    "residual_slices": lambda **k: layers.ResidualBottleneck(hard_em(groups=2), 2, **k),
    "residual_shared": lambda **k: layers.ResidualBottleneck(
        hard_em(groups=layers.SharedSlices(2)), 2, shared=True, **k
    ),
    "residual_vq": lambda **k: layers.ResidualBottleneck(
        [
            layers.SimVQBottleneck(8, seed=1),
            layers.VQBottleneck(
                8, initializer=keras.initializers.RandomNormal(stddev=0.5, seed=1)
            ),
        ],
        **k,
    ),
    "residual_soft": lambda **k: layers.ResidualBottleneck(
        hard_em(num_samples=5, temperature=3.0), 2, quantizer_dropout=0.5, seed=1, **k
    ),
    "finite_scalar": lambda **k: layers.FiniteScalarBottleneck((4, 3), groups=6, **k),
    "finite_scalar_projected": lambda **k: layers.FiniteScalarBottleneck((4, 3), **k),
    "lookup_free": lambda **k: layers.LookupFreeBottleneck(12, entropy_bits=5, **k),
    "lookup_free_projected": lambda **k: layers.LookupFreeBottleneck(
        4, groups=layers.Slices(2), **k
    ),
    "sim_vq": lambda **k: layers.SimVQBottleneck(16, seed=1, **k),
    "random_projection": lambda **k: layers.RandomProjectionBottleneck(16, 4, **k),
}
# Nothing is drawn in a step, so results compare exactly.
EXACT = [name for name in CASES if name != "residual_soft"]
SAMPLED = ["residual_soft"]
# Every code is the code of its vector.
NEAREST = ["finite_scalar", "lookup_free", "sim_vq", "random_projection"]
# The gradient of the inputs is exactly that of the output.
STRAIGHT = [n for n in CASES if n.startswith("residual")] + ["lookup_free", "sim_vq"]
# In the quick tests. The others are variants, or run on what has tests elsewhere.
KINDS = ("residual", "finite_scalar", "lookup_free")
VARIANTS = [name for name in CASES if name not in KINDS]
