"""Turns a file that `keras-vqem compress` wrote back into an image.

A damaged file and codes of another model are refused. The codes come back exactly.
Their image is computed in float32, so that on another computer a value of a pixel may
be rounded to its neighbour.
"""

import argparse
import pathlib
import time

import tensorflow as tf

from keras_vqem.command import problems
from keras_vqem.command.compress import add_max_pixels, new_file, tiles_told
from keras_vqem.command.progress import duration
from keras_vqem.compression import ImageCodec
from keras_vqem.compression.code_file import CodeFile
from keras_vqem.files import replacing
from keras_vqem.models import ImageVQVAE, preset
from keras_vqem.models.loading import load_model, model_file, short_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `keras-vqem decompress`."""
    add = parser.add_argument
    add("file", type=pathlib.Path, metavar="FILE", help="file of codes")
    help = "PNG file to write (default: FILE with the ending .png)"
    add("--output", type=pathlib.Path, metavar="FILE", help=help)
    help = "image model that the file was made with, as in compress (default: the "
    help += "preset that the file names)"
    add("--model", help=help)
    add_max_pixels(parser)


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Runs `keras-vqem decompress`."""
    start = time.monotonic()
    with problems.told_by(parser, options.verbose):
        output = new_file(options.output, options.file.with_suffix(".png"))
        if output.suffix.lower() != ".png":
            raise ValueError(f"{output} does not end in .png. Pass such a name.")
        content = options.file.read_bytes()
        try:
            found = CodeFile.from_bytes(content)
            chosen = options.model or preset_named(found.model)
            model = load_model(chosen, ImageVQVAE)
            [name] = short_names([model_file(chosen)])
            codec = ImageCodec(model, name)
            size = (found.height, found.width)
            with tiles_told(*size, codec.tile_size) as tell:
                image = codec.decompress(content, options.max_pixels, tell)
        except ValueError as error:
            raise ValueError(f"{options.file}: {error}") from error
        with replacing(output) as part:
            part.write_bytes(tf.io.encode_png(image).numpy())
        height, width = image.shape[:2]
        print(f"{output}: {width} x {height} pixels")
        print(f"That took {duration(time.monotonic() - start)}.")


def preset_named(name: str) -> str:
    """Returns the name of the model in a file, if it is a preset of the package.

    Args:
        name: Name in the file. It may be anything, so it is no path to load from.
    """
    if name in preset.shipped():
        return name
    raise ValueError(
        f"It was made with the model {name!r}, which does not come with this version "
        f"of the package. Pass that model as --model."
    )
