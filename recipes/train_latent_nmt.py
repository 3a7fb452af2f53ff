"""Trains LatentNMT, the paper's translator through discrete codes.

    python recipes/train_latent_nmt.py --data data/multi30k_distilled \\
        --teacher runs/teacher --run runs/soft_em --epochs 12 --max-shapes 6 \\
        --dropout 0.1 --learning-rate 0.002 --bypass-steps 600 --predicted-share 0.5 \\
        --validate-every 2 --jit

Options give the other rows of the paper's tables: --num-samples 0 is hard EM; --data
with the undistilled folder; --num-compress-steps 4; --bottleneck vq, gumbel or semhash;
--num-codes; --groups 2 (product quantization); --hidden-dim; --attend-source. With
--word-output ctc, positions are made of the source, codes are added to them, and words
are read off by CTC; the bias of the blank and the end of the codes are then chosen on
val. --variants turns parts of the model into what the paper or its authors' code does,
to the letter. The run folder has the files that train_transformer.py lists. The metrics
also have the perplexity of the codebook, and BLEU of translations written from the
codes of the references (teacher_forced_bleu, the limit of codes and decoder) and from
random codes (random_codes_bleu, the decoder with the source alone).
"""

from functools import partial

from arguments import (
    adam,
    add_em_arguments,
    add_number,
    add_translation_arguments,
    em_bottleneck,
    fit_options,
    make_parser,
    options_to_try,
    run_options,
    share,
    sizes,
    steps_for,
    user_errors,
)
from variants import EM, NMT, add_variants, check, word_output

WARMUP_STEPS, BYPASS_STEPS = 800, 1500  # If the run is long enough.


def parse(arguments):
    parser = make_parser(__doc__)
    # Codes change their meaning from epoch to epoch, so few checkpoints are averaged.
    add_translation_arguments(parser, WARMUP_STEPS, average=2)
    codes = parser.add_argument_group("codes")
    add = codes.add_argument
    add(
        "--teacher",
        metavar="RUN",
        help="run or preset of a Transformer, or with --word-output ctc of a "
        "CTCTranslator, whose weights the model starts from",
    )
    add(
        "--bottleneck",
        choices=["em", "vq", "gumbel", "semhash"],
        default="em",
        help="bottleneck: codebook trained by EM, codebook trained by gradient, "
        "Gumbel-Softmax or semantic hashing (default: %(default)s)",
    )
    add_number(codes, "--num-codes", 512, "number of codes in the codebook")
    add_number(
        codes,
        "--groups",
        1,
        "number of codes per position, each with its own codebook (product "
        "quantization)",
    )
    add_em_arguments(codes, num_samples=10, temperature=5.0, dead_code_threshold=0.05)
    add_number(codes, "--num-compress-steps", 3, "n_c: one code for 2 ** n_c tokens")
    add_number(
        codes, "--num-predictor-layers", 2, "number of blocks that predict codes"
    )
    add(
        "--word-output",
        choices=["positionwise", "ctc"],
        default="positionwise",
        help="how words are written: one per position, as in the paper, or by CTC "
        "(default: %(default)s)",
    )
    add_number(codes, "--upsample", 2, "number of positions per source token, for CTC")
    add(
        "--attend-source",
        action="store_true",
        help="let the compressor attend to the source",
    )
    add(
        "--bypass-steps",
        type=int,
        metavar="N",
        help="number of first steps in which a falling share of sentences bypasses "
        f"the bottleneck (default: {BYPASS_STEPS}, at most a third of the run)",
    )
    add_number(
        codes,
        "--predicted-share",
        0.0,
        "share of sentences decoded from predicted codes after the bypass",
        share,
    )
    help = "weight of the latent predictor in the E step, after the bypass"
    add_number(codes, "--prior-weight", 0.0, help)
    add_variants(codes, EM, NMT)
    return parser.parse_args(arguments)


def make_bottleneck(arguments, steps):
    import keras

    from keras_vqem import layers

    num_codes, seed = arguments.num_codes, arguments.seed
    groups = arguments.groups if arguments.groups > 1 else None
    if arguments.bottleneck == "em":
        return em_bottleneck(arguments, num_codes, steps, groups)
    if arguments.bottleneck == "vq":
        weight = arguments.commitment_weight
        return layers.VQBottleneck(num_codes, commitment_weight=weight, groups=groups)
    if arguments.bottleneck == "gumbel":
        # The temperatures of the authors' code, over this run.
        temperature = keras.optimizers.schedules.PolynomialDecay(1.2, steps, 0.2)
        return layers.GumbelSoftmaxBottleneck(
            num_codes, temperature, groups=groups, seed=seed
        )
    num_bits = (num_codes - 1).bit_length()
    return layers.SemanticHashingBottleneck(num_bits, seed=seed, groups=groups)


@user_errors
def main(arguments=None):
    arguments = parse(arguments)
    check(arguments)

    from keras_vqem.evaluation.codes import reconstruct
    from keras_vqem.models import CTCOutput, LatentNMT
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
            length_multiple=2**arguments.num_compress_steps,
            seed=arguments.seed,
        )
        steps = arguments.epochs * batches.steps_per_epoch

        by_ctc = arguments.word_output == "ctc"
        model = LatentNMT(
            data.tokenizer,
            make_bottleneck(arguments, steps),
            num_compress_steps=arguments.num_compress_steps,
            word_output=CTCOutput(arguments.upsample)
            if by_ctc
            else word_output(arguments.variants, steps),
            attend_source=arguments.attend_source,
            num_predictor_layers=arguments.num_predictor_layers,
            bypass_steps=steps_for(
                run, arguments, "bypass_steps", BYPASS_STEPS, most=steps // 3
            ),
            predicted_share=arguments.predicted_share,
            prior_weight=arguments.prior_weight,
            causal_encoder="causal-encoder" in (arguments.variants or ()),
            **sizes(arguments),
        )
        if arguments.teacher:
            model.warm_start(load_translator(arguments.teacher))
        model.compile(
            adam(run, arguments, steps, WARMUP_STEPS),
            label_smoothing=arguments.label_smoothing,
            accumulation_steps=arguments.accumulation_steps,
            jit_compile=arguments.jit,
        )
        translators = {
            "teacher_forced_bleu": reconstruct,
            "random_codes_bleu": partial(reconstruct, codes="random"),
        }
        run.fit(
            model,
            batches,
            arguments.epochs,
            callbacks=[
                ValidationBLEU(val, translators, every=arguments.validate_every)
            ],
            **fit_options(arguments),
        )
        choose_options(run, model, val, options_to_try(model))


if __name__ == "__main__":
    main()
