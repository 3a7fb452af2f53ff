"""Trains the autoregressive translator: the baseline, and the teacher of LatentNMT.

    python recipes/prepare_translation.py ... --output data/multi30k
    python recipes/train_transformer.py --data data/multi30k --run runs/teacher \\
        --max-shapes 8 --validate-every 2 --jit

The run folder has config.json, log.txt, metrics.jsonl, TensorBoard events, checkpoints,
and at the end model.keras, the mean of the last checkpoints. The same command with
--resume continues a run that was stopped. At the end greedy search and beams with
several length penalties are tried on val, and the best is stored. With --start-from
runs/teacher the weights start as those of that finished run, for example to go on with
more data (distill.py --back-translate). Then measure the model:

    python recipes/evaluate_translation.py --model runs/teacher --data data/multi30k
"""

from arguments import (
    adam,
    add_number,
    add_translation_arguments,
    fit_options,
    make_parser,
    options_to_try,
    run_options,
    sizes,
    user_errors,
)

WARMUP_STEPS = 800  # If the run is long enough.


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add_translation_arguments(parser, WARMUP_STEPS, average=5)
    parser.add_argument(
        "--start-from",
        metavar="RUN",
        help="run or preset of a Transformer whose weights to start from "
        "(default: none)",
    )
    help = "weight of the consistency of two passes with different dropout (R-Drop)"
    add_number(parser, "--consistency-weight", 0.0, help)
    arguments = parser.parse_args(arguments)

    from keras_vqem.models import Transformer
    from keras_vqem.models.loading import load_translator
    from keras_vqem.text import TranslationData
    from keras_vqem.training import Run, ValidationBLEU
    from keras_vqem.training.decoding_options import choose_options

    with Run(arguments.run, **run_options(arguments)) as run:
        data = TranslationData(arguments.data)
        val = data.corpus("val")
        batches = data.batches(
            "train",
            arguments.tokens_per_batch,
            max_shapes=arguments.max_shapes,
            length_multiple=1,
            seed=arguments.seed,
        )
        steps = arguments.epochs * batches.steps_per_epoch

        model = Transformer(data.tokenizer, **sizes(arguments))
        if arguments.start_from:
            model.warm_start(load_translator(arguments.start_from))
        model.compile(
            adam(run, arguments, steps, WARMUP_STEPS),
            label_smoothing=arguments.label_smoothing,
            consistency_weight=arguments.consistency_weight,
            accumulation_steps=arguments.accumulation_steps,
            jit_compile=arguments.jit,
        )
        run.fit(
            model,
            batches,
            arguments.epochs,
            callbacks=[ValidationBLEU(val, every=arguments.validate_every)],
            **fit_options(arguments),
        )
        choose_options(run, model, val, options_to_try(model))


if __name__ == "__main__":
    main()
