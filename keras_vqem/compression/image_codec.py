"""ImageCodec: images of any size to files of codes, and back."""

import functools
import zlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_vqem.compression import tiles
from keras_vqem.compression.code_coders import PriorCoder, UniformCoder
from keras_vqem.compression.code_file import TILES_PER_BATCH, CodeFile
from keras_vqem.models import ImageVQVAE
from keras_vqem.models.fingerprint import fingerprint

MAX_PIXELS = 4 * 2**20
Progress = Callable[[float], None]  # It is told the number of tiles that are done.


class ImageCodec:
    """Compresses images of any size by an `ImageVQVAE`.

    An image is cut into tiles of the size that the model was trained for, each tile
    becomes codes, and the codes become bytes under the prior over codes. The codes come
    back exactly. The image is what the decoder makes of them: the compression is lossy.

    Args:
        model: An `ImageVQVAE`. With a prior, files are smaller.
        name: Name of the model, which is written into files to tell what they need.

    Example:

    >>> model = keras_vqem.models.ImageVQVAE.from_preset("cifar10_em")
    >>> codec = keras_vqem.compression.ImageCodec(model, "cifar10_em")
    >>> image = keras_vqem.images.shapes.images(1, size=48)[0][0]
    >>> data = codec.compress(image)
    >>> codec.decompress(data).shape
    (48, 48, 3)
    """

    def __init__(self, model: ImageVQVAE, name: str = ""):
        if not model.built:
            model.build()
        self.model, self.name = model, name
        self.tile_size = model.image_size
        images = tf.TensorSpec([None, *model.image_size, 3], "uint8")
        self._encode = tf.function(model.encode, [images], autograph=False)
        blank = np.zeros((1, *model.image_size, 3), "uint8")
        self.grid = tuple(self._encode(blank).shape[1:])

    @functools.cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the model, which is written into files."""
        return fingerprint(self.model)

    @functools.cached_property
    def _prior_coder(self):
        return PriorCoder(self.model.prior)

    def _coder(self, prior):
        if prior:
            return self._prior_coder
        return UniformCoder(self.grid, self.model.bottleneck.num_codes)

    # The whole way.

    def compress(
        self,
        image: np.ndarray,
        use_prior: bool = True,
        progress: Progress | None = None,
    ) -> bytes:
        """Turns an image into the content of a file.

        Args:
            image: uint8 `[H, W, 3]` of any size.
            use_prior: Whether to code the codes under the model's prior, if it has one.
                Otherwise each takes log2 `num_codes` bits.
            progress: Function that is told the number of tiles that are done, or None.

        Returns:
            Bytes, to be written to a file.
        """
        codes = self.encode(image)
        return self.pack(codes, *image.shape[:2], use_prior, progress)

    def decompress(
        self,
        content: bytes,
        max_pixels: int = MAX_PIXELS,
        progress: Progress | None = None,
    ) -> np.ndarray:
        """Turns the content of a file back into an image.

        Args:
            content: Bytes that `compress` returned.
            max_pixels: Number of pixels above which an image is refused.
            progress: Function that is told the number of tiles that are done, or None.

        Returns:
            uint8 `[H, W, 3]`.

        Raises:
            ValueError: If the content is damaged, or of another model.
        """
        return self.decode(*self.unpack(content, max_pixels, progress))

    # The two halves: images and codes, codes and bytes.

    def encode(self, image: np.ndarray) -> np.ndarray:
        """Encodes an image to the codes of its tiles.

        Args:
            image: uint8 `[H, W, 3]` of any size.

        Returns:
            int32 `[N, rows, columns, slots]`, tiles row by row.

        Raises:
            ValueError: If `image` is no such array.
        """
        image = np.asarray(image)
        wrong = image.ndim != 3 or image.shape[-1] != 3 or not image.size
        if wrong or image.dtype != np.uint8:
            raise ValueError(
                f"`image` must be uint8 of shape [H, W, 3], received {image.dtype} of "
                f"shape {list(image.shape)}. Convert it to RGB values from 0 to 255."
            )
        parts = _batches(tiles.to_tiles(image, self.tile_size))
        return np.concatenate([self._encode(part).numpy() for part in parts])

    def decode(self, codes: np.ndarray, height: int, width: int) -> np.ndarray:
        """Decodes the codes of tiles to an image.

        Args:
            codes: int32 `[N, rows, columns, slots]`, as `encode` returns them.
            height: Height of the image in pixels.
            width: Width of the image in pixels.

        Returns:
            uint8 `[height, width, 3]`.
        """
        found = np.empty((len(codes), *self.tile_size, 3), "uint8")
        for part, place in zip(_batches(codes), _batches(found), strict=True):
            place[:] = self.model.decode(part).numpy()
        return tiles.from_tiles(found, height, width)

    def pack(
        self,
        codes: np.ndarray,
        height: int,
        width: int,
        use_prior: bool = True,
        progress: Progress | None = None,
    ) -> bytes:
        """Turns the codes of tiles into the content of a file.

        Args:
            codes: int32 `[N, rows, columns, slots]`, as `encode` returns them.
            height: Height of the image in pixels.
            width: Width of the image in pixels.
            use_prior: Whether to code them under the model's prior, if it has one.
            progress: Function that is told the number of tiles that are done, or None.
        """
        prior = use_prior and self.model.prior is not None
        coder, batches, done = self._coder(prior), [], 0
        for part in _batches(codes):
            batches.append((_checksum(part), coder.encode(part)))
            done += len(part)
            if progress is not None:
                progress(done)
        content = (self.name, self.fingerprint, prior, height, width, tuple(batches))
        return CodeFile(*content).to_bytes()

    def unpack(
        self,
        content: bytes,
        max_pixels: int = MAX_PIXELS,
        progress: Progress | None = None,
    ) -> tuple[np.ndarray, int, int]:
        """Reads the codes of tiles from the content of a file.

        Args:
            content: Bytes that `pack` or `compress` returned.
            max_pixels: Number of pixels above which an image is refused.
            progress: Function that is told the number of tiles that are done, or None.

        Returns:
            A tuple `(codes, height, width)`, as `decode` takes them.

        Raises:
            ValueError: If the content is damaged, or of another model.
        """
        file = CodeFile.from_bytes(content)
        self._check(file, max_pixels)
        coder, parts = self._coder(file.prior), []
        count, done = tiles.count_tiles(file.height, file.width, self.tile_size), 0
        for checksum, data in file.batches:
            number = min(TILES_PER_BATCH, count - done)
            try:
                part = coder.decode(data, number, _shifted(progress, done, number))
                intact = _checksum(part) == checksum
            except ValueError:  # The file has its checksum, so it is not damaged.
                intact = False
            if not intact:
                raise ValueError(_other_numbers(file))
            parts.append(part)
            done += number
        return np.concatenate(parts), file.height, file.width

    def _check(self, file, max_pixels):
        """Raises unless the codes are of this model, and not too many."""
        if file.fingerprint != self.fingerprint:
            raise ValueError(
                f"The codes are of the model {file.model!r} with the fingerprint "
                f"{file.fingerprint}, and mean nothing to this one, {self.name!r} with "
                f"{self.fingerprint}. Decompress them with the model that they were "
                f"made with."
            )
        if file.height * file.width > max_pixels:
            raise ValueError(
                f"The image has {file.width} x {file.height} pixels, and at most "
                f"{max_pixels:,} are taken. Raise max_pixels, with the command by "
                f"--max-pixels {file.height * file.width}, if time and memory allow."
            )
        count = tiles.count_tiles(file.height, file.width, self.tile_size)
        expected = -(-count // TILES_PER_BATCH)
        if len(file.batches) != expected or (file.prior and self.model.prior is None):
            raise ValueError(
                f"The file does not fit itself: it has {len(file.batches)} batches of "
                f"tiles for {file.width} x {file.height} pixels, which make {expected}."
            )


def _batches(array):
    """Views of an array, one per batch of tiles."""
    return [
        array[first : first + TILES_PER_BATCH]
        for first in range(0, len(array), TILES_PER_BATCH)
    ]


def _checksum(codes):
    return zlib.crc32(np.ascontiguousarray(codes, "<i4").tobytes())


def _shifted(progress, done, number):
    """Turns a function that is told tiles into one that is told shares of a batch."""
    if progress is None:
        return None
    return lambda share: progress(done + share * number)


def _other_numbers(file):
    if not file.prior:
        return (
            "The codes do not have the checksum of their batch, although the file has "
            "its own: what wrote it was no `keras-vqem compress`."
        )
    return (
        "The codes do not have the checksum of their batch, although the file is "
        "intact: the prior computes other probabilities here than where the file was "
        "written. Compress the image again without the prior (--no-prior, or "
        "use_prior=False); such files do not depend on it."
    )
