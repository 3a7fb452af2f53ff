"""How close an image is to the original: PSNR and SSIM."""

import math

import numpy as np
import tensorflow as tf


def psnr(images: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns the peak signal-to-noise ratio of images, in dB.

    Args:
        images: uint8 array `[B, H, W, 3]`.
        others: uint8 array of the same shape, such as reconstructions.

    Returns:
        float array `[B]`, 100 where the two images are equal.
    """
    difference = images.astype("float64") - others.astype("float64")
    error = np.square(difference).mean(axis=(1, 2, 3))
    return 10.0 * np.log10(255.0**2 / np.maximum(error, 255.0**2 * 1e-10))


def ssim(image: np.ndarray, other: np.ndarray) -> float:
    """Returns the structural similarity (SSIM) of two images.

    Args:
        image: uint8 array `[H, W, 3]`.
        other: uint8 array of the same shape, such as a reconstruction.

    Returns:
        Number up to 1 for equal images; NaN if an image is smaller than the 11 x 11
        pixels that the measure compares.
    """
    if min(image.shape[:2]) < 11:
        return math.nan
    return float(tf.image.ssim(image, other, max_val=255))
