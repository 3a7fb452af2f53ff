"""Shows the trained models at work: translations side by side, images from codes."""

import argparse
import os
import pathlib
import time
from typing import TYPE_CHECKING

from keras_vqem.command import problems

if TYPE_CHECKING:
    import numpy as np

SENTENCES = (
    "A man is riding a bicycle down the street.",
    "Two children are playing with a dog in the snow.",
    "A woman in a red jacket is standing in front of a large building.",
)
TEACHER, PARALLEL, LATENT, STYLED, IMAGES = (
    "multi30k_en_de_teacher",
    "multi30k_en_de_ctc",
    "multi30k_en_de_em",
    "tatoeba_en_de_codes",
    "cifar10_em",
)
STYLED_SENTENCES = ("What did you buy yesterday?", "Can you help me?")
# Samples are smoother at temperatures a little below 1.
SEED, TEMPERATURE = (0, 1), 0.9
NO_IMAGES = (
    f"The image part is left out: the preset {IMAGES} is not installed. "
    f"`keras-vqem zoo` lists the installed presets."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `keras-vqem demo`."""
    add = parser.add_argument
    default = pathlib.Path("out", "demo.png")
    add(
        "--output",
        type=pathlib.Path,
        default=default,
        help=f"PNG file to write (default: {default})",
    )
    add("--web", action="store_true", help="serve a page for the browser instead")
    add("--port", type=int, default=8000, help="port of the page (default: 8000)")
    add("--teacher", metavar="MODEL", help=f"Transformer (default: {TEACHER})")
    add("--latent", metavar="MODEL", help=f"LatentNMT (default: {LATENT})")


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Runs `keras-vqem demo`."""
    start = time.monotonic()
    with problems.told_by(parser, options.verbose):
        if options.web:
            from keras_vqem.command import web

            web.serve(options.port, options.teacher, options.latent)
            return
        show_translations()
        show_styles()
        show_images(options.output)
    print(
        f"\nThat took {time.monotonic() - start:.0f} s. What to try next:\n"
        '  keras-vqem translate "Your own sentence that describes a photo."\n'
        "  keras-vqem demo --web      # change a code and see the text change\n"
        "  keras-vqem zoo             # models, data, metrics and terms of use\n"
        "  keras-vqem export multi30k_en_de_ctc models/en_de   # docs/serving.md\n"
        "  python recipes/numbers_demo.py    # train a latent translator yourself"
    )


def show_translations() -> None:
    """Prints translations of the teacher and of both parallel translators."""
    from keras_vqem.evaluation import latency
    from keras_vqem.models import CTCTranslator, LatentNMT, Transformer

    models = {
        "teacher": Transformer.from_preset(TEACHER),
        "parallel": CTCTranslator.from_preset(PARALLEL),
        "codes": LatentNMT.from_preset(LATENT),
    }
    latent = models["codes"]
    functions = {}
    for name, model in models.items():
        graph = model.translation_graph()
        source_ids = model.tokenizer.encode(SENTENCES[-1:]).to_tensor()
        functions[name] = lambda g=graph, s=source_ids: g(s).numpy()
    found = {name: model.translate(SENTENCES) for name, model in models.items()}
    for row, sentence in enumerate(SENTENCES):
        ids = latent.tokenizer.encode([sentence]).to_tensor()
        codes = [
            int(code)
            for code in latent.generate(ids)["codes"].numpy()[0]
            if code < latent.bottleneck.num_codes
        ]
        print(f"\n{sentence}")
        for name, texts in found.items():
            print(f"  {name:<8}  {texts[row]}")
        print(f"            from the codes {codes}")
    times = latency.measure(functions, rounds=20)
    print(
        f"\nTime for the last sentence, median of 20: the teacher, word by word, "
        f"{times['teacher'].median_ms:.1f} ms; all words in one pass, "
        f"{times['parallel'].median_ms:.1f} ms; a few codes first, then all words at "
        f"once, {times['codes'].median_ms:.1f} ms."
    )


def show_styles() -> None:
    """Prints one translation per style of the model whose codes have names."""
    from keras_vqem.models import LatentNMT

    model = LatentNMT.from_preset(STYLED)
    for sentence in STYLED_SENTENCES:
        print(f"\n{sentence}")
        for style in model.styles:
            [text] = model.translate([sentence], style=style)
            print(f"  {style:<8}  {text}")


def show_images(path: pathlib.Path) -> None:
    """Writes a picture of photographs, their reconstructions and samples."""
    import numpy as np

    from keras_vqem.command.photos import photos
    from keras_vqem.models import ImageVQVAE

    try:
        model = ImageVQVAE.from_preset(IMAGES)
    except FileNotFoundError:
        print(f"\n{NO_IMAGES}")
        return
    images = photos()
    codes = np.asarray(model.encode(images))
    cat, coffee, shuttle, rocket = images[[0, 1, 3, 4]]
    halves = np.stack([cat, cat, coffee, coffee, shuttle, shuttle, rocket, rocket])
    rows = {
        "photographs": images,
        f"the same from\n{codes[0].size} codes each": model.decode(codes),
        "from one to another\nthrough the codebook": _between(model, cat, coffee),
        "upper half given,\nlower half imagined": _completed(model, halves),
        "samples\nof the prior": _sampled(model, len(images)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    save_rows(path, {name: np.asarray(row) for name, row in rows.items()})
    print(f"\nRows of {path}:")
    for name in rows:
        print(f"  {' '.join(name.split())}")


def _between(model, first, last, count=8):
    """Returns images whose vectors lie between those of two images."""
    import numpy as np

    first, last = np.asarray(model.compressed(np.stack([first, last])))
    share = np.linspace(0, 1, count, dtype="float32")[:, None, None, None]
    codes = model.bottleneck.encode((1 - share) * first + share * last)
    return model.expected(model.bottleneck.decode(codes))


def _completed(model, images):
    """Returns images with lower halves drawn from the prior."""
    import numpy as np

    images, middle = images.copy(), images.shape[1] // 2
    # Codes also depend on the cells below, so these repeat the last given row.
    images[:, middle:] = images[:, middle - 1 : middle]
    codes = np.asarray(model.encode(images))
    return _sampled(
        model, len(codes), codes.reshape(len(codes), -1)[:, : codes[0].size // 2]
    )


def _sampled(model, count, prefix=None):
    import tensorflow as tf

    # Without a graph it takes several times as long.
    sample = tf.function(
        lambda: model.prior.sample(count, SEED, TEMPERATURE, prefix), autograph=False
    )
    return model.decode(sample())


def save_rows(path: str | os.PathLike, rows: dict[str, "np.ndarray"]) -> None:
    """Writes rows of images to a PNG file, with labels if matplotlib is installed.

    Args:
        path: File to write.
        rows: Dict from labels to uint8 `[columns, H, W, 3]`.
    """
    import numpy as np

    from keras_vqem.evaluation.image_grids import grid, save_grid
    from keras_vqem.files import replacing

    images = np.stack(list(rows.values()))
    try:
        from matplotlib import figure
    except ImportError:
        save_grid(path, images)
        return
    picture = grid(images, zoom=4, gap=4)
    height, width = picture.shape[:2]
    label = 300  # pixels
    canvas = figure.Figure(figsize=((width + label) / 100, height / 100), dpi=100)
    axes = canvas.add_axes((label / (width + label), 0, width / (width + label), 1))
    axes.imshow(picture, interpolation="nearest", aspect="auto")
    axes.set_axis_off()
    for number, name in enumerate(rows):
        middle = 1 - (number + 0.5) / len(rows)
        place = (label - 12) / (width + label)
        canvas.text(place, middle, name, ha="right", va="center", fontsize=15)
    with replacing(path) as part:
        canvas.savefig(part, format="png")
