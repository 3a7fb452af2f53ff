"""What the trainers of image models share: where images come from, and the run."""

import tensorflow as tf

from keras_vqem.images import ImageBatches, ImageData
from keras_vqem.training import run


def add_data_arguments(parser):
    """Adds to an `argparse` parser what every recipe with images takes."""
    add = parser.add_argument
    add(
        "--dataset",
        default="cifar10",
        help="cifar10, folder, shapes or tfds:NAME (%(default)s)",
    )
    add("--data", metavar="DIR", help="where the data are")
    add(
        "--size",
        type=int,
        metavar="N",
        help="crop and scale images to N x N, a multiple of 4 (as they are)",
    )
    add(
        "--validation",
        type=int,
        metavar="N",
        help="last training images held out, where there is no val split (2000)",
    )


def add_arguments(parser, learning_rate, warmup=500, batch_size=64):
    """Adds what every trainer of image models takes; returns the learning group."""
    add_data_arguments(parser)
    run.add_arguments(parser)
    learning = run.add_learning_arguments(parser, learning_rate, warmup)
    add = learning.add_argument
    add("--batch-size", type=int, default=batch_size, help="examples (%(default)s)")
    add("--steps-per-epoch", type=int, metavar="N", help="(as many as there are)")
    # Their epochs are few, and each changes much: the last one is the best.
    parser.set_defaults(epochs=6, average=1)
    return learning


def load(arguments):
    """The `ImageData` that the arguments name."""
    wanted = {"size": arguments.size, "validation": arguments.validation}
    given = {name: value for name, value in wanted.items() if value is not None}
    return ImageData(arguments.dataset, arguments.data, **given)


def validation_set(arrays, batch_size):
    """A finite dataset of dicts of arrays, in order, whole batches only."""
    number = len(next(iter(arrays.values())))
    if number < batch_size:
        raise ValueError(
            f"There are {number} images to validate on, fewer than one batch of "
            f"{batch_size}. Lower --batch-size, or hold out more."
        )
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    return dataset.batch(batch_size, drop_remainder=True)


def train_on_images(arguments, make_model):
    """Trains a model of images into a run folder.

    Args:
        arguments: Parsed, from a parser with `add_arguments`.
        make_model: Function from `ImageData`, and the steps of the run, to a model.

    Returns:
        The path of the saved model.
    """

    def make_task(replicas):
        data = load(arguments)
        val = validation_set({"images": data.images("val")}, arguments.batch_size)
        return run.Task(
            ImageBatches(
                data.images("train"),
                arguments.batch_size,
                arguments.seed,
                flip=True,
                steps_per_epoch=arguments.steps_per_epoch,
            ),
            lambda steps: make_model(data, steps),
            lambda model: model.evaluate(val, verbose=0, return_dict=True),
            validation=val,
        )

    return run.train(arguments, make_task)


def add_grid_arguments(parser, hidden_dim, num_layers, intermediate_dim, block_length):
    """Adds the sizes of a `GridTransformer`, with these defaults."""
    add = parser.add_argument_group("network").add_argument
    add(
        "--hidden-dim",
        type=int,
        default=hidden_dim,
        help="of hidden states (%(default)s)",
    )
    add(
        "--num-layers",
        type=int,
        default=num_layers,
        help="Transformer blocks (%(default)s)",
    )
    add("--num-heads", type=int, default=4, help="(%(default)s)")
    add("--intermediate-dim", type=int, default=intermediate_dim, help="(%(default)s)")
    add(
        "--block-length",
        type=int,
        default=block_length,
        help="of local attention (%(default)s)",
    )
    add("--dropout", type=float, default=0.0, help="(%(default)s)")


def grid_sizes(arguments):
    """The arguments of `add_grid_arguments` as those of the model."""
    names = (
        "hidden_dim",
        "num_layers",
        "num_heads",
        "intermediate_dim",
        "block_length",
        "dropout",
    )
    return {name: getattr(arguments, name) for name in names}
