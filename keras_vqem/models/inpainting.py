"""Masks of images: what is under them, and which cells of codes are known."""

import tensorflow as tf
from numpy.typing import ArrayLike

from keras_vqem.checks import integers


def checked(images: ArrayLike, known: ArrayLike) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns images, and which of their pixels are known, booleans `[B, H, W]`.

    Args:
        images: uint8 `[B, H, W, 3]`.
        known: Booleans `[B, H, W]`, or `[H, W]` for all images.
    """
    images, known = integers("images", images, 255), tf.convert_to_tensor(known)
    shape = images.shape[:3]
    if known.dtype != tf.bool or not any(
        known.shape.is_compatible_with(fit) for fit in (shape, shape[1:])
    ):
        raise ValueError(
            f"`known` must be booleans of shape {tuple(shape[1:])} or {tuple(shape)}, "
            f"True for pixels to keep; received {known.dtype.name} of shape "
            f"{tuple(known.shape)}."
        )
    return images, tf.broadcast_to(known, tf.shape(images)[:3])


def filled(images: tf.Tensor, known: tf.Tensor) -> tf.Tensor:
    """Fills what is not known of images from around it, with nothing else.

    Known pixels spread by one pixel per turn, as the mean of those around.

    Args:
        images: uint8 `[B, H, W, 3]`.
        known: Booleans `[B, H, W]`.

    Returns:
        uint8 `[B, H, W, 3]`. An image of which nothing is known is grey.
    """
    there = tf.cast(known, tf.float32)[..., None]
    x = tf.cast(images, tf.float32) * there

    def mean(values):
        return tf.nn.avg_pool2d(values, 3, 1, "SAME")

    def spread(x, there):
        reached = mean(there)
        around = tf.math.divide_no_nan(mean(x * there), reached)
        new = tf.cast(reached > 0, tf.float32)
        return tf.where(there > 0, x, around), tf.maximum(there, new)

    x, there = tf.while_loop(
        lambda x, there: tf.reduce_any(there == 0),
        spread,
        (x, there),
        maximum_iterations=max(images.shape[1:3]),
    )
    return tf.cast(tf.round(tf.where(there > 0, x, 127.0)), tf.uint8)


def known_cells(known: tf.Tensor, rows: int, columns: int) -> tf.Tensor:
    """Returns which cells of a grid over the image are known to the last pixel.

    Args:
        known: Booleans `[B, H, W]`.
        rows: Number of rows of cells.
        columns: Number of columns of cells.

    Returns:
        Booleans `[B, rows, columns]`.
    """
    height, width = known.shape[1] // rows, known.shape[2] // columns
    cells = tf.reshape(known, (-1, rows, height, columns, width))
    return tf.reduce_all(cells, axis=(2, 4))
