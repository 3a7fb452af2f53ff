"""Trains the prior over the codes of an autoencoder.

    python recipes/train_image_prior.py --autoencoder runs/image_em \\
        --data data --run runs/image_em_prior --steps-per-epoch 375

The codes of the training images of the run, with their mirror images, are computed
first and stored in the run folder. Encoding all images takes about an hour on one core.
The paper's prior is --num-layers 6 --context previous --soft-labels: local attention
alone, and the draws of soft EM as labels, each of which counts a part, in place of the
nearest codes. With --class-conditional the prior learns what images of each class are
like, and can be asked for one. Next:

    python recipes/evaluate_images.py --model runs/image_em \\
        --prior runs/image_em_prior --data data
"""

import hashlib

from arguments import (
    adam,
    add_sizes,
    fit_options,
    make_parser,
    run_options,
    sizes,
    user_errors,
)
from image_arguments import add_image_run_arguments, image_data

WARMUP_STEPS = 500  # If the run is long enough.
START = 10_000  # Number of examples whose code frequencies the prior starts from.


def rows_seen(examples, batch_size, seed, steps_per_epoch, epochs):
    """Finds the examples that a run needs: those in its batches, and the first ones."""
    import numpy as np

    from keras_vqem.array_batches import ArrayBatches

    rows = {"rows": np.arange(examples)}
    batches = ArrayBatches(rows, batch_size, seed, steps_per_epoch)
    start = min(START, epochs * batches.steps_per_epoch * batch_size, examples)
    seen = np.zeros(examples, bool)
    seen[:start] = True
    for epoch in range(epochs):
        for batch in batches.epoch(epoch):
            seen[batch["rows"]] = True
    return np.flatnonzero(seen), start


def codes_of(autoencoder, images, rows, path, made_of, num_samples=0):
    """Returns the arrays of training examples, and the codes of validation images.

    They are stored in a file, because a few codes would differ with another number of
    threads or on another machine, and a resumed run must see the same codes.

    Args:
        autoencoder: The model.
        images: Training and validation images, two arrays.
        rows: Indices of training examples to encode. Those from `len(images[0])` on
            are mirror images. The codes of the others are 0.
        path: File of the codes.
        made_of: Hash of everything that the codes depend on.
        num_samples: Number of draws per code, for soft labels; 0 for none.

    Returns:
        A tuple of a dict and an array. The dict has the codes of all training images,
        followed by those of their mirror images, as `symbols`, and, if there are any,
        draws as `samples`. The array has the codes of the validation images.
    """
    import numpy as np

    from keras_vqem.evaluation import image_bits
    from keras_vqem.files import replacing

    if path.is_file():
        with np.load(path) as file:
            if file["made_of"] == made_of:
                names = set(file) & {"symbols", "samples"}
                return {name: file[name] for name in names}, file["val"]
    train, val = images
    print(f"encoding {len(rows):,} of {2 * len(train):,} training images", flush=True)

    def log(line):
        print(line, flush=True)

    def encode(images):
        return image_bits.encode(autoencoder, images, log=log)

    def draw(images):
        return image_bits.draw(autoencoder, images, num_samples, log=log)

    val = encode(val)
    arrays = {}
    for name, codes_of_part in {"symbols": encode, "samples": draw}.items():
        if name == "samples" and not num_samples:
            continue
        draws = (num_samples,) if name == "samples" else ()
        codes = np.zeros((2 * len(train), *val.shape[1:], *draws), val.dtype)
        for first, source in ((0, train), (len(train), train[:, :, ::-1])):
            chosen = rows[(rows >= first) & (rows < first + len(train))]
            if len(chosen):
                codes[chosen] = codes_of_part(source[chosen - first])
        arrays[name] = codes
    with replacing(path) as temporary:
        np.savez_compressed(temporary, **arrays, val=val, made_of=made_of)
    return arrays, val


def number_of_draws(arguments, bottleneck):
    """Returns the number of draws for soft labels, 0 without --soft-labels."""
    if not arguments.soft_labels:
        return 0
    number = getattr(bottleneck, "num_samples", 0)
    if not number or number == "exact":
        raise ValueError(
            f"--soft-labels needs an autoencoder that was trained with draws (soft EM, "
            f"train_image_autoencoder.py --num-samples 5); {arguments.autoencoder} has "
            f"none. Leave --soft-labels out, or train another autoencoder."
        )
    return number


