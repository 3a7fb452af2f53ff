"""Sequence-level distillation: replaces training targets by a teacher's translations.

    python recipes/distill.py --data data/mine --model runs/teacher \\
        --output data/mine_distilled

translates all training sources with beam search. A teacher translates similar sentences
in similar ways, which a parallel decoder learns more easily than human translations
(Kim and Rush 2016, arXiv:1606.07947). Validation and test sets and the vocabulary are
copied unchanged.

If it is killed, the same command continues where it stopped. Several processes can
share the work with --shard 1/4 to --shard 4/4; the last one to end joins their lines.
"""

import argparse
import hashlib
import re
import sys
from pathlib import Path

from arguments import add_number, make_parser, user_errors


def shard(text):
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 1/4 to 4/4")
    return int(match[1]), int(match[2])


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add, folder = parser.add_argument, {"type": Path, "metavar": "DIR"}
    add(
        "--data",
        **folder,
        required=True,
        help="folder made by prepare_translation.py",
    )
    add(
        "--model",
        type=Path,
        required=True,
        metavar="RUN",
        help="teacher: folder of a finished run, .keras file or preset",
    )
    add("--output", **folder, required=True, help="folder to write")
    add_number(parser, "--num-beams", 4, "number of beams of the teacher's search")
    add_number(parser, "--batch-size", 64, "number of lines per batch")
    add(
        "--shard",
        type=shard,
        default=(1, 1),
        metavar="I/N",
        help="translate part I of N of the lines (default: 1/1)",
    )
    options = parser.parse_args(arguments)

    from keras_vqem.models.loading import load_translator, model_file
    from keras_vqem.text import TranslationData
    from keras_vqem.training.distillation import Shard, join

    if (options.output / "data.json").exists():
        print(f"{options.output} is already complete.")
        return
    data, file = TranslationData(options.data), model_file(options.model)
    sources, (which, count) = data.corpus("train").sources, options.shard
    lines = "\n".join(sources).encode("utf-8", "surrogateescape")
    settings = {
        "model": hashlib.sha256(file.read_bytes()).hexdigest(),
        "sources": hashlib.sha256(lines).hexdigest(),
        "num_beams": options.num_beams,
    }
    model = load_translator(file)
    Shard(options.output, which, count).translate(
        lambda texts: model.translate(
            texts, batch_size=options.batch_size, num_beams=options.num_beams
        ),
        sources,
        settings,
        chunk_lines=16 * options.batch_size,
        log=lambda line: print(line, flush=True),
    )
    made = join(data, options.output, count)
    if made is None:
        print(f"Shard {which}/{count} is complete, but not all shards are.")
        return
    print(f"{options.output}: {made.lines} training pairs")
    print(f"{made.kept} of them keep their own target: the teacher wrote nothing.")
    if made.kept:
        print(
            f"WARNING: the teacher wrote nothing for {made.kept} of {made.lines} "
            f"training sources ({made.kept / made.lines:.1%}). If these are many, it "
            f"is not trained well enough: look at its val_bleu.",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
