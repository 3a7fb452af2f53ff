"""Trains a preset further, on your own sentence pairs.

    python recipes/fine_tune.py --preset tatoeba_en_de_teacher --run runs/mine \\
        --train-source train.en --train-target train.de \\
        --val-source val.en --val-target val.de --epochs 5

Line n of a target file is the translation of line n of the source file. Broken, empty,
over-long, ill-matched and repeated pairs are left out of training. Without val files,
5 % of the pairs, at most 1,000, are held out. The preset keeps its vocabulary and its
sizes; a run can be named in its place. It may be a Transformer, a CTCTranslator or a
LatentNMT. The run folder is that of train_transformer.py, and --resume goes on with a
run that was stopped. Printed are BLEU on val before the first step and after each
epoch. At the end the options of decoding are chosen on val, as after any training.
Then use and measure the model:

    keras-vqem translate --model runs/mine "Your text."
    keras-vqem evaluate test.en test.de --model tatoeba_en_de_teacher --model runs/mine
"""

from arguments import (
    adam,
    add_batch_arguments,
    add_learning_arguments,
    add_number,
    add_run_arguments,
    fit_options,
    make_parser,
    options_to_try,
    run_options,
    share,
    user_errors,
)

WARMUP_STEPS = 200  # in a run that is long enough
HELD_OUT, MOST_HELD_OUT = 0.05, 1000


def parse(arguments):
    parser = make_parser(__doc__)
    add = parser.add_argument
    help = "name or folder of a preset, folder of a finished run, or .keras file"
    add("--preset", required=True, metavar="NAME", help=help)
    for split, required in (("train", True), ("val", False)):
        for side in ("source", "target"):
            help = f"file with the {side} lines of the {split} set, plain or .gz"
            add(
                f"--{split}-{side}",
                required=required,
                metavar="FILE",
                help=help + ("" if required else " (default: part of the train set)"),
            )
    add_number(
        parser, "--max-tokens", 250, "maximum number of tokens per side of a pair"
    )
    add_run_arguments(parser, epochs=5, average=3)
    help = "number of epochs from one validation to the next"
    add_number(parser, "--validate-every", 1, help)
    learning = add_learning_arguments(parser, 0.0005, WARMUP_STEPS)
    add_batch_arguments(learning, max_shapes=8)
    help = "share of each label spread over all ids"
    add_number(learning, "--label-smoothing", 0.1, help, share)
    options = parser.parse_args(arguments)
    if (options.val_source is None) != (options.val_target is None):
        parser.error("--val-source and --val-target go together")
    return options


def read(options, tokenizer, run):
    """Returns the clean training pairs and those to validate on."""
    import numpy as np

    from keras_vqem.text import ParallelCorpus, clean

    train, val = (
        source and ParallelCorpus.from_files(source, target)
        for source, target in (
            (options.train_source, options.train_target),
            (options.val_source, options.val_target),
        )
    )
    train, summary = clean(train, tokenizer, max_tokens=options.max_tokens)
    run.log(f"Cleaning of the training set:\n{summary}")
    if val is None:
        number = min(int(HELD_OUT * len(train)), MOST_HELD_OUT)
        order = np.random.default_rng(options.seed).permutation(len(train))
        val, train = train.take(order[:number]), train.take(np.sort(order[number:]))
    if not len(train) or not len(val):
        raise ValueError(
            f"There are {len(train)} pairs to train on and {len(val)} to validate on. "
            f"Pass more pairs, or --val-source and --val-target."
        )
    run.log(f"{len(train)} pairs to train on, {len(val)} to validate on")
    return train, val


@user_errors
def main(arguments=None):
    options = parse(arguments)

    from keras_vqem import models
    from keras_vqem.evaluation import translation_scores
    from keras_vqem.models.loading import load_model
    from keras_vqem.text import TokenBatches
    from keras_vqem.training import Run, ValidationBLEU
    from keras_vqem.training.callbacks import cut_lines
    from keras_vqem.training.decoding_options import choose_options

    with Run(options.run, **run_options(options)) as run:
        model = load_model(
            options.preset, models.Transformer, models.CTCTranslator, models.LatentNMT
        )
        train, val = read(options, model.tokenizer, run)
        is_latent = isinstance(model, models.LatentNMT)
        if is_latent:
            model.bypass_steps = 0  # Its decoder reads codes already.
        batches = TokenBatches(
            model.tokenizer.encode_lines(train.sources),
            model.tokenizer.encode_lines(train.targets),
            options.tokens_per_batch,
            max_shapes=options.max_shapes,
            length_multiple=2**model.num_compress_steps if is_latent else 1,
            seed=options.seed,
        )
        steps = options.epochs * batches.steps_per_epoch
        if not options.resume:
            texts = model.translate(cut_lines(val.sources, model.tokenizer))
            bleu = translation_scores.bleu(texts, val.targets)
            run.log(f"{options.preset} before the first step: val_bleu {bleu:.2f}")
        model.compile(
            adam(run, options, steps, WARMUP_STEPS),
            label_smoothing=options.label_smoothing,
            accumulation_steps=options.accumulation_steps,
            jit_compile=options.jit,
        )
        run.fit(
            model,
            batches,
            options.epochs,
            callbacks=[ValidationBLEU(val, every=options.validate_every)],
            **fit_options(options),
        )
        choose_options(run, model, val, options_to_try(model))


if __name__ == "__main__":
    main()
