"""Compares exports of translators in several precisions: BLEU, size, latency.

    python recipes/benchmark_export.py --num-beams 1 \\
        --source data/val.en --reference data/val.de --json out/export.json \\
        --models multi30k_en_de_teacher multi30k_en_de_ctc \\
        multi30k_en_de_codes multi30k_en_de_em

Each model is exported once per precision, as `keras-vqem export --precision` does, and
read back. BLEU is that of all lines, translated by the SavedModel. Sizes are those of
its files: all of them, and the weights alone. Latencies are of one line at a time, from
string to string; all exports take turns within one process. Run it on an idle machine,
and compare ratios, not milliseconds.
"""

import itertools
import random
import tempfile
from pathlib import Path

from arguments import add_number, make_parser, positive, user_errors


def megabytes(paths):
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def translated(serve, lines, batch_size):
    import tensorflow as tf

    found = []
    for start in range(0, len(lines), batch_size):
        batch = lines[start : start + batch_size]
        output = serve(texts=tf.constant(batch))["translations"].numpy()
        found += [text.decode() for text in output]
    return found


def one_by_one(serve, lines):
    """Returns a function that translates the next of some lines."""
    import tensorflow as tf

    endless = itertools.cycle([tf.constant([line]) for line in lines])
    return lambda: serve(texts=next(endless))["translations"].numpy()


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add, file = parser.add_argument, {"type": Path, "metavar": "FILE"}
    help = "names or folders of presets, folders of runs, or .keras files"
    add("--models", nargs="+", required=True, metavar="MODEL", help=help)
    add("--source", required=True, **file, help="file of lines to translate")
    add("--reference", required=True, **file, help="file of their translations")
    help = "precisions to try (default: float32 bfloat16)"
    default = ["float32", "bfloat16"]
    add("--precisions", nargs="+", default=default, metavar="NAME", help=help)
    help = "number of beams of all models (default: as stored in each)"
    add("--num-beams", type=positive, metavar="N", help=help)
    add_number(parser, "--batch-size", 64, "number of lines per batch, for BLEU")
    add_number(parser, "--rounds", 50, "number of timed lines per export")
    add("--json", **file, help="file for all numbers, as JSON")
    options = parser.parse_args(arguments)

    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (operations of the tokenizer)

    from keras_vqem.evaluation import latency, translation_scores
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.evaluation.markdown import markdown_table
    from keras_vqem.files import write_json
    from keras_vqem.models.loading import load_translator

    lines, references = (
        path.read_text(encoding="utf-8").splitlines()
        for path in (options.source, options.reference)
    )
    timed = random.Random(0).sample(lines, min(options.rounds, len(lines)))
    chosen = {} if options.num_beams is None else {"num_beams": options.num_beams}
    entries, functions, texts = [], {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        for model, precision in itertools.product(options.models, options.precisions):
            folder = Path(temporary) / str(len(entries))
            load_translator(model).export(folder, precision=precision, **chosen)
            served = tf.saved_model.load(str(folder))
            serve = served.signatures["serving_default"]
            found = translated(serve, lines, options.batch_size)
            same = texts.setdefault(model, found)
            entry = {
                "model": Path(model).name,
                "precision": precision,
                "bleu": translation_scores.bleu(found, references),
                "same": sum(a == b for a, b in zip(found, same, strict=True)),
                "megabytes": megabytes(folder.rglob("*")),
                "megabytes_of_weights": megabytes(folder.glob("variables/*.data-*")),
            }
            entries.append(entry)
            # The function keeps `served`, and so its weights, alive.
            function = one_by_one(serve, timed)
            functions[len(entries) - 1] = lambda f=function, served=served: f()
            print(f"{model}, {precision}: BLEU {entry['bleu']:.2f}", flush=True)
        times = latency.measure(functions, rounds=options.rounds)
    for number, found in times.items():
        entries[number] |= found._asdict()
    names = ["model", "precision", "BLEU", "same lines", "MB", "of weights"]
    rows = [
        [
            entry["model"],
            entry["precision"],
            f"{entry['bleu']:.2f}",
            f"{entry['same']:,} of {len(lines):,}",
            f"{entry['megabytes']:.1f}",
            f"{entry['megabytes_of_weights']:.1f}",
            f"{entry['median_ms']:.1f}",
            f"{entry['p95_ms']:.1f}",
        ]
        for entry in entries
    ]
    print("\n" + markdown_table([*names, "median ms", "p95 ms"], rows))
    if options.json:
        settings = {"lines": len(lines), "num_beams": options.num_beams}
        write_json(options.json, {**settings, "entries": entries, **environment()})


if __name__ == "__main__":
    main()
