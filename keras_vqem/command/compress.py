"""Compresses an image of any size to a file of codes.

The image (PNG, JPEG or BMP) is cut into tiles of 32 x 32 pixels, each tile becomes 640
codes, and the codes are stored in as many bits as the model's prior needs. The file
takes that model to read: `keras-vqem decompress` finds it by its name.
Compression is lossy. What is printed (PSNR, SSIM) is about the image that comes back.
Grey images and those with a palette become RGB, 16 bits per value become 8,
transparency is dropped, and the rotation in a photo's EXIF data is not applied.
"""

import argparse
import contextlib
import pathlib
import time
from collections.abc import Callable, Iterator

import numpy as np

from keras_vqem.command import problems
from keras_vqem.command.progress import Progress, duration
from keras_vqem.compression import ImageCodec, tiles
from keras_vqem.compression.image_codec import MAX_PIXELS
from keras_vqem.evaluation.image_quality import psnr, ssim
from keras_vqem.files import replacing
from keras_vqem.images.image_file import read_image
from keras_vqem.models import ImageVQVAE
from keras_vqem.models.loading import load_model, model_file, short_names

DEFAULT = "cifar10_em"
SUFFIX = ".vqem"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `keras-vqem compress`."""
    add = parser.add_argument
    add("image", type=pathlib.Path, metavar="IMAGE", help="PNG, JPEG or BMP file")
    help = f"file to write (default: IMAGE with the ending {SUFFIX})"
    add("--output", type=pathlib.Path, metavar="FILE", help=help)
    help = "image model with codes: name of a preset, folder of a preset or a finished "
    help += f"run, or .keras file (default: {DEFAULT})"
    add("--model", default=DEFAULT, help=help)
    help = "store codes at their full length: a larger file that is written and read "
    help += "at once, and does not depend on the arithmetic of the prior"
    add("--no-prior", action="store_true", help=help)
    add_max_pixels(parser)


def add_max_pixels(parser: argparse.ArgumentParser) -> None:
    """Adds the limit of the size of an image."""
    help = "number of pixels above which an image is refused (default: %(default)s)"
    parser.add_argument(
        "--max-pixels", type=int, default=MAX_PIXELS, metavar="N", help=help
    )


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Runs `keras-vqem compress`."""
    start = time.monotonic()
    with problems.told_by(parser, options.verbose):
        output = new_file(options.output, options.image.with_suffix(SUFFIX))
        image = read_image(options.image, options.max_pixels)
        model = load_model(options.model, ImageVQVAE)
        [name] = short_names([model_file(options.model)])
        codec = ImageCodec(model, name)
        codes = codec.encode(image)
        size = image.shape[:2]
        with tiles_told(*size, codec.tile_size) as tell:
            content = codec.pack(codes, *size, not options.no_prior, tell)
        with replacing(output) as part:
            part.write_bytes(content)
        before = options.image.stat().st_size
        print(
            f"{output}: {len(content):,} bytes, "
            f"{8 * len(content) / (size[0] * size[1]):.2f} bits per pixel; "
            f"{options.image} has {before:,} bytes"
        )
        print(f"What comes back: {likeness(image, codec.decode(codes, *size))}")
        print(f"That took {duration(time.monotonic() - start)}.")


def new_file(given: pathlib.Path | None, default: pathlib.Path) -> pathlib.Path:
    """Returns the file to write: the one that was given, or a default that is new.

    Args:
        given: File of --output, or None.
        default: File to write if none was given. It is never replaced.
    """
    if given is None and default.exists():
        raise FileExistsError(
            f"{default} exists already. Pass --output {default} to replace it, or "
            f"another name."
        )
    output = given or default
    if not output.parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {output.parent} to write to. Make it first."
        )
    return output


@contextlib.contextmanager
def tiles_told(
    height: int, width: int, tile_size: tuple[int, int]
) -> Iterator[Callable[[float], None]]:
    """Context manager that shows how many tiles of an image are done.

    Args:
        height: Height of the image in pixels.
        width: Width of the image in pixels.
        tile_size: Tuple `(height, width)` of a tile.

    Yields:
        A function that is told the number of tiles that are done.
    """
    progress = Progress(tiles.count_tiles(height, width, tile_size), unit="tiles")
    try:
        yield lambda done: progress.tell(done, int(done))
    finally:
        progress.clear()


def likeness(image: np.ndarray, other: np.ndarray) -> str:
    """Returns how alike two images are, in words."""
    words = f"PSNR {psnr(image[None], other[None])[0]:.2f} dB"
    similar = ssim(image, other)
    return words if similar != similar else f"{words}, SSIM {similar:.4f}"