def make_model(arguments, bottleneck, codes, start, num_classes=None):
    """Returns the prior, which starts from the codebook if there is one."""
    import numpy as np

    from keras_vqem.models import GridTransformer

    grid = codes.shape[1:]
    options = {
        **sizes(arguments),
        "context": arguments.context,
        "num_classes": num_classes,
    }
    if bottleneck.codebook is None:
        return GridTransformer(grid, bottleneck.num_codes, **options)
    codebook = np.asarray(bottleneck.codebook)
    number, size = codebook.shape[-2:]
    model = GridTransformer(grid, number, vector_dim=size, **options)
    model.init_from_codebook(codebook, codes[:start])
    return model


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add_image_run_arguments(parser, 0.002, WARMUP_STEPS, batch_size=16)
    parser.add_argument(
        "--autoencoder",
        required=True,
        metavar="RUN",
        help="autoencoder: folder of a finished run, .keras file or preset",
    )
    add_sizes(
        parser,
        hidden_dim=128,
        num_layers=2,
        num_heads=4,
        intermediate_dim=256,
        block_length=40,
        dropout=0.0,
    )
    parser.add_argument(
        "--context",
        choices=["neighbours", "previous"],
        default="neighbours",
        help="codes that a position sees directly: those of its cell and of the cells "
        "around it, or the one before it (default: %(default)s)",
    )
    parser.add_argument(
        "--soft-labels",
        action="store_true",
        help="learn the draws of soft EM instead of the nearest codes",
    )
    parser.add_argument(
        "--class-conditional",
        action="store_true",
        help="learn the codes of each class of images, by the labels of the data "
        "(cifar10 and shapes have some)",
    )
    arguments = parser.parse_args(arguments)

    import numpy as np

    from keras_vqem.array_batches import ArrayBatches
    from keras_vqem.models import ImageVQVAE
    from keras_vqem.models.loading import load_model, model_file
    from keras_vqem.training import LossInBits, Run, loss_in_bits, validation_set

    with Run(arguments.run, **run_options(arguments)) as run:
        autoencoder = load_model(arguments.autoencoder, ImageVQVAE)
        data = image_data(arguments)
        images = [data.images(split) for split in ("train", "val")]
        height, width = autoencoder.image_size
        if images[0].shape[1:3] != (height, width):
            raise ValueError(
                f"The images are {' x '.join(map(str, images[0].shape[1:3]))}, but the "
                f"autoencoder was trained on {height} x {width}. Pass the same "
                f"--dataset and --data, and --size {height}."
            )

        labels, num_classes = None, None
        if arguments.class_conditional:
            labels = [data.labels(split) for split in ("train", "val")]
            num_classes = len(data.class_names)
        order = (arguments.batch_size, arguments.seed, arguments.steps_per_epoch)
        rows, start = rows_seen(2 * len(images[0]), *order, arguments.epochs)
        draws = number_of_draws(arguments, autoencoder.bottleneck)
        made_of = hashlib.sha256(model_file(arguments.autoencoder).read_bytes())
        made_of.update(bytes(draws))
        for array in (*images, rows):
            made_of.update(np.ascontiguousarray(array))
        path = run.path / "codes.npz"
        arrays, val = codes_of(
            autoencoder, images, rows, path, made_of.hexdigest(), draws
        )
        # Validation is of what is sent: the nearest codes.
        val = {"symbols": val}
        if labels is not None:
            # A mirror image has the class of its image.
            arrays["labels"], val["labels"] = np.tile(labels[0], 2), labels[1]
        val = validation_set(val, arguments.batch_size)
        batches = ArrayBatches(arrays, *order)
        steps = arguments.epochs * batches.steps_per_epoch

        model = make_model(
            arguments, autoencoder.bottleneck, arrays["symbols"], start, num_classes
        )
        model.compile(
            adam(run, arguments, steps, WARMUP_STEPS),
            accumulation_steps=arguments.accumulation_steps,
            jit_compile=arguments.jit,
        )
        run.fit(
            model,
            batches,
            arguments.epochs,
            validation_data=val,
            callbacks=[LossInBits()],
            **fit_options(arguments),
        )
        run.report(loss_in_bits(model.evaluate(val, verbose=0, return_dict=True)))


if __name__ == "__main__":
    main()
