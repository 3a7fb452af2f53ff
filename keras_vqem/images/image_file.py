"""read_image: the pixels of an image file."""

import os
import pathlib

import numpy as np
import tensorflow as tf


def read_image(path: str | os.PathLike, max_pixels: int | None = None) -> np.ndarray:
    """Reads a PNG, JPEG or BMP file.

    Grey images and those with a palette become RGB, 16 bits per value become 8, and
    alpha channels are dropped: transparent pixels get the colours that they hide. The
    rotation in a photo's EXIF data is not applied.

    Args:
        path: Path of the file.
        max_pixels: Number of pixels above which an image is refused, before it is
            decoded. None for no limit.

    Returns:
        uint8 `[H, W, 3]`.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it cannot be decoded, or has too many pixels.

    Example:

    >>> import pathlib, tempfile
    >>> import tensorflow as tf
    >>> from keras_vqem.images.image_file import read_image
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "black.png"
    >>> png = tf.io.encode_png(np.zeros([40, 60, 1], "uint8")).numpy()
    >>> _ = path.write_bytes(png)
    >>> read_image(path).shape
    (40, 60, 3)
    """
    content = pathlib.Path(path).read_bytes()
    try:
        if max_pixels is not None:
            _refuse_many_pixels(path, content, max_pixels)
        _refuse_palette(content)
        image = tf.io.decode_image(content, channels=3, expand_animations=False)
    except (tf.errors.InvalidArgumentError, _Unreadable) as error:
        # TensorFlow's message names the operation first, then the reason.
        reason = str(error).split("}} ")[-1].split(" [Op:")[0]
        raise ValueError(
            f"{path} ({len(content)} bytes) cannot be decoded: {reason} Remove it, or "
            "replace it with an intact PNG or JPEG file."
        ) from error
    return image.numpy()


def image_size(content: bytes) -> tuple[int, int] | None:
    """Finds the size of an image without decoding it: small files may hold very many.

    Args:
        content: Bytes of the file, at least its beginning.

    Returns:
        A tuple `(height, width)` in pixels, or None if it is no PNG, JPEG or BMP file.

    Raises:
        tf.errors.InvalidArgumentError: If it is a damaged JPEG file.
    """
    if content[:8] == b"\x89PNG\r\n\x1a\n" and len(content) >= 24:
        return int.from_bytes(content[20:24]), int.from_bytes(content[16:20])
    if content[:3] == b"\xff\xd8\xff":
        height, width = tf.image.extract_jpeg_shape(content).numpy()[:2]
        return int(height), int(width)
    if content[:2] == b"BM" and len(content) >= 26:
        # Rows from top to bottom have a negative height.
        return abs(_number(content, 22, signed=True)), _number(content, 18)
    return None


class _Unreadable(ValueError):
    """Raised for a file that cannot be decoded."""


def _refuse_many_pixels(path, content, max_pixels):
    size = image_size(content)
    if size is None:
        raise _Unreadable("It is neither a PNG nor a JPEG nor a BMP file.")
    height, width = size
    if height * width > max_pixels:
        raise ValueError(
            f"{path} has {width} x {height} pixels, and at most {max_pixels:,} are "
            f"taken. Make the image smaller, or raise max_pixels, with the command by "
            f"--max-pixels {height * width}, if time and memory allow."
        )


def _refuse_palette(content):
    """Raises for BMP files whose colours TensorFlow would silently decode wrongly."""
    if content[:2] != b"BM" or _number(content, 28, 2) != 8:
        return
    # TensorFlow reads 8-bit palette indices as grey levels. That is right only if
    # entry i of the palette is grey level i.
    start = 14 + _number(content, 14)
    grey = b"".join(bytes((level, level, level, 0)) for level in range(256))
    if _number(content, 30) or content[start : start + 1024] != grey:
        raise _Unreadable("BMP files with a palette or compression are not supported.")


def _number(content, start, length=4, signed=False):
    return int.from_bytes(content[start : start + length], "little", signed=signed)
