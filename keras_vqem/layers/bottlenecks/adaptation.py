"""Codebooks from data before training: the work behind `adapt`."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import concrete
from keras_vqem.layers.bottlenecks import kmeans, segments
from keras_vqem.layers.bottlenecks.starts import SMALLEST_COUNT


def adapt(
    layer: keras.layers.Layer, data: ArrayLike | tf.data.Dataset, steps: int | None
) -> None:
    """Starts the codebook of a bottleneck by k-means; see its method `adapt`.

    Args:
        layer: A `CodebookBottleneck`.
        data: Vectors `[..., D]`, or a dataset of batches of them.
        steps: Number of batches of a dataset to use. None for all.
    """
    if getattr(layer, "_adopt", None) is None:
        raise ValueError(
            f"The codebook of a {type(layer).__name__} does not start from data, so "
            f"there is nothing to adapt. Use VQEMBottleneck or VQBottleneck."
        )
    points = _pieces_of(layer, data, steps)
    number = points.shape[1]
    if number < layer.num_codes:
        raise ValueError(
            f"`adapt` needs at least as many vectors as there are codes: received "
            f"{number} finite vectors for {layer.num_codes} codes. Pass more data, or "
            f"choose a smaller num_codes."
        )
    generator = keras.random.SeedGenerator(layer.seed)
    noise = keras.random.uniform(
        (len(points), layer.num_codes), dtype="float32", seed=generator
    )
    ones = ops.ones((number,), "float32")
    centres, counts, placed = segments.per_codebook(
        lambda points, noise: kmeans.compiled(
            points, ones, noise, layer.similarity.prepare
        ),
        points,
        noise,
    )
    if not np.all(placed):
        distinct = int(np.min(np.sum(placed, axis=-1)))
        raise ValueError(
            f"`adapt` needs as many distinct vectors as there are codes: received "
            f"{distinct} for {layer.num_codes} codes. Pass more data, or choose a "
            f"smaller num_codes."
        )
    # A centre that lost all its vectors is still one.
    layer._adopt(centres, ops.maximum(counts, SMALLEST_COUNT))


def _pieces_of(layer, data, steps):
    """Returns the finite vectors of the data as pieces [C, n, d]."""
    batches = [data]
    if isinstance(data, tf.data.Dataset):
        batches = data.take(-1 if steps is None else steps)
    elif steps is not None:
        raise ValueError(
            f"`steps` is the number of batches of a tf.data.Dataset, received "
            f"steps={steps!r} with {type(data).__name__}. Leave it out, or pass a part "
            f"of the data."
        )
    found = []
    for batch in batches:
        if isinstance(batch, (tuple, dict)):
            raise ValueError(
                f"`adapt` takes batches of vectors [..., D], received a "
                f"{type(batch).__name__}. Map the dataset to what the layer is called "
                f"on, for example data.map(lambda x, y: encoder(x))."
            )
        concrete("adapt", batch)
        rows, keep, _ = layer._rows(layer._prepare(batch, "adapt"))
        found.append(layer._pieces(rows[keep > 0]))
    if not found:
        raise ValueError("`adapt` received a dataset without batches. Pass more data.")
    return ops.concatenate(found, axis=1)
