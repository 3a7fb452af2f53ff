"""A small image model whose prior knows something, and images for it."""

import numpy as np

from keras_vqem.compression.code_coders import PriorCoder
from keras_vqem.images import shapes
from tests.command.page_models import image_model


def model(prior=True):
    """Tiles of 16 x 16 pixels, 4 x 4 x 3 codes out of 32."""
    found = image_model(prior=prior)
    if prior:
        rng = np.random.default_rng(0)
        for weight in found.prior.weights:
            weight.assign(weight + 0.6 * rng.normal(size=weight.shape))
    elif not found.built:
        found.build()
    return found


def image(height, width, seed=0):
    """A picture of shapes, of any size."""
    rows, columns = -(-height // 16), -(-width // 16)
    tiles = shapes.images(rows * columns, seed=seed, size=16)[0]
    tiles = tiles.reshape(rows, columns, 16, 16, 3).transpose(0, 2, 1, 3, 4)
    return tiles.reshape(rows * 16, columns * 16, 3)[:height, :width]


class Elsewhere(PriorCoder):
    """A coder on a computer that adds up floats in another order."""

    def __init__(self, prior, difference):
        super().__init__(prior)
        rng, step = np.random.default_rng(0), self._step

        def other(*arguments):
            logits, state = step(*arguments)
            noise = rng.choice([-difference, difference], size=logits.shape)
            return logits + noise, state

        self._step = other
