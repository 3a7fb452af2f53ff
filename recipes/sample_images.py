"""Pictures of what an autoencoder of images and its prior have learned.

    python recipes/sample_images.py --model runs/image_em --prior runs/image_em_prior \\
        --data data --output out/pictures

Writes reconstructions.png (test images above their reconstructions from codes),
interpolations.png (from one image to another, through the codebook) and, with a prior,
samples.png (new images) and inpainting.png (the lower half of test images imagined from
the upper one: original, given half, completions).
"""

from pathlib import Path

from arguments import add_image_data_arguments, image_data, make_parser


def reconstructions(model, images, columns):
    import numpy as np

    found = np.asarray(model.reconstruct(images))
    pairs = np.stack([images, found]).reshape(2, -1, columns, *images.shape[1:])
    return pairs.transpose(1, 0, 2, 3, 4, 5).reshape(-1, columns, *images.shape[1:])


def interpolations(model, images, columns):
    """Rows of images, each leading from one image to another."""
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
    """Columns: images, the half that is given, and completions of that half."""
    import numpy as np

    middle = images.shape[1] // 2
    given, shown = images.copy(), images.copy()
    # A code depends on neighbouring cells too. These must not give away what is to be
    # imagined, so the last known row of pixels is repeated below.
    given[:, middle:] = images[:, middle - 1 : middle]
    shown[:, middle:] = 128
    codes = np.asarray(model.encode(given))
    half = codes.reshape(len(codes), -1)[:, : codes[0].size // 2]
    columns = [images, shown]
    for number in range(completions):
        drawn = prior.sample(len(codes), seed=(seed, 1 + number), prefix=half)
        columns.append(np.asarray(model.decode(drawn)))
    return np.stack(columns, axis=1)


def main(arguments=None):
    parser = make_parser(__doc__)
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    add(
        "--model",
        required=True,
        metavar="RUN",
        help="finished run, .keras file or preset",
    )
    prior_help = "run of train_image_prior.py (default: the prior of the model, if any)"
    add("--prior", metavar="RUN", help=prior_help)
    add_image_data_arguments(parser)
    output_help = "folder for the pictures"
    add("--output", type=Path, required=True, metavar="DIR", help=output_help)
    add("--columns", default=10, **number, help="images per row (default: 10)")
    add("--rows", default=4, **number, help="rows per picture (default: 4)")
    temperature_help = "temperature of samples, 0 for the most probable (default: 1.0)"
    add("--temperature", type=float, default=1.0, metavar="T", help=temperature_help)
    add("--seed", default=0, **number, help="seed of samples (default: 0)")
    options = parser.parse_args(arguments)
    if min(options.columns, options.rows) < 1:
        parser.error("--columns and --rows must be at least 1")
    if options.temperature < 0:
        parser.error("--temperature must not be negative")

    import numpy as np

    from keras_vqem.evaluation.image_grids import save_grid
    from keras_vqem.models import ImageVAE, ImageVQVAE
    from keras_vqem.models.loading import load_with_prior

    rows, columns = options.rows, options.columns
    try:
        model = load_with_prior(options.model, options.prior, ImageVQVAE, ImageVAE)
        images = image_data(options).images("test")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    prior = model.prior if isinstance(model, ImageVQVAE) else None
    needed = max(rows * columns, 2 * rows)
    if len(images) < needed:
        parser.error(
            f"there are {len(images)} test images, and {rows} rows of {columns} take "
            f"{needed}: choose fewer --rows or --columns"
        )
    images = images[:needed]
    pictures = {
        "reconstructions": reconstructions(model, images[: rows * columns], columns),
        "interpolations": interpolations(model, images[: 2 * rows], columns),
    }
    if prior is not None:
        drawn = prior.sample(
            rows * columns, (options.seed, 0), temperature=options.temperature
        )
        samples = np.asarray(model.decode(drawn))
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
