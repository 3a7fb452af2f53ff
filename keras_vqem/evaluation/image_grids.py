"""Pictures of many small images, in rows and columns, as PNG files."""

import os

import numpy as np
import tensorflow as tf

from keras_vqem.files import replacing


def grid(rows: np.ndarray, zoom: int = 3, gap: int = 2) -> np.ndarray:
    """Joins images to one image of rows and columns.

    Args:
        rows: uint8 array `[R, C, H, W, 3]`: R rows of C images.
        zoom: Factor by which images are enlarged.
        gap: Number of white pixels between images.

    Returns:
        uint8 array `[height, width, 3]`.

    Example:

    >>> from keras_vqem.evaluation.image_grids import grid
    >>> grid(np.zeros((2, 5, 8, 8, 3), "uint8"), zoom=2, gap=1).shape
    (35, 86, 3)
    """
    rows = np.asarray(rows).repeat(zoom, axis=2).repeat(zoom, axis=3)
    edges = [(0, 0), (0, 0), (gap, 0), (gap, 0), (0, 0)]
    rows = np.pad(rows, edges, constant_values=255)
    count, columns, height, width, _ = rows.shape
    whole = rows.transpose(0, 2, 1, 3, 4)
    whole = whole.reshape(count * height, columns * width, 3)
    return np.pad(whole, [(0, gap), (0, gap), (0, 0)], constant_values=255)


def save_grid(
    path: str | os.PathLike, rows: np.ndarray, zoom: int = 3, gap: int = 2
) -> None:
    """Writes `grid(rows, zoom, gap)` to a PNG file.

    Args:
        path: File to write.
        rows: uint8 array `[R, C, H, W, 3]`: R rows of C images.
        zoom: Factor by which images are enlarged.
        gap: Number of white pixels between images.
    """
    with replacing(path) as part:
        part.write_bytes(tf.io.encode_png(grid(rows, zoom, gap)).numpy())
