"""Writes pictures of reconstructions and samples of an image autoencoder.

    python recipes/sample_images.py --model runs/image_em --prior runs/image_em_prior \\
        --data data --output out/pictures

The pictures are

- reconstructions.png: test images above their reconstructions;
- interpolations.png: from one image to another, through the codebook;
- pixels.png, with grouped pixels: a test image, what is expected of its codes, and
  draws: the same codes, other pixels;
- samples.png, with a prior: new images. If the prior has classes, each row shows one;
  --labels chooses them;
- inpainting.png, with a prior: test images, what is left of them, and completions. By
  default the upper half is left; --mask FILE is a black and white picture, white where
  an image is kept.
"""

from pathlib import Path

from arguments import add_number, make_parser, user_errors
from image_arguments import (
    add_image_model_arguments,
    add_sampling_arguments,
    image_data,
    sampling_options,
)


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


def other_pixels(model, images, columns, seed):
    """Returns rows: an image, the expectation of its codes, and draws from them."""
    import numpy as np

    codes = model.encode(images)
    rows = [images, model.decode(codes)]
    rows += [model.decode(codes, (seed, 1 + n)) for n in range(max(columns - 2, 1))]
    return np.stack(rows, axis=1)


def mask_of(path, size):
    """Returns which pixels to keep, booleans `[H, W]`, from a black and white picture.

    Args:
        path: File, or None to keep the upper half.
        size: Height and width of the mask.
    """
    import numpy as np
    import tensorflow as tf

    if path is None:
        return np.repeat((np.arange(size[0]) < size[0] // 2)[:, None], size[1], axis=1)
    try:
        picture = tf.io.decode_image(path.read_bytes(), 1, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        raise ValueError(
            f"{path} is no PNG, JPEG or BMP file. Pass a black and white picture that "
            f"is white where images are to be kept."
        ) from None
    return tf.image.resize(picture, size, "nearest").numpy()[..., 0] > 127


def inpainting(model, images, known, completions, seed, **options):
    """Returns columns: images, what is left of them, and completions of this.

    Args:
        model: An `ImageVQVAE` with a prior.
        images: uint8 `[B, H, W, 3]`.
        known: Booleans `[H, W]`, True for pixels that are left.
        completions: Number of completions.
        seed: Integer.
        **options: Other arguments of `ImageVQVAE.inpaint`.
    """
    import numpy as np
    import tensorflow as tf

    def draw(own):
        return model.inpaint(images, known, own, **options)

    graph = tf.function(draw, autograph=False)
    columns = [images, np.where(known[..., None], images, np.uint8(128))]
    columns += [graph(tf.constant([seed, 1 + n])) for n in range(completions)]
    return np.stack(columns, axis=1)


def samples(model, rows, columns, seed, labels, **options):
    """Returns rows of new images, one per label if there are labels."""
    import numpy as np
    import tensorflow as tf

    if labels is not None:
        rows, options["labels"] = len(labels), np.repeat(labels, columns)

    def draw():
        return model.sample(rows * columns, (seed, 0), **options)

    graph = tf.function(draw, autograph=False)
    found = np.asarray(graph())
    return found.reshape(rows, columns, *found.shape[1:])


def labels_of(texts, prior, names):
    """Returns the labels that are asked for, or None for a prior without classes.

    Args:
        texts: List of numbers or names of classes as text, or None for all classes.
        prior: The `GridTransformer`.
        names: Names of the classes of the data.
    """
    number = prior.num_classes
    if number is None:
        if texts:
            raise ValueError(
                "--labels needs a prior with classes: train_image_prior.py "
                "--class-conditional. Leave it out to sample without."
            )
        return None
    if not texts:
        return list(range(number))
    known = {str(label): label for label in range(number)}
    known.update({name: label for label, name in enumerate(names[:number])})
    wrong = [text for text in texts if text not in known]
    if wrong:
        raise ValueError(
            f"--labels {wrong[0]!r} is no class. Choose from {', '.join(known)}."
        )
    return [known[text] for text in texts]


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
    add_sampling_arguments(parser)
    add_number(parser, "--seed", 0, "seed of samples", int)
    parser.add_argument(
        "--labels",
        nargs="+",
        metavar="CLASS",
        help="classes of samples, numbers or names, for a prior with classes "
        "(default: all)",
    )
    parser.add_argument(
        "--mask",
        type=Path,
        metavar="FILE",
        help="picture that is white where inpainting keeps an image (default: white in "
        "the upper half)",
    )
    help = "number of candidates per completion; more fit better to the kept part"
    add_number(parser, "--num-candidates", 8, help)
    options = parser.parse_args(arguments)

    from keras_vqem.evaluation.image_grids import save_grid
    from keras_vqem.layers import GroupedPixels
    from keras_vqem.models import ImageVAE, ImageVQVAE
    from keras_vqem.models.loading import load_with_prior

    rows, columns = options.rows, options.columns
    model = load_with_prior(options.model, options.prior, ImageVQVAE, ImageVAE)
    data = image_data(options)
    images, chosen = data.images("test"), sampling_options(options)
    prior = model.prior if isinstance(model, ImageVQVAE) else None
    needed = max(rows * columns, 2 * rows)
    if len(images) < needed:
        raise ValueError(
            f"There are {len(images)} test images, but {rows} rows of {columns} need "
            f"{needed}. Choose fewer --rows or --columns."
        )
    images = images[:needed]
    if prior is None and (options.mask or options.labels):
        raise ValueError(
            f"--mask and --labels need a prior over codes, and {options.model} has "
            f"none. Pass --prior."
        )
    if prior is not None:
        labels = labels_of(options.labels, prior, data.class_names)
        known = mask_of(options.mask, model.image_size)
    pictures = {
        "reconstructions": reconstructions(model, images[: rows * columns], columns),
        "interpolations": interpolations(model, images[: 2 * rows], columns),
    }
    if isinstance(model.likelihood, GroupedPixels):
        drawn = other_pixels(model, images[:rows], columns, options.seed)
        pictures["pixels"] = drawn
    if prior is not None:
        drawn = samples(model, rows, columns, options.seed, labels, **chosen)
        pictures["samples"] = drawn
        if prior.num_classes is not None:
            # Completions are told what the image shows.
            chosen["labels"] = data.labels("test")[:rows]
        chosen["num_candidates"] = options.num_candidates
        completions = max(columns - 2, 1)
        pictures["inpainting"] = inpainting(
            model, images[:rows], known, completions, options.seed, **chosen
        )
    options.output.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        path = options.output / f"{name}.png"
        save_grid(path, picture)
        print(path)


if __name__ == "__main__":
    main()
