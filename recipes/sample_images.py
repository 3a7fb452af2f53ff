"""Writes pictures of reconstructions and samples of an image autoencoder.

    python recipes/sample_images.py --model runs/image_em --prior runs/image_em_prior \\
        --data data --output out/pictures

The pictures are reconstructions.png (test images above their reconstructions),
interpolations.png (from one image to another, through the codebook) and, with a prior,
samples.png (new images) and inpainting.png (test images, their upper halves, and
completions of the lower halves).
"""

from pathlib import Path

from arguments import add_number, make_parser, user_errors
from image_arguments import add_image_model_arguments, image_data


def reconstructions(model, images, columns):
    import numpy as np

    found = np.asarray(model.reconstruct(images))
    pairs = np.stack([images, found]).reshape(2, -1, columns, *images.shape[1:])
    return pairs.transpose(1, 0, 2, 3, 4, 5).reshape(-1, columns, *images.shape[1:])


def interpolations(model, images, columns):
    """Returns rows of images, each from one image to another."""
    import numpy as np

    first, last = np.split(np.asarray(model.compressed(images)), 2)
    rows = []
    for a, b in zip(first, last, strict=True):
        share = np.linspace(0, 1, columns, dtype="float32")[:, None, None, None]
        vectors = (1 - share) * a + share * b
        codes = model.bottleneck.encode(vectors)
        rows.append(model.expected(model.bottleneck.decode(codes)))
    return np.stack(rows)


def inpainting(model, prior, images, completions, seed):
    """Returns columns: images, their upper halves, and completions of these."""
    import numpy as np

    middle = images.shape[1] // 2
    given, shown = images.copy(), images.copy()
    # A code also depends on neighbouring cells, which must not reveal the lower half.
    # So the last known row of pixels is repeated below.
    given[:, middle:] = images[:, middle - 1 : middle]
    shown[:, middle:] = 128
    codes = np.asarray(model.encode(given))
    half = codes.reshape(len(codes), -1)[:, : codes[0].size // 2]
    columns = [images, shown]
    for number in range(completions):
        own = (seed, 1 + number)
        drawn = prior.sample(len(codes), seed=own, prefix=half)
        columns.append(np.asarray(model.generated(drawn, own)))
    return np.stack(columns, axis=1)


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add_image_model_arguments(parser)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for the pictures",
    )
    add_number(parser, "--columns", 10, "number of images per row")
    add_number(parser, "--rows", 4, "number of rows per picture")
    help = "temperature of samples; 0 takes the most probable symbols"
    add_number(parser, "--temperature", 1.0, help)
    add_number(parser, "--seed", 0, "seed of samples", int)
    options = parser.parse_args(arguments)
    if options.temperature < 0:
        parser.error("--temperature must not be negative")

    import numpy as np

    from keras_vqem.evaluation.image_grids import save_grid
    from keras_vqem.models import ImageVAE, ImageVQVAE
    from keras_vqem.models.loading import load_with_prior

    rows, columns = options.rows, options.columns
    model = load_with_prior(options.model, options.prior, ImageVQVAE, ImageVAE)
    images = image_data(options).images("test")
    prior = model.prior if isinstance(model, ImageVQVAE) else None
    needed = max(rows * columns, 2 * rows)
    if len(images) < needed:
        raise ValueError(
            f"There are {len(images)} test images, but {rows} rows of {columns} need "
            f"{needed}. Choose fewer --rows or --columns."
        )
    images = images[:needed]
    pictures = {
        "reconstructions": reconstructions(model, images[: rows * columns], columns),
        "interpolations": interpolations(model, images[: 2 * rows], columns),
    }
    if prior is not None:
        samples = np.asarray(
            model.sample(rows * columns, (options.seed, 0), options.temperature)
        )
        pictures["samples"] = samples.reshape(rows, columns, *samples.shape[1:])
        pictures["inpainting"] = inpainting(
            model, prior, images[:rows], max(columns - 2, 1), options.seed
        )
    options.output.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        path = options.output / f"{name}.png"
        save_grid(path, picture)
        print(path)


if __name__ == "__main__":
    main()
