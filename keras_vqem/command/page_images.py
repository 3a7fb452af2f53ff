"""Images of the demo page, encoded and decoded by an `ImageVQVAE`."""

import base64
from typing import Any

import numpy as np
import tensorflow as tf

from keras_vqem.command.photos import photos
from keras_vqem.command.problems import Refused, said
from keras_vqem.evaluation.image_quality import psnr
from keras_vqem.images.image_file import image_size
from keras_vqem.models import ImageVQVAE

MAX_PIXELS = 32 * 10**6
SAMPLES = 8


class Pictures:
    """Answers the requests of the page about images.

    Args:
        model: An `ImageVQVAE`, with or without a prior.
    """

    def __init__(self, model: ImageVQVAE):
        self.model = model
        self.examples = [fitted(image, model.image_size) for image in photos()]
        self.grid = tuple(np.shape(model.encode(self.examples[0][None]))[1:])
        # Of a prior with classes, the first few.
        classes = None if model.prior is None else model.prior.num_classes
        given = {} if classes is None else {"labels": np.arange(SAMPLES) % classes}
        self._sample_graph = tf.function(
            lambda seed: model.sample(SAMPLES, seed, **given),
            input_signature=[tf.TensorSpec([2], "int32")],
            autograph=False,
        )

    def about(self) -> dict[str, Any]:
        """Returns example images and facts about the model."""
        return {
            "examples": [_data_url(image) for image in self.examples],
            "size": self.model.image_size,
            "num_codes": self.model.bottleneck.num_codes,
            "prior": self.model.prior is not None,
        }

    def through(self, image: np.ndarray) -> dict[str, Any]:
        """Returns the codes of an image and its reconstruction."""
        codes = self.model.encode(image[None])
        left = np.asarray(self.model.decode(codes))
        codes = np.asarray(codes)[0]
        return {
            "original": _data_url(image),
            "reconstruction": _data_url(left[0]),
            "psnr": float(psnr(image[None], left)[0]),
            "codes": codes.tolist(),
        }

    def checked(self, codes: Any) -> np.ndarray:
        """Returns the codes of a request as an array, or raises `Refused`."""
        try:
            found = np.array(codes)
        except (ValueError, RecursionError):  # Rows of different lengths, or depths.
            found = np.array("")
        if found.dtype.kind != "i" or found.shape != self.grid:
            raise Refused(
                f"`codes` must be {' x '.join(map(str, self.grid))} integers, received "
                f"{said(codes)}.",
            )
        most = self.model.bottleneck.num_codes - 1
        wrong = found[(found < 0) | (found > most)]
        if wrong.size:
            raise Refused(f"A code must be from 0 to {most}, received {wrong[0]}.")
        return found.astype("int32")

    def decode(self, codes: np.ndarray) -> dict[str, Any]:
        """Returns the image that codes stand for."""
        found = np.asarray(self.model.decode(codes[None]))
        return {"reconstruction": _data_url(found[0])}

    def samples(self, seed: int) -> dict[str, Any]:
        """Returns images drawn from the prior."""
        if self.model.prior is None:
            raise Refused("This image model has no prior to draw from.", 404)
        found = self._sample_graph(tf.constant([0, seed], "int32")).numpy()
        return {"images": [_data_url(image) for image in found]}


def decoded(content: bytes) -> np.ndarray:
    """Decodes the bytes of a PNG or JPEG file to uint8 `[H, W, 3]`."""
    try:
        size = image_size(content) if content[:2] != b"BM" else None
        if size is None:
            raise Refused(
                "This is neither a PNG nor a JPEG image. Choose a file that ends in "
                ".png, .jpg or .jpeg.",
                415,
            )
        height, width = size
        if height * width > MAX_PIXELS:
            raise Refused(
                f"The image has {width} x {height} pixels. Choose an image of at most "
                f"{MAX_PIXELS // 10**6} million pixels.",
            )
        return tf.io.decode_image(content, channels=3, expand_animations=False).numpy()
    except tf.errors.InvalidArgumentError:
        raise Refused(
            "The image is damaged and cannot be read. Choose another."
        ) from None


def fitted(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Crops an image `[H, W, 3]` around its centre and resizes it to `size`."""
    height, width = image.shape[:2]
    rows, columns = size
    image = tf.image.resize_with_crop_or_pad(
        image,
        min(height, max(1, round(width * rows / columns))),
        min(width, max(1, round(height * columns / rows))),
    )
    # Bicubic interpolation overshoots at edges.
    image = tf.image.resize(image, size, "bicubic", antialias=True)
    return tf.saturate_cast(tf.round(image), "uint8").numpy()


def _data_url(image):
    png = tf.io.encode_png(image).numpy()
    return "data:image/png;base64," + base64.b64encode(png).decode()
