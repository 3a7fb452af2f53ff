"""Trains CTCTranslator, which writes all words in one pass and has no codes.

    python recipes/train_ctc_translator.py --data data/multi30k_distilled \\
        --teacher runs/teacher --run runs/ctc --epochs 8 --max-shapes 6 \\
        --validate-every 2 --jit

With --glancing-start 0.5 --glancing-end 0.2, for example, the decoder is shown parts of
the target in training, fewer as the run goes on (Qian 2021); with --middle-weight 0.5
it also learns from words read off its middle (deep supervision). Both take longer.
The run folder is that of train_transformer.py. Metrics also hold the share of training
pairs whose target does not fit the positions and which teach nothing (unfit). After
training several biases of the blank are tried on val. The one with the best BLEU is
stored in model.keras, and is used wherever that model translates.
"""

from arguments import (
    adam,
    add_number,
    add_translation_arguments,
    fit_options,
    make_parser,
    options_to_try,
    run_options,
    share,
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
        help="run or preset of a Transformer or CTCTranslator whose weights to start "
        "from (default: none)",
    )
    add_number(parser, "--upsample", 2, "number of positions per source token")
    help = "share of wrong positions that training shows, {} (0: no glancing)"
    add_number(parser, "--glancing-start", 0.0, help.format("at first"), share)
    add_number(parser, "--glancing-end", 0.0, help.format("at the end"), share)
    help = "weight of the loss of words read off the middle of the decoder"
    add_number(parser, "--middle-weight", 0.0, help)
    arguments = parser.parse_args(arguments)

    import keras

    from keras_vqem.models import CTCTranslator
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

        glancing = arguments.glancing_start
        if glancing != arguments.glancing_end:
            glancing = keras.optimizers.schedules.PolynomialDecay(
                glancing, steps, arguments.glancing_end
            )
        model = CTCTranslator(
            data.tokenizer,
            upsample=arguments.upsample,
            glancing=glancing,
            **sizes(arguments),
        )
        if arguments.teacher:
            model.warm_start(load_translator(arguments.teacher))
        model.compile(
            adam(run, arguments, steps, WARMUP_STEPS),
            label_smoothing=arguments.label_smoothing,
            middle_weight=arguments.middle_weight,
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
