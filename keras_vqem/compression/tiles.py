"""Images of any size as tiles of one size, and back."""

import numpy as np


def count_tiles(height: int, width: int, size: tuple[int, int]) -> int:
    """Returns the number of tiles of an image.

    Args:
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        size: Tuple `(height, width)` of a tile.
    """
    return -(-height // size[0]) * -(-width // size[1])


def to_tiles(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Cuts an image into tiles, row by row.

    Args:
        image: uint8 `[H, W, 3]`. If a tile does not fit, the last row or column of
            pixels is repeated beyond the edge.
        size: Tuple `(height, width)` of a tile.

    Returns:
        uint8 `[N, height, width, 3]`.

    Example:

    >>> from keras_vqem.compression import tiles
    >>> image = np.zeros((40, 70, 3), "uint8")
    >>> found = tiles.to_tiles(image, (32, 32))
    >>> found.shape, tiles.from_tiles(found, 40, 70).shape
    ((6, 32, 32, 3), (40, 70, 3))
    """
    edges = [(0, -image.shape[axis] % size[axis]) for axis in (0, 1)]
    image = np.pad(image, [*edges, (0, 0)], mode="edge")
    rows, columns = (image.shape[axis] // size[axis] for axis in (0, 1))
    image = image.reshape(rows, size[0], columns, size[1], 3)
    return image.transpose(0, 2, 1, 3, 4).reshape(-1, *size, 3)


def from_tiles(tiles: np.ndarray, height: int, width: int) -> np.ndarray:
    """Joins tiles to an image, without what is beyond its edge.

    Args:
        tiles: uint8 `[N, h, w, 3]`, as `to_tiles` returns them.
        height: Height of the image in pixels.
        width: Width of the image in pixels.

    Returns:
        uint8 `[height, width, 3]`.
    """
    rows, columns = -(-height // tiles.shape[1]), -(-width // tiles.shape[2])
    image = tiles.reshape(rows, columns, *tiles.shape[1:]).transpose(0, 2, 1, 3, 4)
    image = image.reshape(rows * tiles.shape[1], columns * tiles.shape[2], 3)
    return image[:height, :width]
