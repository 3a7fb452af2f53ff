"""Pictures of what an autoencoder of images and its prior have learned.

    python recipes/sample_images.py --model runs/image_em --prior runs/image_em_prior \\
        --data data --output out/pictures

Writes reconstructions.png (test images above what is left of them after the codes),
interpolations.png (from one image to another, through the codebook) and, with a
prior, samples.png (images that never were) and inpainting.png (the lower half of test
images imagined from the upper one: original, given half, completions).
"""

import argparse
from pathlib import Path


def reconstructions(model, images, columns):
    import numpy as np

    found = np.asarray(model.reconstruct(images))
    pairs = np.stack([images, found]).reshape(2, -1, columns, *images.shape[1:])
    return pairs.transpose(1, 0, 2, 3, 4, 5).reshape(-1, columns, *images.shape[1:])


def interpolations(model, images, columns):
    """Each row leads from one image to another."""
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
    """Columns: images, the half that is given, and completions of it."""
    import numpy as np

    middle = images.shape[1] // 2
    given, shown = images.copy(), images.copy()
    # A code knows of its cell's neighbours. These must not tell of what is to be
    # imagined, so the last row that is known goes on.
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    from keras_vqem.training import image_run

    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    add("--model", required=True, metavar="RUN", help="run, .keras file or preset")
    add("--prior", metavar="RUN", help="of train_image_prior.py (the model's own)")
    image_run.add_data_arguments(parser)
    add("--output", type=Path, required=True, metavar="DIR", help="for the pictures")
    add("--columns", default=10, **number, help="images in a row: 10")
    add("--rows", default=4, **number, help="of a picture: 4")
    add("--temperature", type=float, default=1.0, help="of samples: 1.0")
    add("--seed", type=int, default=0, help="of samples: 0")
    options = parser.parse_args(arguments)
    if min(options.columns, options.rows) < 1:
        parser.error("--columns and --rows must be at least 1")

    import numpy as np

    from keras_vqem.evaluation.image_grids import save_grid
    from keras_vqem.models import ImageVAE, ImageVQVAE
    from keras_vqem.models.loading import load_with_prior

    rows, columns = options.rows, options.columns
    try:
        model = load_with_prior(options.model, options.prior, ImageVQVAE, ImageVAE)
        images = image_run.load(options).images("test")
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
