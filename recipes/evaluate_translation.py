"""Compares translators: BLEU, chrF, parameters, latency, and use of codes.

    python recipes/evaluate_translation.py --data data/mine --split test \\
        --model runs/teacher --model runs/latent --num-beams 1 4 --json out/mine.json

Each model is tried with each number of beams. sacreBLEU computes BLEU and chrF of plain
text as it was published; its signatures are printed. Latencies are those of translating
ids to ids in one graph: sentences of the split in random order, all models in turns
within one process. Speeds are compared with the first model; a row that writes nothing
for more than half of the sentences gets no speed ratio. A second table has, for each
LatentNMT, statistics of its codebook, and BLEU from the codes of the references (the
limit of codes and decoder) and from random codes (the decoder with the source alone).
With --rescorer, a Transformer chooses among the beams of each LatentNMT and
CTCTranslator. A CTCTranslator keeps its other stored options, such as the blank's bias.
"""

from pathlib import Path

from arguments import add_number, make_parser, positive, user_errors


def names_of(paths):
    """Returns short names of models, or their paths if two names are the same."""
    ordinary = ("model", "config")  # Files whose folders have the names.
    names = [
        p.stem if p.is_file() and p.stem not in ordinary else _folder(p) for p in paths
    ]
    clash = len(set(names)) < len(names)
    return [str(path) for path in paths] if clash else names


def _folder(path):
    path = path.resolve()
    return path.parent.name if path.is_file() else path.name


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add, number = parser.add_argument, {"type": positive, "metavar": "N"}
    model = {"type": Path, "action": "append", "required": True, "metavar": "RUN"}
    model_help = "folder of a finished run, .keras file or preset; may be repeated"
    add("--model", **model, help=model_help)
    data_help = "folder made by prepare_translation.py"
    add("--data", type=Path, required=True, metavar="DIR", help=data_help)
    add("--split", default="test", help="split to translate (default: test)")
    beams_help = "numbers of beams to try; 1 is greedy search (default: 1)"
    add("--num-beams", **number, nargs="+", default=[1], help=beams_help)
    repeats_help = "let LatentNMT leave out a word that repeats the one before it"
    add("--drop-repeats", action="store_true", help=repeats_help)
    rescore_help = "Transformer that chooses among the beams of others (default: none)"
    add("--rescorer", type=Path, metavar="RUN", help=rescore_help)
    add("--json", type=Path, metavar="FILE", help="file for all numbers, as JSON")
    add("--lines", **number, help="number of lines of the split (default: all)")
    add_number(parser, "--rounds", 50, "number of timed batches per row")
    add_number(parser, "--batch-size", 64, "number of lines per batch")
    add_number(parser, "--show", 5, "number of translations to print", int)
    options = parser.parse_args(arguments)
    if options.show < 0:
        parser.error("--show must not be negative")
    if len(set(options.num_beams)) < len(options.num_beams):
        parser.error(f"--num-beams {options.num_beams} has a number twice")

    from keras_vqem.evaluation import model_card
    from keras_vqem.evaluation import translation_report as report
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json
    from keras_vqem.models import Transformer, loading
    from keras_vqem.text import ParallelCorpus, TranslationData

    paths = [loading.model_file(path) for path in options.model]
    if len(set(paths)) < len(paths):
        parser.error("a model is given twice")
    corpus = TranslationData(options.data).corpus(options.split)
    paths = dict(zip(names_of(paths), paths, strict=True))
    models = {name: loading.load_translator(path) for name, path in paths.items()}
    rescorer = None
    if options.rescorer:
        rescorer = loading.load_model(options.rescorer, Transformer)
    corpus = ParallelCorpus(
        corpus.sources[: options.lines], corpus.targets[: options.lines]
    )
    entries, outputs = report.evaluate(
        models,
        corpus,
        options.num_beams,
        options.drop_repeats,
        rescorer,
        options.batch_size,
        options.rounds,
    )
    for entry in entries:
        path = paths[entry["translator"]]
        entry["model"] = str(path)
        entry["training_seconds"] = model_card.training_seconds(path.parent)

    print(f"{options.data}, {options.split}: {len(corpus)} sentences\n")
    print(report.table(entries), end="\n\n")
    print(f"BLEU: {entries[0]['bleu_signature']}")
    print(f"chrF: {entries[0]['chrf_signature']}\n")
    width = max(map(len, [*outputs, "reference"]))
    samples = []
    # Samples are spread over the split, whose first lines may be similar.
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
            "rescorer": str(options.rescorer) if options.rescorer else None,
            **environment(),
            "entries": entries,
            "samples": samples,
        }
        write_json(options.json, result)


if __name__ == "__main__":
    main()
