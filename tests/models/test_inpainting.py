"""Images with a hole of any shape: what is kept, what is used, what is imagined."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers
from keras_vqem.images import shapes
from keras_vqem.models import GridTransformer, ImageVQVAE, inpainting
from tests.models.grids import SMALL


def make_model(likelihood=None, **settings):
    keras.utils.set_random_seed(0)
    model = ImageVQVAE(
        layers.PatchCompressor(code_dim=24, channels=8, num_blocks=1),
        layers.VQEMBottleneck(32, num_samples=2, groups=layers.Slices(3), seed=0),
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8),
        likelihood or layers.LogisticMixture(num_mixtures=2),
        image_size=(16, 24),
    )
    model.init_from_patches(pictures(64))
    prior = GridTransformer((4, 6, 3), 32, **SMALL, **settings)
    prior.init_from_codebook(model.bottleneck.codebook, model.encode(pictures(64)))
    return model.with_prior(prior)


def pictures(number):
    return shapes.images(number, size=24)[0][:, 4:-4]


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture
def known(rng):
    """A hole that is no rectangle, and single pixels."""
    found = np.ones((16, 24), bool)
    found[5:10, 3:13] = found[2:7, 8:20] = False
    found[15, 23] = False
    return found


def test_nothing_under_the_mask_is_used_and_the_rest_is_kept(model, known):
    images = pictures(3)
    others = np.where(known[..., None], images, 255 - images)
    graph = tf.function(lambda x: model.inpaint(x, known, (0, 1), num_candidates=3))
    found = graph(images)
    assert found.dtype == "uint8"
    np.testing.assert_array_equal(found, graph(others))
    kept = np.broadcast_to(known[..., None], images.shape)
    np.testing.assert_array_equal(found.numpy()[kept], images[kept])
    # Another seed imagines something else, under the mask.
    other = model.inpaint(images, known, (0, 2), num_candidates=3)
    assert (found != other).numpy().any()


def test_codes_of_known_cells_are_kept(model, known, monkeypatch):
    completed = []

    def complete(symbols, cells, *arguments, **options):
        completed.append((symbols.numpy(), cells.numpy()[..., 0]))
        return symbols

    monkeypatch.setattr(model.prior, "complete", complete)
    images = pictures(2)
    model.inpaint(images, known, (0, 1))
    [(codes, cells)] = completed
    filled = inpainting.filled(*inpainting.checked(images, known))
    np.testing.assert_array_equal(codes, model.encode(filled))
    # A cell is known if all its 4 x 4 pixels are.
    for row in range(4):
        for column in range(6):
            own = known[4 * row : 4 * row + 4, 4 * column : 4 * column + 4].all()
            assert (cells[:, row, column] == own).all()
    assert 0 < cells.mean() < 1


def test_images_have_masks_and_labels_of_their_own(known):
    pixels = layers.GroupedPixels(
        layers.LogisticMixture(2), features=2, channels=4, num_blocks=1
    )
    model = make_model(pixels, num_classes=3)
    images, masks = pictures(2), np.stack([known, ~known])
    found = model.inpaint(images, masks, (0, 1), 2, top_p=0.9, labels=[0, 2])
    kept = np.broadcast_to(masks[..., None], images.shape)
    np.testing.assert_array_equal(found.numpy()[kept], images[kept])
    with pytest.raises(ValueError, match="needs `labels`"):
        model.inpaint(images, masks, (0, 1))


def test_a_hole_is_filled_from_its_edges():
    images = np.zeros((3, 6, 8, 3), "uint8")
    images[:, :, :4], images[:, :, 4:] = 10, 90
    known = np.ones((3, 6, 8), bool)
    known[0, :, 2:6] = False  # A band between both.
    known[1, 1:] = False  # All but one row.
    known[2] = False  # Nothing is left.
    hidden = np.where(known[..., None], images, 200).astype("uint8")
    found = inpainting.filled(*inpainting.checked(hidden, known)).numpy()[..., 0]
    np.testing.assert_array_equal(found[0], images[0, ..., 0])
    # Nothing of the 200 that is hidden; the row spreads, and blurs.
    assert found[1].min() == 10 and found[1].max() == 90
    assert (found[1, 1] == [10, 10, 10, 37, 63, 90, 90, 90]).all()
    assert (found[2] == 127).all()


@pytest.mark.parametrize(
    "known", [np.ones((16, 23), bool), np.ones((5, 16, 24), bool), np.ones((16, 24))]
)
def test_a_mask_that_does_not_fit_is_told(model, known):
    with pytest.raises(ValueError, match=r"`known` must be booleans of shape \(16, 24"):
        model.inpaint(pictures(2), known, (0, 1))


def test_scaled_images_are_refused(model):
    with pytest.raises(ValueError, match="`images` must be integers from 0 to 255"):
        model.inpaint(pictures(1) / 255.0, np.ones((16, 24), bool), (0, 1))


def test_a_model_without_a_prior_imagines_nothing(model):
    bare = ImageVQVAE(
        model.compressor, model.bottleneck, model.decompressor, model.likelihood
    )
    with pytest.raises(ValueError, match="no prior to draw codes from"):
        bare.inpaint(pictures(1), np.ones((16, 24), bool), (0, 1))
