"""`load_image_folder`: all images of a folder as one array."""

import operator
import pathlib

import numpy as np
import tensorflow as tf

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")


def load_image_folder(path, size=None):
    """Reads all images of a folder and of the folders in it.

    These are the files that end in `.png`, `.jpg`, `.jpeg` or `.bmp`, sorted by their
    path within the folder. Grey images become RGB, alpha is dropped, and a rotation
    noted in a photo's EXIF data is not applied.

    Args:
        path: The folder.
        size: Height and width of the result: each image is cropped to the square in
            its middle, which is then resized. None keeps the images as they are; all
            must then have the same size.

    Returns:
        `uint8` of shape `[N, H, W, 3]`.

    Raises:
        FileNotFoundError: If there is no such folder, or no image in it.
        ValueError: If a file cannot be decoded, or sizes differ and `size` is None.

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
            f"{folder} holds no images, that is, no files which end in "
            f"{', '.join(SUFFIXES)}. Pass a folder that does, or convert the images."
        )
    return stack_images(
        ((str(file), _decode(file)) for file in files), size, len(files)
    )


def stack_images(named_images, size=None, count=None):
    """Puts images of one size, or made one size, into one array.

    Args:
        named_images: An iterable of pairs of a name, for messages, and an image, a
            `uint8` array of shape `[H, W, 3]`.
        size: As of `load_image_folder`.
        count: The number of images, at least 1.

    Returns:
        `uint8` of shape `[count, H, W, 3]`.

    Raises:
        ValueError: If sizes differ and `size` is None.
    """
    # Filled in place, as a list of all images would need the memory twice.
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


def resize_square(images, size):
    """Crops images to the square in their middle and resizes it, with antialiasing.

    Args:
        images: `uint8` of shape `[H, W, 3]` or `[N, H, W, 3]`.
        size: Height and width of the result.

    Returns:
        `uint8` of shape `[size, size, 3]` or `[N, size, size, 3]`.

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


def _decode(file):
    """One file as uint8 `[H, W, 3]`."""
    content = file.read_bytes()
    try:
        _refuse_palette(content)
        image = tf.io.decode_image(content, channels=3, expand_animations=False)
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        # TensorFlow names its operation first, and the reason after it.
        reason = str(error).split("}} ")[-1].split(" [Op:")[0]
        raise ValueError(
            f"{file} ({len(content)} bytes) cannot be decoded: {reason} Remove it, or "
            "replace it by an intact PNG or JPEG file."
        ) from error
    return image.numpy()


def _refuse_palette(content):
    """Raises for BMP files whose colours TensorFlow would silently get wrong."""

    def number(start, length):
        return int.from_bytes(content[start : start + length], "little")

    if content[:2] != b"BM" or number(28, 2) != 8:
        return
    # It takes the 8-bit entries for grey levels, which most palettes do not hold.
    start = 14 + number(14, 4)
    grey = b"".join(bytes((level, level, level, 0)) for level in range(256))
    if number(30, 4) or content[start : start + 1024] != grey:
        raise ValueError("BMP files with a palette or compression are not supported.")
