"""Flags that recipes about images share, and the data that they choose.

Only recipes import this module.
"""

from arguments import (
    add_learning_arguments,
    add_number,
    add_run_arguments,
    at_least_zero,
    positive,
    share,
)


def add_image_data_arguments(parser):
    """Adds the flags of image data."""
    add = parser.add_argument
    add(
        "--dataset",
        default="cifar10",
        metavar="KIND",
        help="kind of image data: cifar10, folder, shapes or tfds:NAME "
        "(default: %(default)s)",
    )
    add("--data", metavar="DIR", help="folder of the image data; shapes need none")
    add(
        "--size",
        type=positive,
        metavar="N",
        help="crop and scale images to N x N pixels, a multiple of 4 "
        "(default: as they are)",
    )
    add(
        "--validation",
        type=int,
        metavar="N",
        help="number of training images to hold out if there is no validation split "
        "(default: 2000)",
    )


def add_image_model_arguments(parser):
    """Adds the flags of a trained image model, its prior, and image data."""
    help = "folder of a finished run, .keras file or preset"
    parser.add_argument("--model", required=True, metavar="RUN", help=help)
    help = "run of train_image_prior.py (default: the prior of the model, if any)"
    parser.add_argument("--prior", metavar="RUN", help=help)
    add_image_data_arguments(parser)


def image_data(arguments):
    """Returns the `ImageData` of parsed arguments."""
    from keras_vqem.images import ImageData

    wanted = {"size": arguments.size, "validation": arguments.validation}
    given = {name: value for name, value in wanted.items() if value is not None}
    return ImageData(arguments.dataset, arguments.data, **given)


def add_image_run_arguments(parser, learning_rate, warmup_steps, batch_size):
    """Adds the flags of every trainer of image models."""
    add_image_data_arguments(parser)
    # There are few epochs, and each improves the model much: the last one is the best.
    add_run_arguments(parser, epochs=6, average=1)
    learning = add_learning_arguments(parser, learning_rate, warmup_steps)
    add_number(learning, "--batch-size", batch_size, "number of images per batch")
    learning.add_argument(
        "--steps-per-epoch",
        type=positive,
        metavar="N",
        help="number of batches per epoch (default: all images once)",
    )


def add_sampling_arguments(parser):
    """Adds the flags of how codes are drawn."""
    help = "temperature of samples; 0 takes the most probable symbols"
    add_number(parser, "--temperature", 1.0, help, at_least_zero)
    parser.add_argument(
        "--top-p",
        type=share,
        metavar="X",
        help="draw each symbol from the most probable ones that have this probability "
        "together, above 0 (default: from all)",
    )


def sampling_options(arguments):
    """Returns the options of `sample` among parsed arguments."""
    found = {"temperature": arguments.temperature}
    if arguments.top_p is not None:
        found["top_p"] = arguments.top_p
    return found


def add_grouped_arguments(parser):
    """Adds the flags of pixels that know their neighbours."""
    group = parser.add_argument_group("grouped pixels")
    help = "number of channels of the network of grouped pixels, per cell"
    add_number(group, "--group-channels", 192, help)
    add_number(group, "--group-blocks", 6, "number of its residual blocks")
    help = "number of outputs per pixel that it reads besides the likelihood's own"
    add_number(group, "--group-features", 32, help, int)
    group.add_argument(
        "--cell-size",
        type=int,
        choices=[2, 4],
        default=2,
        help="height and width of a cell, one group per pixel of a cell "
        "(default: %(default)s)",
    )


def grouped_pixels(arguments, likelihood):
    """Returns `GroupedPixels` over a likelihood."""
    from keras_vqem.layers import GroupedPixels

    return GroupedPixels(
        likelihood,
        features=arguments.group_features,
        channels=arguments.group_channels,
        num_blocks=arguments.group_blocks,
        cell_size=arguments.cell_size,
        seed=arguments.seed,
    )
