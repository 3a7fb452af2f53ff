"""Sequence-level distillation: replaces training targets by a teacher's translations.

    python recipes/distill.py --data data/mine --model runs/teacher \\
        --output data/mine_distilled

translates all training sources with beam search. A teacher translates similar sentences
in similar ways, which a parallel decoder learns more easily than human translations
(Kim and Rush 2016, arXiv:1606.07947). Validation and test sets and the vocabulary are
copied unchanged. With --sources captions.en the lines of that file, which need no
translation by anybody, are translated and added.

    python recipes/distill.py --data data/mine --model runs/ctc --num-beams 8 \\
        --rescorer runs/teacher --output data/mine_chosen

lets a student propose and its teacher choose: of eight translations of the student, the
one that the teacher finds most probable becomes the target. What the student can write
already is easier to learn than what only the teacher writes.

    python recipes/distill.py --data data/mine --model runs/backwards \\
        --back-translate captions.de --weight 3 --output data/mine_more

is back-translation (Sennrich 2016, arXiv:1511.06709): a model of the other direction
translates lines of the target language, and each line becomes the target of a new
pair. The training pairs of --data are kept, and here come up three times per epoch.
With --tag '#' back-translated sources begin with that sign, by which the model can tell
what was never written as a translation, and is perhaps shorter (Caswell 2019).

If it is killed, the same command continues where it stopped. With several GPUs each
translates a part of the lines; --strategy multi_worker divides them among the machines
of TF_CONFIG too (docs/scaling.md), which must share the output folder. By hand, several
processes share the work with --shard 1/4 to --shard 4/4. The last one to end joins the
lines of all.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from arguments import add_number, make_parser, user_errors


def shard(text):
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 1/4 to 4/4")
    return int(match[1]), int(match[2])


def translate_shards(arguments, strategy):
    """Translates with one process per device, each of which has a shard.

    Returns False, and does nothing, if the strategy has one device in all.
    """
    from keras_vqem.training import multi_worker
    from keras_vqem.training.strategies import num_devices

    here, (index, workers) = num_devices(strategy), (0, 1)
    if strategy == "multi_worker":
        index, workers = multi_worker.worker()
    count = here * workers
    if count == 1:
        return False
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(here)))
    processes = {}
    for device, name in zip(range(here), visible.split(","), strict=False):
        number = here * index + device + 1
        # The last of two flags counts.
        flags = ["--strategy", "none", "--shard", f"{number}/{count}"]
        processes[number] = subprocess.Popen(
            [sys.executable, __file__, *arguments, *flags],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": name},
        )
    failed = [number for number, process in processes.items() if process.wait()]
    if failed:
        raise RuntimeError(
            f"Shards {failed} of {count} failed; their messages are above. Run the "
            f"same command again to continue."
        )
    return True


def _hash(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


@user_errors
def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
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
    files = {"type": Path, "nargs": "+", "default": [], "metavar": "FILE"}
    add("--sources", **files, help="files with more lines of the source language")
    add(
        "--back-translate",
        **files,
        help="files with lines of the target language; --model translates them back",
    )
    help = "number of times that pairs of --data come up beside back-translated ones"
    add_number(parser, "--weight", 1.0, help)
    add(
        "--tag",
        default="",
        metavar="TEXT",
        help="text to put before back-translated sources, such as '#', so that the "
        "model can tell them from others (default: none)",
    )
    add_number(parser, "--num-beams", 4, "number of beams of the model's search")
    add(
        "--patience",
        type=float,
        metavar="X",
        help="factor by which a hypothesis may grow; 1 searches fastest, and writes "
        "shorter lines (default: that of the model)",
    )
    add(
        "--rescorer",
        type=Path,
        metavar="RUN",
        help="Transformer that chooses among the beams of a parallel --model (default: "
        "none, the model chooses)",
    )
    add_number(parser, "--batch-size", 64, "number of lines per batch")
    add(
        "--strategy",
        default="auto",
        metavar="NAME",
        help="devices that share the lines: auto (all GPUs), none, mirrored, "
        "mirrored:N or multi_worker (default: %(default)s, none with --shard)",
    )
    add(
        "--shard",
        type=shard,
        metavar="I/N",
        help="translate part I of N of the lines only (default: all)",
    )
    options = parser.parse_args(arguments)
    if options.shard and options.strategy not in ("auto", "none"):
        parser.error("--shard and --strategy both divide the lines: leave out one")
    if options.sources and options.back_translate:
        parser.error("--sources and --back-translate need models of two directions")
    if options.tag and not options.back_translate:
        parser.error("--tag is for --back-translate")
    if options.rescorer and options.num_beams < 2:
        parser.error("--rescorer chooses among beams: use --num-beams 2 or more")

    from keras_vqem.models.loading import load_translator, model_file
    from keras_vqem.text import TranslationData
    from keras_vqem.text.parallel_corpus import read_lines
    from keras_vqem.training.distillation import Shard, back_translate, distill, join

    if (options.output / "data.json").exists():
        print(f"{options.output} is already complete.")
        return
    if not options.shard and translate_shards(arguments, options.strategy):
        return
    data, file = TranslationData(options.data), model_file(options.model)
    files = options.back_translate or options.sources
    more = [line for path in files for line in read_lines(path)]
    train = [] if options.back_translate else data.corpus("train").sources
    lines, (which, count) = train + more, options.shard or (1, 1)
    text = "\n".join(lines).encode("utf-8", "surrogateescape")
    settings = {
        "model": _hash(file),
        "sources": hashlib.sha256(text).hexdigest(),
        "num_beams": options.num_beams,
    }
    search = {"num_beams": options.num_beams}
    if options.patience is not None:
        search["patience"] = settings["patience"] = options.patience
    model = load_translator(file)
    if "num_beams" not in model.generation_options:
        raise ValueError(
            f"{options.model} is a {type(model).__name__}, which has no beams. Pass a "
            f"Transformer, CTCTranslator or LatentNMT as --model."
        )
    if options.rescorer:
        if "rescorer" not in model.generation_options:
            raise ValueError(
                f"{options.model} is a {type(model).__name__}, which takes no "
                f"--rescorer: it is the kind of model that chooses. Leave it out, or "
                f"pass a CTCTranslator or LatentNMT as --model."
            )
        judge = model_file(options.rescorer)
        search["rescorer"], settings["rescorer"] = load_translator(judge), _hash(judge)
    Shard(options.output, which, count).translate(
        lambda texts: model.translate(texts, batch_size=options.batch_size, **search),
        lines,
        settings,
        chunk_lines=16 * options.batch_size,
        log=lambda line: print(line, flush=True),
    )
    translations = join(lines, options.output, count)
    if translations is None:
        print(f"Shard {which}/{count} is complete, but not all shards are.")
        return
    if options.back_translate:
        made = back_translate(
            data, options.output, translations, more, options.weight, options.tag
        )
        print(f"{options.output}: {made.lines} training pairs")
        print(f"{made.kept} of them are of {options.data}, the others back-translated.")
        return
    made = distill(data, options.output, translations, more)
    print(f"{options.output}: {made.lines} training pairs")
    print(f"{made.kept} of them keep their own target: the teacher wrote nothing.")
    if made.kept:
        print(
            f"WARNING: the teacher wrote nothing for {made.kept} of {len(train)} "
            f"training sources ({made.kept / len(train):.1%}). If these are many, it "
            f"is not trained well enough: look at its val_bleu.",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
