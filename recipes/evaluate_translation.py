"""Translators side by side: BLEU, chrF, parameters, latency, and what codes carry.

    python recipes/evaluate_translation.py --data data/mine --split test \\
        --model runs/teacher --model runs/latent --num-beams 1 4 --json out/mine.json

Each model is tried with each number of beams. BLEU and chrF are sacreBLEU's, of plain
text as it was published; the signatures say how they were computed. Latencies are of
translating ids to ids in one graph, sentences of the split drawn at random, all models
in turns within one process; speedups are against the first model. A LatentNMT gets a
second table: how its codebook is used, and BLEU from the codes of the references (as
good as its codes allow) and from random codes (what its decoder knows without them).
With --rescore a Transformer chooses among the beams of each LatentNMT.
"""

import argparse
import sys
from pathlib import Path


def names_of(paths):
    """Short names for models: of their folders or files; all of a path if need be."""
    ordinary = ("model", "config")  # Their folders have the names.
    names = [
        p.stem if p.is_file() and p.stem not in ordinary else _folder(p) for p in paths
    ]
    clash = len(set(names)) < len(names)
    return [str(path) for path in paths] if clash else names


def _folder(path):
    path = path.resolve()
    return path.parent.name if path.is_file() else path.name


def training_seconds(path):
    """How long the run took that the model comes from; None if it is not known."""
    from keras_vqem.training import RunFolder

    lines = RunFolder(path.parent).metrics()
    return lines[-1]["training_seconds"] if lines else None


def evaluate(options, paths, corpus):
    """Rows of the table, and translations under the names of the rows."""
    from keras_vqem.evaluation import translation_report as report
    from keras_vqem.models.loading import load_translator

    models = [load_translator(path) for path in paths]
    rescorer = load_translator(options.rescore) if options.rescore else None
    entries, outputs, timed = [], {}, {}
    for path, name, model in zip(paths, names_of(paths), models, strict=True):
        found = None
        for num_beams in options.num_beams:
            row = f"{name}, {'greedy' if num_beams == 1 else f'{num_beams} beams'}"
            print(f"translating: {row}", file=sys.stderr, flush=True)
            # All of them said: a preset may store others.
            choices = {"num_beams": num_beams}
            if hasattr(model, "encode_ids"):
                choices["drop_repeats"] = options.drop_repeats
            settings = dict(choices)
            if rescorer is not None and num_beams > 1 and hasattr(model, "encode_ids"):
                choices["rescorer"] = rescorer
                settings["rescored_by"] = str(options.rescore)
            outputs[row], scores = report.quality(
                model, corpus, options.batch_size, **choices
            )
            entry = {"name": row, "model": str(path), "class": type(model).__name__}
            entry["training_seconds"] = training_seconds(path)
            entries.append({**entry, **settings, **scores})
            timed[row] = model, choices
            if hasattr(model, "encode_ids"):
                found = found or report.code_quality(model, corpus, options.batch_size)
                entries[-1]["codes"] = found
    for size in (1, 32):
        print(f"timing batches of {size}", file=sys.stderr, flush=True)
        times = report.latencies(timed, corpus.sources, size, options.rounds)
        for entry in entries:
            measured = times[entry["name"]]._asdict()
            entry.setdefault("latency", {})[str(size)] = measured
    report.add_speedups(entries)
    return entries, outputs


def main(arguments=None):
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    data_help = "folder made by prepare_translation.py"
    model_help = "a finished run, .keras file or preset; may be repeated"
    models = {"type": Path, "action": "append", "required": True, "metavar": "RUN"}
    add("--model", **models, help=model_help)
    add("--data", type=Path, required=True, metavar="DIR", help=data_help)
    add("--split", default="test", help="what to translate: test")
    num_beams = {"type": int, "nargs": "+", "default": [1], "metavar": "N"}
    add("--num-beams", **num_beams, help="numbers of beams to try, 1 is greedy: 1")
    repeats_help = "a LatentNMT leaves out words that follow themselves"
    add("--drop-repeats", action="store_true", help=repeats_help)
    rescore_help = "a Transformer that chooses among the beams of a LatentNMT"
    add("--rescore", type=Path, metavar="RUN", help=rescore_help)
    add("--json", type=Path, metavar="FILE", help="write all numbers as JSON too")
    add("--lines", **number, help="only the first N lines of the split: all")
    add("--rounds", default=50, **number, help="batches timed for each row: 50")
    add("--batch-size", default=64, **number, help="lines translated at a time: 64")
    add("--show", default=5, **number, help="translations to show: 5")
    options = parser.parse_args(arguments)
    positive = (*options.num_beams, options.rounds, options.batch_size)
    if min(positive) < 1 or (options.lines is not None and options.lines < 1):
        parser.error(
            "--num-beams, --rounds, --lines and --batch-size must be at least 1"
        )
    if len(set(options.num_beams)) < len(options.num_beams):
        parser.error(f"--num-beams {options.num_beams} has a number twice")

    from keras_vqem.evaluation import translation_report as report
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json
    from keras_vqem.models.loading import model_file
    from keras_vqem.text import ParallelCorpus, TranslationData

    try:
        paths = [model_file(path) for path in options.model]
        corpus = TranslationData(options.data).corpus(options.split)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if len(set(paths)) < len(paths):
        parser.error("a model is given twice")
    corpus = ParallelCorpus(
        corpus.sources[: options.lines], corpus.targets[: options.lines]
    )
    entries, outputs = evaluate(options, paths, corpus)

    print(f"{options.data}, {options.split}: {len(corpus)} sentences\n")
    print(report.table(entries), end="\n\n")
    print(f"BLEU: {entries[0]['bleu_signature']}")
    print(f"chrF: {entries[0]['chrf_signature']}\n")
    width = max(map(len, [*outputs, "reference"]))
    samples = []
    # Evenly over the split: its first lines may be alike.
    step = max(1, len(corpus) // max(1, options.show))
    for place in range(0, len(corpus), step)[: options.show]:
        sample = {"source": corpus.sources[place], "reference": corpus.targets[place]}
        samples.append(sample | {name: texts[place] for name, texts in outputs.items()})
        for name, text in samples[-1].items():
            # A published test set may hold bytes that are not UTF-8.
            samples[-1][name] = text = text.encode("utf-8", "replace").decode()
            print(f"{name:<{width}}  {text}")
        print()
    if options.json:
        result = {
            "data": str(options.data),
            "split": options.split,
            "sentences": len(corpus),
            **environment(),
            "entries": entries,
            "samples": samples,
        }
        write_json(options.json, result)


if __name__ == "__main__":
    main()
