"""Trains RefinementNAT, which writes all words at once and then rewrites them.

    python recipes/train_refinement_nat.py --data data/multi30k_distilled \\
        --teacher runs/teacher --run runs/refinement --refinement denoising \\
        --epochs 20 --max-shapes 6 --validate-every 4 --jit
    python recipes/evaluate_translation.py --data data/multi30k --model runs/teacher \\
        --model runs/refinement --num-iterations 1 2 5 10

--refinement denoising is iterative refinement (Lee 2018): the decoder learns to correct
its own words, and targets with mistakes. --refinement mask-predict is the conditional
masked language model (Ghazvininejad 2019): it learns to fill in masked words; evaluate
it with --num-beams 5, too, which tries five lengths. The run folder is that of
train_transformer.py.
"""

from arguments import (
    adam,
    add_number,
    add_translation_arguments,
    fit_options,
    make_parser,
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
        help="run or preset of a Transformer whose weights to start from "
        "(default: none)",
    )
    parser.add_argument(
        "--refinement",
        choices=["denoising", "mask-predict"],
        default="denoising",
        help="how words are rewritten (default: %(default)s)",
    )
    help = "share of words at which denoising makes a mistake in targets"
    add_number(parser, "--corruption", 0.3, help, share)
    help = "share of sentences for which denoising reads such targets"
    add_number(parser, "--denoising-share", 0.5, help, share)
    help = "number of passes when val is translated"
    add_number(parser, "--num-iterations", 10, help)
    arguments = parser.parse_args(arguments)

    from keras_vqem.models import Denoising, MaskPredict, RefinementNAT
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

        refinement = MaskPredict()
        if arguments.refinement == "denoising":
            refinement = Denoising(arguments.corruption, arguments.denoising_share)
        passes = {"num_iterations": arguments.num_iterations}
        model = RefinementNAT(
            data.tokenizer, refinement, generation_config=passes, **sizes(arguments)
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
        choose_options(run, model, val, [passes])


if __name__ == "__main__":
    main()
