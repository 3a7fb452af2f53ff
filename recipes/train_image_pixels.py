"""Trains pixels that know their neighbours, on the codes of a trained autoencoder.

    python recipes/train_image_pixels.py --model runs/image_em \\
        --prior runs/image_em_prior --data data --run runs/image_em_pixels

The codes, their prior and the decompressor stay as they are. Only the likelihood
changes: pixels come in four groups of each 2 x 2 (--cell-size 4: sixteen of each
4 x 4), and each group depends on the codes and on the groups before it. The result is
again an autoencoder, with its prior if it has one:

    python recipes/evaluate_images.py --model runs/image_em_pixels --data data

To learn codes and pixels together, use train_image_autoencoder.py --grouped.
"""

from arguments import (
    adam,
    add_number,
    fit_options,
    make_parser,
    run_options,
    user_errors,
)
from image_arguments import (
    add_grouped_arguments,
    add_image_run_arguments,
    grouped_pixels,
    image_data,
)

WARMUP_STEPS = 500  # If the run is long enough.


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add_image_run_arguments(parser, 0.002, WARMUP_STEPS, batch_size=32)
    parser.add_argument(
        "--model",
        required=True,
        metavar="RUN",
        help="autoencoder: folder of a finished run, .keras file or preset",
    )
    help = "run of train_image_prior.py (default: the prior of the model, if any)"
    parser.add_argument("--prior", metavar="RUN", help=help)
    add_grouped_arguments(parser)
    help = "number of validation images measured after each epoch"
    add_number(parser, "--validation-images", 2000, help)
    arguments = parser.parse_args(arguments)

    from keras_vqem.images import ImageBatches
    from keras_vqem.layers import GroupedPixels
    from keras_vqem.models import ImageVAE, ImageVQVAE
    from keras_vqem.models.loading import load_with_prior
    from keras_vqem.training import LossInBits, Run, loss_in_bits, validation_set

    with Run(arguments.run, **run_options(arguments)) as run:
        model = load_with_prior(arguments.model, arguments.prior, ImageVQVAE, ImageVAE)
        data = image_data(arguments)
        images = data.images("train")
        if images.shape[1:3] != tuple(model.image_size):
            height, width = model.image_size
            raise ValueError(
                f"The images are {' x '.join(map(str, images.shape[1:3]))}, but the "
                f"autoencoder was trained on {height} x {width}. Pass the same "
                f"--dataset and --data, and --size {height}."
            )
        val = data.images("val")[: arguments.validation_images]
        val = validation_set({"images": val}, arguments.batch_size)
        batches = ImageBatches(
            images,
            arguments.batch_size,
            arguments.seed,
            flip=True,
            steps_per_epoch=arguments.steps_per_epoch,
        )
        steps = arguments.epochs * batches.steps_per_epoch

        inner = model.likelihood
        if isinstance(inner, GroupedPixels):
            inner = inner.likelihood
        model = model.with_likelihood(grouped_pixels(arguments, inner))
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
