"""Prepares sentence pairs for the training of translators.

    python recipes/prepare_translation.py --output data/numbers --numbers 20000 \\
        --vocabulary 400
    python recipes/prepare_translation.py --output data/mine --languages en de \\
        --train-source train.en --train-target train.de \\
        --val-source val.en --val-target val.de \\
        --test-source test.en.gz --test-target test.de.gz --vocabulary 4000
    python recipes/prepare_translation.py --output data/mixed --languages en de \\
        --train-source news.en talks.en --train-target news.de talks.de \\
        --weights 1 2.5 --val-source val.en --val-target val.de
    python recipes/prepare_translation.py --output data/wmt14 \\
        --tfds wmt14_translate/de-en --data tensorflow_datasets --vocabulary 32000

Pairs come from files (line n of one is the translation of line n of the other), from a
prepared TensorFlow data set, or from a grammar of numbers, dates and times, which needs
no data. Broken, empty, over-long, ill-matched and repeated pairs are removed from the
training set; validation and test sets are not changed. A subword vocabulary for both
languages is learned from the remaining training lines; most memory is needed for that,
in proportion to --vocabulary-lines. The folder has the sentences as text and as ids,
which trainers map into memory. With several training files,
--weights says how often per epoch the pairs of each come up: with 2.5, all of them
twice and a random half once more. All other translation recipes take the folder as
--data; `keras_vqem.text.TranslationData` reads it.
"""

import functools
import operator
from pathlib import Path

from arguments import (
    add_batch_arguments,
    add_number,
    make_parser,
    positive,
    user_errors,
)

# Names of the splits in the folder, in tfds and in the grammar of numbers.
SPLITS = {"train": "train", "val": "validation", "test": "test"}
SIDES = ("source", "target")


def parse(arguments):
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DIR", help="folder to write")
    for split in SPLITS:
        for side in SIDES:
            help = f"file with the {side} lines of the {split} set, plain or .gz"
            several = {}
            if split == "train":
                several = {"nargs": "+"}
                help += "; several files are mixed"
            add(f"--{split}-{side}", type=Path, metavar="FILE", help=help, **several)
    help = "weight of each pair of training files (default: 1 for all)"
    add("--weights", type=float, nargs="+", metavar="X", help=help)
    add("--tfds", metavar="NAME", help="data set such as wmt14_translate/de-en")
    add("--data", type=Path, metavar="DIR", help="folder where tfds has prepared it")
    add(
        "--numbers",
        type=positive,
        metavar="N",
        help="generate N training pairs, no data needed",
    )
    add(
        "--languages",
        nargs=2,
        default=["en", "de"],
        metavar=("FROM", "TO"),
        help="source and target language (default: en de)",
    )
    add_number(parser, "--vocabulary", 4000, "number of ids in the vocabulary")
    help = "maximum number of lines, chosen at random, to learn the vocabulary from"
    add_number(parser, "--vocabulary-lines", 200_000, help)
    help = "fraction of all characters that get ids; the rarest are spelled in bytes"
    add_number(parser, "--character-coverage", 1.0, help)
    add(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="use the vocabulary in this tokenizer.model instead of learning one",
    )
    help = "maximum number of tokens per side of a training pair"
    add_number(parser, "--max-tokens", 250, help)
    summary = parser.add_argument_group("summary of training batches")
    add_batch_arguments(summary, max_shapes=12)
    add_number(
        summary,
        "--length-multiple",
        1,
        "integer that divides all target lengths, 2 ** n_c for LatentNMT",
    )
    options = parser.parse_args(arguments)

    files = [getattr(options, f"{split}_source") for split in SPLITS]
    if sum([any(files), bool(options.tfds), options.numbers is not None]) != 1:
        parser.error("choose one of --train-source ..., --tfds and --numbers")
    for split in SPLITS:
        source, target = (getattr(options, f"{split}_{s}") for s in SIDES)
        if (source is None) != (target is None):
            parser.error(f"--{split}-source and --{split}-target go together")
        if any(files) and source is None and split != "test":
            parser.error(f"--{split}-source and --{split}-target are missing")
        for file in [*_listed(source), *_listed(target)]:
            if not file.is_file():
                parser.error(f"there is no file {file}")
    sources, targets = map(_listed, (options.train_source, options.train_target))
    if len(sources) != len(targets):
        parser.error(
            f"there are {len(sources)} files of --train-source and {len(targets)} of "
            f"--train-target; give the two sides of each corpus in the same order"
        )
    if options.weights is None:
        options.weights = [1.0] * max(len(sources), 1)
    elif len(options.weights) != len(sources):
        parser.error(
            f"there are {len(options.weights)} --weights for {len(sources)} files of "
            f"--train-source; give one per file"
        )
    if (options.output / "data.json").exists():
        parser.error(f"{options.output} already holds prepared data; remove it first")
    return options


