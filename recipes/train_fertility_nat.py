"""Trains FertilityNAT, which writes all words in one pass, one per copied source token.

    python recipes/train_fertility_nat.py --data data/multi30k_distilled \\
        --teacher runs/teacher --run runs/nat --epochs 20 --max-shapes 6 \\
        --validate-every 4 --jit

Before training, an aligner finds by EM which source token each target token of train
comes from, in well under a minute for 30,000 pairs. The fertilities that the model
learns follow from that; the metric `clipped` is the share of source tokens that have
more than --max-fertility target tokens. The run folder is that of train_transformer.py.
After training both ways to choose fertilities are tried on val, and the one with the
better BLEU is stored in model.keras. Noisy parallel decoding is measured by

    python recipes/evaluate_translation.py --data data/multi30k --model runs/teacher \\
        --model runs/nat --num-beams 1 4 --num-samples 1 10 100 --rescorer runs/teacher
"""

from arguments import (
    adam,
    add_number,
    add_translation_arguments,
    fit_options,
    make_parser,
    run_options,
    sizes,
    user_errors,
)

WARMUP_STEPS = 800  # in a run that is long enough


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add_translation_arguments(parser, WARMUP_STEPS, average=5)
    parser.add_argument(
        "--teacher",
        metavar="RUN",
        help="run or preset of a Transformer or FertilityNAT whose weights to start "
        "from (default: none)",
    )
    add_number(parser, "--max-fertility", 8, "largest number of words per source token")
    help = "how much the aligner prefers the diagonal; 0: not at all"
    add_number(parser, "--tension", 4.0, help)
    add_number(parser, "--aligner-steps", 5, "number of EM steps of the aligner")
    arguments = parser.parse_args(arguments)

    from keras_vqem.models import FertilityNAT
    from keras_vqem.models.fertilities import CHOICES
    from keras_vqem.models.loading import load_translator
    from keras_vqem.text import TranslationData, WordAligner
    from keras_vqem.training import Run, ValidationBLEU
    from keras_vqem.training.decoding_options import choose_options

    with Run(arguments.run, **run_options(arguments)) as run:
        data = TranslationData(arguments.data)
        val = data.corpus("val")
        ids = data.ids("train")
        aligner = WordAligner(arguments.tension, arguments.aligner_steps)
        aligner.adapt(*ids)
        said = "  ".join(f"{value:.3f}" for value in aligner.log_likelihoods)
        run.log(f"aligner, log likelihood per token before each EM step: {said}")
        batches = data.batches(
            "train",
            arguments.tokens_per_batch,
            max_shapes=arguments.max_shapes,
            length_multiple=1,
            seed=arguments.seed,
            fertilities=aligner.fertilities(*ids),
        )
        steps = arguments.epochs * batches.steps_per_epoch

        model = FertilityNAT(
            data.tokenizer, max_fertility=arguments.max_fertility, **sizes(arguments)
        )
        if arguments.teacher:
            model.warm_start(load_translator(arguments.teacher))
        model.compile(
            adam(run, arguments, steps, WARMUP_STEPS),
            label_smoothing=arguments.label_smoothing,
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

        choose_options(run, model, val, [{"fertility": way} for way in CHOICES])


if __name__ == "__main__":
    main()
