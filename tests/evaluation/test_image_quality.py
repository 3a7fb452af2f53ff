"""PSNR and SSIM, by hand."""

import numpy as np

from keras_vqem.evaluation.image_quality import psnr, ssim


def test_psnr_by_hand():
    images = np.zeros((2, 1, 1, 3), np.uint8)
    others = images.copy()
    others[1] = 255
    np.testing.assert_allclose(psnr(images, others), [100.0, 0.0])


def test_ssim_by_hand(rng):
    image = rng.integers(0, 256, (20, 30, 3), np.uint8)
    assert ssim(image, image) > 0.99999
    # Of two even images only the means differ: (2 a b + c) / (a^2 + b^2 + c).
    one, other, c = np.full_like(image, 100), np.full_like(image, 150), 2.55**2
    expected = (2 * 100 * 150 + c) / (100**2 + 150**2 + c)
    np.testing.assert_allclose(ssim(one, other), expected, rtol=1e-3)
    assert np.isnan(ssim(image[:10], image[:10]))
