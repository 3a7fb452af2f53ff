"""How much generated images are like real ones, by features of a classifier.

The measures compare two sets of vectors, `[N, D]`, one per image. Here these are the
features of an `ImageClassifier` that was trained on the same kind of images. So the
numbers depend on that classifier and on the numbers of images: they compare models that
were measured alike. They are not the published FID, which takes the features of an
Inception network that was trained on ImageNet, and cannot be put beside it.
"""

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.models import ImageClassifier

ROWS = 1000  # Of a block of distances.


def features_and_classes(
    classifier: ImageClassifier, images: np.ndarray, batch_size: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """Computes the features of images, and what the classifier takes them for.

    Args:
        classifier: A trained `keras_vqem.models.ImageClassifier`.
        images: uint8 array `[N, H, W, 3]`.
        batch_size: Number of images per batch.

    Returns:
        A tuple: features, float32 `[N, D]`, and classes, integers `[N]`.
    """

    @tf.function(reduce_retracing=True)
    def step(images):
        features = classifier.features(images)
        return tf.cast(features, "float32"), tf.argmax(classifier.dense(features), -1)

    parts = [
        step(images[first : first + batch_size])
        for first in range(0, len(images), batch_size)
    ]
    features, classes = (np.concatenate(part) for part in zip(*parts, strict=True))
    return features, classes


def frechet_distance(features: ArrayLike, others: ArrayLike) -> float:
    """Computes the Frechet distance of the Gaussians that fit two sets of vectors.

    With means m, n and covariances S, T it is |m - n|^2 + tr(S + T - 2 (S T)^(1/2)).
    Few vectors make it larger: compare sets of equal size.

    Args:
        features: Floats `[N, D]`.
        others: Floats `[M, D]`.

    Returns:
        The squared distance, at least 0.

    Example:

    >>> from keras_vqem.evaluation import sample_quality
    >>> x = np.random.default_rng(0).normal(size=(100, 4))
    >>> round(sample_quality.frechet_distance(x, 2 + x), 6)
    16.0

    References:
        - Heusel et al., 2017. GANs Trained by a Two Time-Scale Update Rule.
          arXiv:1706.08500.
    """
    one, other = _checked(features, others)
    roots, total = [], np.sum(np.square(one.mean(axis=0) - other.mean(axis=0)))
    for x in (one, other):
        x = x - x.mean(axis=0)
        # The scatter of n vectors over n - 1, as a covariance is estimated.
        values, vectors = np.linalg.eigh(x.T @ x / max(len(x) - 1, 1))
        values = np.maximum(values, 0.0)  # Rounding may leave some below 0.
        total += values.sum()
        roots.append(vectors * np.sqrt(values) @ vectors.T)
    # The trace of (S T)^(1/2) is the sum of the singular values of S^(1/2) T^(1/2).
    shared = np.linalg.svd(roots[0] @ roots[1], compute_uv=False).sum()
    return float(max(total - 2.0 * shared, 0.0))


def precision_recall(
    real: ArrayLike, generated: ArrayLike, num_neighbors: int = 3
) -> tuple[float, float]:
    """Computes how many generated images look real, and how many real ones are covered.

    Each set covers the balls around its vectors that reach to their `num_neighbors`-th
    nearest neighbour in the set. Precision is the share of generated vectors that the
    real ones cover, recall the share of real vectors that the generated ones cover.

    Args:
        real: Floats `[N, D]`.
        generated: Floats `[M, D]`.
        num_neighbors: Number of nearest neighbours that a ball reaches to.

    Returns:
        A tuple `(precision, recall)` of numbers from 0 to 1.

    Example:

    >>> from keras_vqem.evaluation import sample_quality
    >>> x = np.random.default_rng(0).normal(size=(100, 4))
    >>> sample_quality.precision_recall(x, x), sample_quality.precision_recall(x, x + 9)
    ((1.0, 1.0), (0.0, 0.0))

    References:
        - Kynkäänniemi et al., 2019. Improved Precision and Recall Metric for Assessing
          Generative Models. arXiv:1904.06991.
    """
    number = whole_number("num_neighbors", num_neighbors, 1)
    real, generated = _checked(real, generated, number + 1)
    # Both around one centre, so that little is lost to rounding.
    center = real.mean(axis=0)
    real, generated = real - center, generated - center
    return _covered(generated, real, number), _covered(real, generated, number)


def _checked(features, others, least=2):
    """Returns two sets of vectors as float64."""
    found = [np.asarray(x, "float64") for x in (features, others)]
    shapes = [x.shape for x in found]
    if any(len(s) != 2 for s in shapes) or shapes[0][1] != shapes[1][1]:
        raise ValueError(
            f"Two sets of vectors, [N, D] and [M, D], are compared; received shapes "
            f"{shapes[0]} and {shapes[1]}. Pass what `features_and_classes` returns "
            f"for images, by the same classifier."
        )
    if min(len(x) for x in found) < least:
        raise ValueError(
            f"Each set needs at least {least} vectors, received {shapes[0][0]} and "
            f"{shapes[1][0]}. Pass more images."
        )
    if not all(np.isfinite(x).all() for x in found):
        raise ValueError(
            "Some features are NaN or infinite. Check the classifier and the images."
        )
    return found


def _covered(points, others, number):
    """Returns the share of points within the balls of others."""
    radii = np.concatenate(
        [
            # A vector is the nearest neighbour of itself.
            np.partition(_squared_distances(part, others), number, axis=1)[:, number]
            for part in _parts(others)
        ]
    )
    inside = [
        np.any(_squared_distances(part, others) <= radii, axis=1)
        for part in _parts(points)
    ]
    return float(np.concatenate(inside).mean())


def _parts(vectors):
    return [vectors[i : i + ROWS] for i in range(0, len(vectors), ROWS)]


def _squared_distances(one, other):
    sizes = np.sum(one**2, axis=1)[:, None] + np.sum(other**2, axis=1)
    distances = sizes - 2.0 * one @ other.T
    # What rounding leaves of 0.
    return np.where(distances < 1e-10 * sizes, 0.0, distances)