def _listed(files):
    """Returns the files of a flag that takes one file, several, or was not given."""
    if files is None:
        return []
    return files if isinstance(files, list) else [files]


def read(options):
    """Returns a dict from names of splits to lists of `ParallelCorpus`."""
    from keras_vqem.text import ParallelCorpus
    from keras_vqem.text.stored_corpus import StoredCorpus

    splits = {}
    for split, name in SPLITS.items():
        if options.numbers is not None:
            count = options.numbers if split == "train" else min(1000, options.numbers)
            splits[split] = [ParallelCorpus.from_numbers(count, split=name)]
        elif options.tfds:
            corpus = ParallelCorpus.from_tfds(
                options.tfds, name, *options.languages, data_dir=options.data
            )
            splits[split] = [corpus]
        elif getattr(options, f"{split}_source"):
            files = [_listed(getattr(options, f"{split}_{side}")) for side in SIDES]
            # Training sets may not fit in memory.
            kind = StoredCorpus if split == "train" else ParallelCorpus.from_files
            splits[split] = [kind(*pair) for pair in zip(*files, strict=True)]
    return splits


@user_errors
def main(arguments=None):
    options = parse(arguments)

    from keras_vqem.text import SentencePieceTokenizer, TranslationData, clean
    from keras_vqem.text.lines import one_line

    parts = read(options)
    # Sentences of a data set may have line breaks, which files of lines cannot hold.
    train = [corpus.map(one_line) for corpus in parts.pop("train")]
    if options.tokenizer:
        tokenizer = SentencePieceTokenizer.from_file(options.tokenizer)
    else:
        cleaned = [clean(corpus)[0] for corpus in train]
        sides = [side for c in cleaned for side in (c.sources, c.targets)]
        tokenizer = SentencePieceTokenizer.train(
            functools.reduce(operator.add, sides),
            options.vocabulary,
            character_coverage=options.character_coverage,
            max_lines=options.vocabulary_lines,
        )
    # Lengths in tokens are known only now. All lines are cleaned again, so that the
    # summary has the line numbers of the corpus.
    mixed = []
    for number, (corpus, weight) in enumerate(zip(train, options.weights, strict=True)):
        kept, summary = clean(corpus, tokenizer, max_tokens=options.max_tokens)
        name = f", {options.train_source[number]}" if len(train) > 1 else ""
        print(f"Cleaning of the training set{name}:")
        print(summary, end="\n\n")
        mixed.append(kept.repeated(weight))
    mixed = functools.reduce(operator.add, mixed)
    if not len(mixed):
        raise ValueError("No training pair is left, so nothing was written.")
    splits = {"train": mixed, **{name: part for name, (part,) in parts.items()}}
    data = TranslationData.create(options.output, *options.languages, tokenizer, splits)

    sizes = ", ".join(f"{name} {len(corpus)}" for name, corpus in splits.items())
    print(f"{options.output}: {sizes} pairs, {tokenizer.vocabulary_size} ids\n")
    print(f"Training batches of {options.tokens_per_batch} tokens:")
    batches = data.batches(
        "train",
        options.tokens_per_batch,
        max_shapes=options.max_shapes,
        length_multiple=options.length_multiple,
    )
    print(batches.summary())


if __name__ == "__main__":
    main()
