"""Compares images compressed to codes with JPEG and WebP files of the same size.

    python recipes/benchmark_compression.py --data data --output out/compression

The images are the photographs that come with the package, the portrait of Grace Hopper
that comes with matplotlib (public domain; at half its size, which removes the traces of
its own JPEG compression), 8 x 8 test images of CIFAR-10 as one picture (with --data),
and those of --images. JPEG (with and without subsampled
colours, the better of the two) and WebP get the lowest quality at which the file is not
smaller than ours, or their highest if there is none (95 and 100). compression.md is the
table, compression.png shows the middle of each image and its errors.
"""

import io
import time
from pathlib import Path

from arguments import add_number, make_parser, user_errors

MAGNIFIED = 5  # Errors in the picture.


def chosen_images(options):
    """Returns images by name."""
    import numpy as np
    from matplotlib import cbook
    from PIL import Image

    from keras_vqem.command.photos import photos
    from keras_vqem.compression.tiles import from_tiles
    from keras_vqem.images import load_cifar10
    from keras_vqem.images.image_file import read_image

    with cbook.get_sample_data("grace_hopper.jpg") as file:
        portrait = np.asarray(Image.open(file).reduce(2))
    found = {
        "8 photographs": from_tiles(np.stack(photos()), 64, 128),
        "portrait": portrait,
    }
    if options.data:
        tiles = load_cifar10(options.data, "test")[0][: options.tiles**2]
        side = 32 * options.tiles
        found[f"{len(tiles)} of CIFAR-10"] = from_tiles(tiles, side, side)
    return found | {Path(path).stem: read_image(path) for path in options.images}


def coded(codec, image):
    """Returns rows of the table of our own files, with and without the prior."""
    start = time.monotonic()
    content = codec.compress(image)
    middle = time.monotonic()
    found = codec.decompress(content)
    seconds = (middle - start, time.monotonic() - middle)
    return {
        "codes under the prior": (len(content), found, seconds),
        "codes alone": (len(codec.compress(image, use_prior=False)), found, None),
    }


def other_formats(image, size):
    """Returns rows of the table of JPEG and WebP files, not smaller than a size."""
    from keras_vqem.evaluation.image_quality import psnr

    def nearest(kind, **settings):
        low, high = 1, 100 if kind == "webp" else 95
        while low < high:  # the lowest quality that is large enough
            middle = (low + high) // 2
            content = written(image, kind, quality=middle, **settings)
            low, high = (low, middle) if len(content) >= size else (middle + 1, high)
        content = written(image, kind, quality=low, **settings)
        return (f"{kind.upper()}, quality {low}", (len(content), read(content), None))

    ways = [nearest("jpeg", subsampling=n, optimize=True) for n in (0, 2)]
    best = max(ways, key=lambda way: psnr(image[None], way[1][1][None])[0])
    return dict([best, nearest("webp", method=6)])


def written(image, kind, **settings):
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **settings)
    return file.getvalue()


def read(content):
    import numpy as np
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def table_row(name, kind, image, row):
    from keras_vqem.evaluation.image_quality import psnr, ssim

    size, found, seconds = row
    height, width = image.shape[:2]
    cells = [
        f"{name}, {width} x {height}",
        kind,
        f"{size:,}",
        f"{8 * size / (height * width):.2f}",
        f"{psnr(image[None], found[None])[0]:.2f}",
        f"{ssim(image, found):.4f}",
        "" if seconds is None else "{:.1f}, {:.1f}".format(*seconds),
    ]
    return f"| {' | '.join(cells)} |"


def save_picture(path, images, found, crop):
    """Writes the middle of each image as a column: what comes back, and the errors."""
    import numpy as np

    from keras_vqem.command.demo import save_rows

    def middle(image):
        top, left = ((n - crop) // 2 for n in image.shape[:2])
        return image[top : top + crop, left : left + crop]

    originals = np.stack([middle(image) for image in images.values()])
    rows, errors = {"original": originals}, {}
    # The same codes come back without the prior: that row needs no picture.
    shown = [
        [w for k, w in ways.items() if k != "codes alone"] for ways in found.values()
    ]
    for number, way in enumerate(("codes", "JPEG", "WebP")):
        rows[way] = np.stack([middle(ways[number][1]) for ways in shown])
        error = 128 + MAGNIFIED * (rows[way].astype(int) - originals)
        errors[f"errors of {way}\ntimes {MAGNIFIED}"] = error.clip(0, 255).astype(
            "uint8"
        )
    save_rows(path, rows | errors)


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    help = "image model with codes: run, .keras file or preset (default: %(default)s)"
    add("--model", default="cifar10_em", metavar="RUN", help=help)
    add("--data", metavar="DIR", help="folder of CIFAR-10's binary files")
    help = "number of its images per row and column of the picture that they make"
    add_number(parser, "--tiles", 8, help)
    add("--images", nargs="+", default=[], metavar="FILE", help="files of other images")
    add_number(parser, "--crop", 64, "height and width of the parts in the picture")
    add("--output", type=Path, required=True, metavar="DIR", help="folder to write to")
    options = parser.parse_args(arguments)

    from keras_vqem.compression import ImageCodec
    from keras_vqem.files import replacing
    from keras_vqem.models import ImageVQVAE
    from keras_vqem.models.loading import load_model

    codec = ImageCodec(load_model(options.model, ImageVQVAE), options.model)
    images, found = chosen_images(options), {}
    codec.decompress(codec.compress(images["8 photographs"][:32, :32]))  # to warm up
    lines = [
        "| | | bytes | bits per pixel | PSNR, dB | SSIM | seconds, there and back |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    print("\n".join(lines), flush=True)
    for name, image in images.items():
        rows = coded(codec, image)
        rows |= other_formats(image, rows["codes under the prior"][0])
        found[name] = rows
        own = [table_row(name, kind, image, row) for kind, row in rows.items()]
        print("\n".join(own), flush=True)
        lines += own
    options.output.mkdir(parents=True, exist_ok=True)
    with replacing(options.output / "compression.md") as part:
        part.write_text("\n".join(lines) + "\n")
    crop = min(options.crop, *(side for i in images.values() for side in i.shape[:2]))
    save_picture(options.output / "compression.png", images, found, crop)
    for name in ("compression.md", "compression.png"):
        print(options.output / name)


if __name__ == "__main__":
    main()
