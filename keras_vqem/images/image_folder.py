"""load_image_folder: all images of a folder as one array."""

import operator
import os
import pathlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from keras_vqem.images.image_file import read_image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")


def load_image_folder(path: str | os.PathLike, size: int | None = None) -> np.ndarray:
    """Reads all images of a folder and its subfolders.

    Images are the files that end in `.png`, `.jpg`, `.jpeg` or `.bmp`, sorted by their
    path within the folder. Grey images become RGB and alpha channels are dropped. The
    rotation in a photo's EXIF data is not applied.

    Args:
        path: Path of the folder.
        size: Height and width of the returned images: each image is cropped to its
            central square, which is then resized. None keeps the images as they are;
            all must then have the same size.

    Returns:
        Images, `uint8` of shape `[N, H, W, 3]`.

    Raises:
        FileNotFoundError: If the folder does not exist or contains no image.
        ValueError: If a file cannot be decoded, or if the images differ in size and
            `size` is None.

    Example:

    >>> import pathlib, tempfile
    >>> import tensorflow as tf
    >>> from keras_vqem.images import load_image_folder
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> png = tf.io.encode_png(np.zeros([40, 60, 3], "uint8")).numpy()
    >>> _ = (folder / "black.png").write_bytes(png)
    >>> load_image_folder(folder).shape
    (1, 40, 60, 3)
    >>> load_image_folder(folder, size=32).shape
    (1, 32, 32, 3)
    """
    folder = pathlib.Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder. Pass the path of a folder with images."
        )
    files = sorted(
        (
            file
            for file in folder.rglob("*")
            if file.suffix.lower() in SUFFIXES and not file.is_dir()
        ),
        key=lambda file: file.relative_to(folder).as_posix(),
    )
    if not files:
        raise FileNotFoundError(
            f"{folder} contains no images, that is, no files that end in "
            f"{', '.join(SUFFIXES)}. Pass a folder with such files, or convert your "
            f"images to one of these formats."
        )
    return stack_images(
        ((str(file), read_image(file)) for file in files), size, len(files)
    )


def stack_images(
    named_images: Iterable[tuple[str, np.ndarray]],
    size: int | None = None,
    count: int | None = None,
) -> np.ndarray:
    """Stacks images into one array, after resizing them if `size` is given.

    Args:
        named_images: Iterable of pairs `(name, image)`. The name is used in error
            messages; the image is a `uint8` array of shape `[H, W, 3]`.
        size: Height and width to which each image is cropped and resized, as in
            `load_image_folder`. None keeps the images as they are.
        count: Number of images, at least 1.

    Returns:
        Images, `uint8` of shape `[count, H, W, 3]`.

    Raises:
        ValueError: If the images differ in size and `size` is None.
    """
    # Filled in place: a list of all images would take the memory twice.
    stacked = first = None
    for number, (name, image) in enumerate(named_images):
        if size is not None:
            image = resize_square(image, size)
        if stacked is None:
            first, stacked = name, np.empty((count, *image.shape), np.uint8)
        if image.shape != stacked.shape[1:]:
            (height, width), (h, w) = stacked.shape[1:3], image.shape[:2]
            raise ValueError(
                f"Images differ in size (height x width): {first} has {height} x "
                f"{width}, {name} has {h} x {w}. Pass size=..., for example "
                f"size={min(height, width, h, w)}, to crop and resize all of them."
            )
        stacked[number] = image
    return stacked


def resize_square(images: np.ndarray, size: int) -> np.ndarray:
    """Crops images to their central square and resizes it, with antialiasing.

    Args:
        images: One image or several, `uint8` of shape `[H, W, 3]` or `[N, H, W, 3]`.
        size: Height and width of the returned images.

    Returns:
        Images, `uint8` of shape `[size, size, 3]` or `[N, size, size, 3]`.

    Raises:
        ValueError: If `size` is less than 1.
    """
    if operator.index(size) < 1:
        raise ValueError(f"size must be at least 1, or None, not {size}.")
    height, width = images.shape[-3:-1]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    images = images[..., top : top + side, left : left + side, :]
    if side == size:
        return images
    images = tf.image.resize(images, [size, size], "bicubic", antialias=True).numpy()
    # Bicubic interpolation overshoots at edges.
    return np.clip(np.rint(images), 0, 255).astype(np.uint8)
