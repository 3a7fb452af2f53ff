"""Symbols that are known at any places, and the distribution of the others."""

import numpy as np
import pytest

from keras_vqem.models import ImageTransformer
from tests.models.grids import SMALL, all_grids, lively, probabilities

GRID = (2, 2, 1)


def shares(grids, number=3):
    """How often each grid of GRID occurs."""
    places = np.reshape(grids, (len(grids), -1)) @ number ** np.arange(4)[::-1]
    return np.bincount(places, minlength=number**4) / len(grids)


def distance(one, other):
    return np.abs(one - other).sum() / 2


@pytest.fixture(scope="module")
def model():
    # Lively enough that what comes later tells much of what comes before.
    return lively(GRID, 3, size=1.0)


def test_known_symbols_stay_and_others_follow_from_those_before(rng):
    model = lively((2, 3, 2), 5)
    symbols = rng.integers(5, size=(4, 2, 3, 2))
    known = rng.random((4, 2, 3, 2)) < 0.5
    options = {"seed": (0, 0), "temperature": 0.0, "known": known}
    found = model.sample(4, symbols=symbols, **options).numpy()
    np.testing.assert_array_equal(found[known], symbols[known])
    best = np.argmax(model({"symbols": found}), axis=-1)
    np.testing.assert_array_equal(found[~known], best[~known])
    # What is unknown does not matter.
    other = np.where(known, symbols, 99)
    np.testing.assert_array_equal(found, model.sample(4, symbols=other, **options))


def test_a_prefix_is_a_known_beginning(rng):
    model = lively((2, 3, 2), 5)
    symbols = rng.integers(5, size=(3, 2, 3, 2))
    known = (np.arange(12) < 7).reshape(2, 3, 2)
    found = model.sample(3, seed=(5, 6), symbols=symbols, known=known)
    prefix = symbols.reshape(3, 12)[:, :7]
    np.testing.assert_array_equal(found, model.sample(3, seed=(5, 6), prefix=prefix))


def test_one_grid_and_one_mask_serve_all(rng):
    model = lively((2, 3, 2), 5)
    symbols = rng.integers(5, size=(2, 3, 2))
    known = rng.random((2, 3, 1)) < 0.5  # Whole cells.
    short = model.sample(3, seed=(5, 6), symbols=symbols, known=known)
    full = {
        "symbols": np.tile(symbols, (3, 1, 1, 1)),
        "known": np.tile(known, (3, 1, 1, 2)),
    }
    np.testing.assert_array_equal(short, model.sample(3, seed=(5, 6), **full))


def test_candidates_lead_to_the_distribution_given_all_that_is_known(model):
    """The last symbol is known; the exact posterior of the others is enumerated."""
    grids = all_grids(model)
    p = probabilities(model, grids)
    posterior = np.where(grids[:, 1, 1, 0] == 2, p, 0)
    posterior /= posterior.sum()
    symbols = np.full((2000, *GRID), 2)
    known = np.array([[0, 0], [0, 1]], bool)[..., None]
    forced, completed = (
        shares(model.complete(symbols, known, seed=(1, 2), num_candidates=number))
        for number in (1, 40)
    )
    assert distance(forced, posterior) > 0.15
    assert distance(completed, posterior) < 0.08


def test_candidates_and_labels():
    model = lively(GRID, 3, num_classes=2)
    symbols, known = np.full((2000, *GRID), 1), np.array([[[0], [0]], [[0], [1]]])
    grids = all_grids(model)
    labels = np.arange(2000) % 2
    found = model.complete(symbols, known, (1, 2), num_candidates=30, labels=labels)
    for label in (0, 1):
        p = probabilities(model, grids, labels=np.full(len(grids), label))
        posterior = np.where(grids[:, 1, 1, 0] == 1, p, 0)
        posterior /= posterior.sum()
        assert distance(shares(found.numpy()[labels == label]), posterior) < 0.1


def test_pixels_are_completed_too(rng):
    model = ImageTransformer(3, 4, **SMALL)
    images = rng.integers(256, size=(2, 3, 4, 3)).astype("uint8")
    known = rng.random((3, 4, 1)) < 0.5
    found = model.complete(images, known, seed=(0, 1), num_candidates=2)
    assert found.dtype == "uint8"
    kept = np.broadcast_to(known, images.shape)
    np.testing.assert_array_equal(found.numpy()[kept], images[kept])
    assert (found.numpy()[~kept] != images[~kept]).any()


def test_what_does_not_fit_is_told(model):
    symbols, known = np.zeros((2, *GRID), "int32"), np.ones((2, *GRID), bool)
    sample = model.sample
    with pytest.raises(ValueError, match="`symbols` and `known` belong together"):
        sample(2, seed=(0, 0), symbols=symbols)
    with pytest.raises(ValueError, match="Pass one of them: a prefix"):
        options = {"prefix": [[0], [0]], "symbols": symbols, "known": known}
        sample(2, seed=(0, 0), **options)
    with pytest.raises(ValueError, match=r"`known` must broadcast to \(2, 2, 2, 1\)"):
        sample(2, seed=(0, 0), symbols=symbols, known=known[:, :, :, 0])
    with pytest.raises(ValueError, match=r"`symbols` must broadcast.*\(3, 2, 2, 1\)"):
        sample(2, seed=(0, 0), symbols=np.zeros((3, *GRID)), known=known)
    with pytest.raises(ValueError, match="`symbols` must be from 0 to 2, .* 0 to 3"):
        sample(2, seed=(0, 0), symbols=symbols + [[0], [3]], known=known)
    with pytest.raises(ValueError, match="has no classes, but received `labels`"):
        model.complete(symbols, known, seed=(0, 0), labels=[0, 0])
    of_classes = lively(GRID, 3, num_classes=2)
    with pytest.raises(ValueError, match=r"one per grid, 2 of them; .* shape \(3,\)"):
        of_classes.complete(symbols, known, seed=(0, 0), labels=[0, 1, 0])
    with pytest.raises(ValueError, match="`num_candidates` must be a whole number"):
        model.complete(symbols, known, seed=(0, 0), num_candidates=0)
