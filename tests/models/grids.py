"""Small grid models for tests, and all the grids that they can draw."""

import itertools

import keras
import numpy as np

from keras_vqem.models import GridTransformer

SMALL = {
    "hidden_dim": 8,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 16,
    "block_length": 4,
}


def lively(grid, num_symbols, size=0.5, seed=1, **settings):
    """A model away from a start at which nothing matters."""
    keras.utils.set_random_seed(seed)
    model = GridTransformer(grid, num_symbols, **SMALL, **settings)
    model.build()
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(weight + size * rng.normal(size=weight.shape))
    return model


def all_grids(model):
    """Every grid of a model, [N, rows, columns, slots]."""
    found = itertools.product(range(model.num_symbols), repeat=model.length)
    return np.array(list(found), "int32").reshape(-1, *model.grid)


def probabilities(model, grids, **inputs):
    """Probability of each of the grids."""
    inputs = {"symbols": grids, **inputs}
    nats = np.asarray(model.nats(inputs, model(inputs)), "float64")
    return np.exp(-nats.sum(axis=(1, 2, 3)))
