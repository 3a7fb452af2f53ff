"""Trains the autoregressive baseline: a Transformer that predicts pixel by pixel.

    python recipes/train_image_transformer.py --data data --run runs/pixels \\
        --steps-per-epoch 450

The model starts from the frequencies of values, with similar vectors for similar
values. The run folder has the files that train_transformer.py lists.
"""

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


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add_image_run_arguments(parser, 0.002, WARMUP_STEPS, batch_size=8)
    add_sizes(
        parser,
        hidden_dim=96,
        num_layers=2,
        num_heads=4,
        intermediate_dim=192,
        block_length=96,
        dropout=0.0,
    )
    arguments = parser.parse_args(arguments)

    from keras_vqem.images import ImageBatches
    from keras_vqem.models import ImageTransformer
    from keras_vqem.training import LossInBits, Run, loss_in_bits, validation_set

    with Run(arguments.run, **run_options(arguments)) as run:
        data = image_data(arguments)
        images = data.images("train")
        val = validation_set({"images": data.images("val")}, arguments.batch_size)
        batches = ImageBatches(
            images,
            arguments.batch_size,
            arguments.seed,
            flip=True,
            steps_per_epoch=arguments.steps_per_epoch,
        )
        steps = arguments.epochs * batches.steps_per_epoch

        model = ImageTransformer(*images.shape[1:3], **sizes(arguments))
        model.build()
        model.init_from_codebook(model.vectors, images[:10_000])
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
