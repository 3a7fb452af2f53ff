"""Trains a small classifier of images, whose features samples are judged by.

    python recipes/train_feature_classifier.py --data data --run runs/classifier

It takes a few minutes of one core on CIFAR-10. The data must have labels (cifar10 or
shapes). The run folder has the files that train_transformer.py lists. Next:

    python recipes/evaluate_samples.py --classifier runs/classifier \\
        --model cifar10_em_pixels --data data
"""

from arguments import (
    adam,
    add_number,
    fit_options,
    make_parser,
    run_options,
    user_errors,
)
from image_arguments import add_image_run_arguments, image_data

WARMUP_STEPS = 200  # If the run is long enough.


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add_image_run_arguments(parser, 0.002, WARMUP_STEPS, batch_size=64)
    network = parser.add_argument_group("network")
    add_number(network, "--channels", 32, "number of channels of the first stage")
    help = "number of stages, each of which halves height and width"
    add_number(network, "--num-stages", 3, help)
    add_number(network, "--num-blocks", 1, "number of residual blocks per stage")
    arguments = parser.parse_args(arguments)

    from keras_vqem.images import ImageBatches
    from keras_vqem.models import ImageClassifier
    from keras_vqem.training import Run, validation_set

    with Run(arguments.run, **run_options(arguments)) as run:
        data = image_data(arguments)
        images, labels = data.images("train"), data.labels("train")
        val = {"images": data.images("val"), "labels": data.labels("val")}
        val = validation_set(val, arguments.batch_size)
        batches = ImageBatches(
            images,
            arguments.batch_size,
            arguments.seed,
            flip=True,
            steps_per_epoch=arguments.steps_per_epoch,
            labels=labels,
        )
        steps = arguments.epochs * batches.steps_per_epoch

        model = ImageClassifier(
            len(data.class_names),
            arguments.channels,
            arguments.num_stages,
            arguments.num_blocks,
            image_size=images.shape[1:3],
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
            **fit_options(arguments),
        )
        run.report(model.evaluate(val, verbose=0, return_dict=True))


if __name__ == "__main__":
    main()
