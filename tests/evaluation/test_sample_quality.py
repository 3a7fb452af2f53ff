"""Measures of samples against closed forms and plain loops."""

import numpy as np
import pytest

from keras_vqem.evaluation import sample_quality
from keras_vqem.evaluation.sample_quality import frechet_distance, precision_recall
from keras_vqem.images import shapes
from keras_vqem.models import ImageClassifier


def exactly(rng, mean, covariance, number=400):
    """Vectors with exactly this mean and covariance."""
    x = rng.normal(size=(number, len(mean)))
    x -= x.mean(axis=0)
    own = np.linalg.cholesky(np.cov(x.T))
    return mean + x @ np.linalg.inv(own).T @ np.linalg.cholesky(covariance).T


def test_the_distance_of_gaussians_that_share_axes(rng):
    mean, other = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 3.5])
    variances, others = np.array([1.0, 4.0, 9.0]), np.array([4.0, 4.0, 1.0])
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    x = exactly(rng, mean, turn @ np.diag(variances) @ turn.T)
    y = exactly(rng, other, turn @ np.diag(others) @ turn.T, number=300)
    expected = 4.25 + np.sum((np.sqrt(variances) - np.sqrt(others)) ** 2)
    assert frechet_distance(x, y) == pytest.approx(expected)
    assert frechet_distance(y, x) == pytest.approx(expected)


def test_the_distance_of_any_gaussians_of_two_dimensions(rng):
    """Of a 2 x 2 matrix A, tr A^(1/2) is (tr A + 2 det A^(1/2))^(1/2)."""
    covariances = []
    for _ in range(2):
        root = rng.normal(size=(2, 2))
        covariances.append(root @ root.T + 0.1 * np.eye(2))
    s, t = covariances
    shared = np.sqrt(np.trace(s @ t) + 2 * np.sqrt(np.linalg.det(s @ t)))
    expected = np.trace(s + t) - 2 * shared
    x, y = (exactly(rng, np.zeros(2), covariance) for covariance in covariances)
    assert frechet_distance(x, y) == pytest.approx(expected)


def test_a_set_is_at_no_distance_from_itself_even_with_few_vectors(rng):
    for number in (5, 200):  # Fewer vectors than dimensions, too.
        x = 3 + rng.normal(size=(number, 20)).astype("float32")
        assert frechet_distance(x, x[::-1]) == pytest.approx(0, abs=1e-9)
        assert precision_recall(x, x[::-1]) == (1.0, 1.0)


def by_loops(real, generated, k):
    def covered(points, others):
        radii = [np.sort(np.linalg.norm(others - x, axis=1))[k] for x in others]
        return np.mean(
            [
                any(
                    np.linalg.norm(x - y) <= r
                    for y, r in zip(others, radii, strict=True)
                )
                for x in points
            ]
        )

    return covered(generated, real), covered(real, generated)


@pytest.mark.parametrize("k", [1, 3])
def test_precision_and_recall_by_loops(rng, k, monkeypatch):
    monkeypatch.setattr(sample_quality, "ROWS", 7)  # Blocks that do not fit.
    real = rng.normal(size=(60, 3))
    generated = 0.4 + 0.6 * rng.normal(size=(45, 3))
    found = precision_recall(real, generated, k)
    np.testing.assert_allclose(found, by_loops(real, generated, k))
    assert 0 < found[1] < found[0] < 1


def test_samples_of_one_kind_are_precise_and_cover_little(rng):
    centers = np.array([[0.0, 0.0], [50.0, 0.0]])
    real = np.concatenate([center + rng.normal(size=(200, 2)) for center in centers])
    generated = centers[0] + rng.normal(size=(200, 2))
    precision, recall = precision_recall(real, generated)
    assert precision > 0.9 and 0.4 < recall <= 0.5


def test_equal_vectors_cover_each_other():
    """Repeated images are at no distance, whatever rounding leaves."""
    x = np.repeat(np.random.default_rng(0).normal(100, 1, size=(3, 8)), 6, axis=0)
    assert precision_recall(x, x[:12]) == (1.0, pytest.approx(2 / 3))


def test_what_cannot_be_compared_is_told(rng):
    x = rng.normal(size=(10, 4))
    with pytest.raises(ValueError, match=r"received shapes \(10, 4\) and \(10, 3\)"):
        frechet_distance(x, x[:, :3])
    with pytest.raises(ValueError, match="at least 4 vectors, received 10 and 3"):
        precision_recall(x, x[:3])
    with pytest.raises(ValueError, match="NaN or infinite"):
        frechet_distance(x, np.full_like(x, np.nan))
    with pytest.raises(ValueError, match="`num_neighbors` must be a whole number"):
        precision_recall(x, x, 0)


def test_features_and_classes_are_those_of_the_classifier():
    images, labels = shapes.images(11, size=16)
    model = ImageClassifier(8, channels=4, num_stages=2, image_size=(16, 16))
    found, classes = sample_quality.features_and_classes(model, images, batch_size=4)
    np.testing.assert_allclose(found, model.features(images), atol=1e-6)
    logits = model({"images": images})
    np.testing.assert_array_equal(classes, np.argmax(logits, axis=-1))
    assert found.shape == (11, 8)
