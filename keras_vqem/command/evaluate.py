"""Measures how well models translate your own text, and how fast.

SOURCES and REFERENCES are two files, line n of one the translation of line n of the
other. Lines are translated as `keras-vqem translate` does, with the options that each
model stores. Printed are BLEU and chrF with the signatures of sacreBLEU, the
milliseconds for one sentence at a time (from ids to ids), and the lines whose
translations have the lowest chrF.
"""

import argparse
from typing import TYPE_CHECKING, Any

from keras_vqem.command import problems

if TYPE_CHECKING:
    from keras_vqem.models.translator import Translator
    from keras_vqem.text import ParallelCorpus

DEFAULT = "multi30k_en_de_ctc"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `keras-vqem evaluate`."""
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    help = "file with one text per line, UTF-8, plain or .gz"
    add("sources", metavar="SOURCES", help=help)
    help = "file with their translations, as many lines"
    add("references", metavar="REFERENCES", help=help)
    help = "name of a preset, folder of a preset or a finished run, or .keras file; "
    help += f"may be repeated, speeds are compared with the first (default: {DEFAULT})"
    add("--model", action="append", help=help)
    help = "number of sentences per batch (default: 64)"
    add("--batch-size", default=64, **number, help=help)
    help = "number of sentences that are timed one by one; 0 times none (default: 50)"
    add("--rounds", default=50, **number, help=help)
    help = "number of the worst lines to print per model (default: 5)"
    add("--worst", default=5, **number, help=help)


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Runs `keras-vqem evaluate`."""
    if options.batch_size < 1 or min(options.rounds, options.worst) < 0:
        parser.error("--batch-size must be at least 1, --rounds and --worst at least 0")

    from keras_vqem.command.pairs import read_pairs
    from keras_vqem.evaluation import translation_report as report
    from keras_vqem.models import loading
    from keras_vqem.text import split_sentences

    with problems.told_by(parser, options.verbose):
        corpus = read_pairs(options.sources, options.references)
        paths = [loading.model_file(path) for path in options.model or [DEFAULT]]
        if len(set(paths)) < len(paths):
            parser.error("a model is given twice")
        names = loading.short_names(paths)
        models = dict(zip(names, map(loading.load_translator, paths), strict=True))
        entries, worst = [], []
        for name, model in models.items():
            entry, lines = measured(name, model, corpus, options)
            entries.append(entry)
            worst += lines
        sentences = [s for text in corpus.sources for s in split_sentences(text)]
        if options.rounds and sentences:
            timed = {name: (model, {}) for name, model in models.items()}
            times = report.latencies(timed, sentences, 1, options.rounds)
            for entry in entries:
                entry["latency"] = {"1": times[entry["name"]]._asdict()}
            report.add_speedups(entries)
        print(f"{options.sources}: {len(corpus):,} lines\n")
        print(report.table(entries), end="\n\n")
        print(f"BLEU: {entries[0]['bleu_signature']}")
        print(f"chrF: {entries[0]['chrf_signature']}")
        print("".join(f"\n{line}" for line in worst), end="")


def measured(
    name: str,
    model: "Translator",
    corpus: "ParallelCorpus",
    options: argparse.Namespace,
) -> tuple[dict[str, Any], list[str]]:
    """Translates a corpus with a model.

    Returns:
        A tuple of the entry of the model, as in `translation_report.evaluate`, and a
        list of a few lines each about its worst translations.
    """
    from keras_vqem.command.answers import answer_texts
    from keras_vqem.command.progress import Progress
    from keras_vqem.evaluation import translation_report as report
    from keras_vqem.evaluation.translation_scores import sentence_chrf

    progress = Progress(total=1)
    number = len(corpus)
    answers = answer_texts(
        model,
        corpus.sources,
        options.batch_size,
        lambda share: progress.tell(share, int(share * number)),
    )
    progress.say(f"{name}: translated {number:,} lines")
    found = [answer.translation for answer in answers]
    scores = report.scores_of(model, found, corpus.targets)
    entry = {"name": name, "translator": name, "class": type(model).__name__, **scores}
    each = sentence_chrf(found, corpus.targets)
    lines = []
    for place in sorted(range(number), key=each.__getitem__)[: options.worst]:
        lines.append(
            f"{name}, line {place + 1}: chrF {each[place]:.1f}\n"
            f"  source       {corpus.sources[place]}\n"
            f"  reference    {corpus.targets[place]}\n"
            f"  translation  {found[place]}\n"
        )
    return entry, lines
