"""Compares translators: BLEU, chrF, parameters, latency, and use of codes.

    python recipes/evaluate_translation.py --data data/mine --split test \\
        --model runs/teacher --model runs/latent --num-beams 1 4 --json out/mine.json

Each model is tried with each number of beams, or of samples if it is a FertilityNAT:
--num-samples 1 10 100 --rescorer runs/teacher is noisy parallel decoding. With
--num-iterations 1 2 5 10, each RefinementNAT is tried with each number of passes.
sacreBLEU computes BLEU and chrF of plain text as it was published; its signatures are
printed. Latencies are those of translating ids to ids in one graph: sentences of the
split in random order, all models in turns within one process. Speeds are compared with
the first model; a row that writes nothing for more than half of the sentences gets no
speed ratio. A second table has, for each LatentNMT, statistics of its codebook, and
BLEU from the codes of the references (the limit of codes and decoder) and from random
codes (the decoder with the source alone).
With --rescorer, a Transformer chooses among the beams or samples of each other model.
Models keep their other stored options, such as the blank's bias of a CTCTranslator.
"""

from pathlib import Path

import compared_translators
from arguments import add_number, make_parser, positive, user_errors


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add, number = parser.add_argument, {"type": positive, "metavar": "N"}
    compared_translators.add_arguments(parser, "test")
    beams_help = "numbers of beams to try; 1 is greedy search (default: 1)"
    add("--num-beams", **number, nargs="+", default=[1], help=beams_help)
    samples_help = "numbers of samples to try with a FertilityNAT (default: 1)"
    add("--num-samples", **number, nargs="+", default=[1], help=samples_help)
    passes_help = "numbers of passes to try with RefinementNAT (default: as stored)"
    add("--num-iterations", **number, nargs="+", default=[], help=passes_help)
    repeats_help = "let LatentNMT leave out a word that repeats the one before it"
    add("--drop-repeats", action="store_true", help=repeats_help)
    rescore_help = "Transformer that chooses among candidates of others (default: none)"
    add("--rescorer", type=Path, metavar="RUN", help=rescore_help)
    lowercase_help = "add a column with BLEU of lower-cased text"
    add("--lowercase", action="store_true", help=lowercase_help)
    international_help = "add one of text divided into words by mteval-v14's rules, as "
    international_help += "Tensor2Tensor's t2t-bleu has it"
    add("--international", action="store_true", help=international_help)
    sizes_help = "numbers of sentences per timed batch (default: 1 32)"
    add("--latency-batches", **number, nargs="+", default=[1, 32], help=sizes_help)
    add_number(parser, "--rounds", 50, "number of timed batches per row")
    add_number(parser, "--batch-size", 64, "number of lines per batch")
    add_number(parser, "--show", 5, "number of translations to print", int)
    options = parser.parse_args(arguments)
    if options.show < 0:
        parser.error("--show must not be negative")
    for name in ("num_beams", "num_samples", "num_iterations", "latency_batches"):
        numbers = getattr(options, name)
        if len(set(numbers)) < len(numbers):
            flag = name.replace("_", "-")
            parser.error(f"--{flag} {numbers} has a number twice")

    from keras_vqem.evaluation import model_card, translation_scores
    from keras_vqem.evaluation import translation_report as report
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json
    from keras_vqem.models import Transformer, loading

    paths, models, corpus = compared_translators.load(parser, options)
    rescorer = None
    if options.rescorer:
        rescorer = loading.load_model(options.rescorer, Transformer)
    also = [name for name in translation_scores.FURTHER if getattr(options, name)]
    entries, outputs = report.evaluate(
        models,
        corpus,
        options.num_beams,
        options.drop_repeats,
        rescorer,
        options.batch_size,
        options.rounds,
        also,
        options.num_samples,
        options.num_iterations,
        options.latency_batches,
    )
    for entry in entries:
        path = paths[entry["translator"]]
        entry["model"] = str(path)
        entry["training_seconds"] = model_card.training_seconds(path.parent)

    samples = []
    # Samples are spread over the split, whose first lines may be similar.
    step = max(1, len(corpus) // max(1, options.show))
    for place in range(0, len(corpus), step)[: options.show]:
        sample = {"source": corpus.sources[place], "reference": corpus.targets[place]}
        sample |= {name: texts[place] for name, texts in outputs.items()}
        # A published test set may hold bytes that are not UTF-8.
        samples.append(
            {n: text.encode("utf-8", "replace").decode() for n, text in sample.items()}
        )
    # Before anything is printed, as whoever reads that may close the pipe.
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
    print(f"{options.data}, {options.split}: {len(corpus)} sentences\n")
    print(report.table(entries), end="\n\n")
    print(f"BLEU: {entries[0]['bleu_signature']}")
    for name in also:
        label, _ = translation_scores.FURTHER[name]
        print(f"BLEU, {label}: {entries[0][f'bleu_{name}_signature']}")
    print(f"chrF: {entries[0]['chrf_signature']}\n")
    width = max(map(len, [*outputs, "reference"]))
    for sample in samples:
        for name, text in sample.items():
            print(f"{name:<{width}}  {text}")
        print()


if __name__ == "__main__":
    main()
