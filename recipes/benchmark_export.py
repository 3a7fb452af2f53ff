"""Compares exports of translators in several precisions: BLEU, size, latency.

    python recipes/benchmark_export.py \\
        --source data/val.en --reference data/val.de --json out/export.json

Each model is exported once per precision, as `keras-vqem export --precision` does, and
read back. `litert` and `litert_int8` are LiteRT models of a `CTCTranslator`, as
`write_litert` writes them for the longest of the lines; other models have no such row.
BLEU is that of all lines, translated by the export. Sizes are those of its files: all
of them, and the weights alone; a LiteRT model is one file. Latencies are of one line at
a time, from string to string; all exports take turns within one process. Run it on an
idle machine, and compare ratios, not milliseconds.
"""

import itertools
import os
import random
import tempfile
from pathlib import Path

from arguments import add_number, make_parser, user_errors

# Greedy, as beams need four times the time; the others as stored.
MODELS = [
    "multi30k_en_de_teacher:1",
    "multi30k_en_de_ctc",
    "multi30k_en_de_codes",
    "multi30k_en_de_em",
]
LITERT = {"litert": "float32", "litert_int8": "int8"}
PRECISIONS = ["float32", "bfloat16", "int8", *LITERT]


def megabytes(paths):
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def name_and_options(entry):
    """Splits NAME:BEAMS; without a number of beams, the model's own options hold."""
    name, _, beams = entry.rpartition(":")
    return (name, {"num_beams": int(beams)}) if beams.isdecimal() else (entry, {})


def saved_model(model, folder, precision, options):
    """Exports a SavedModel and returns a function from texts to translations."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401 (operations of the tokenizer)

    model.export(folder, precision=precision, **options)
    served = tf.saved_model.load(str(folder))

    def translate(texts):
        # Signatures live as long as what they were loaded with.
        serve = served.signatures["serving_default"]
        found = serve(texts=tf.constant(texts))["translations"].numpy()
        return [text.decode() for text in found]

    return translate


def litert(model, folder, length, precision):
    """Writes a LiteRT model and returns a function from texts to translations."""
    import tensorflow as tf

    from keras_vqem.serving import write_litert

    path = folder / "model.tflite"
    write_litert(model, path, length=length, precision=precision)
    threads = len(os.sched_getaffinity(0))
    interpreter = tf.lite.Interpreter(str(path), num_threads=threads)
    run = interpreter.get_signature_runner()

    def translate(texts):
        ids = model.tokenizer.encode(texts).to_tensor(0, shape=[None, length])
        rows = [run(source_ids=row)["target_ids"] for row in ids.numpy()[:, None]]
        return [model.tokenizer.decode(row).numpy()[0].decode() for row in rows]

    return translate


def translated(translate, lines, batch_size):
    starts = range(0, len(lines), batch_size)
    batches = (lines[start : start + batch_size] for start in starts)
    return [text for batch in batches for text in translate(batch)]


def one_by_one(translate, lines):
    """Returns a function that translates the next of some lines."""
    endless = itertools.cycle([[line] for line in lines])
    return lambda: translate(next(endless))


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add, file = parser.add_argument, {"type": Path, "metavar": "FILE"}
    help = "presets, folders of runs, or .keras files; NAME:N has N beams "
    help += f"(default: {' '.join(MODELS)})"
    add("--models", nargs="+", default=MODELS, metavar="MODEL", help=help)
    add("--source", required=True, **file, help="file of lines to translate")
    add("--reference", required=True, **file, help="file of their translations")
    help = "precisions to try (default: " + " ".join(PRECISIONS) + ")"
    add("--precisions", nargs="+", default=PRECISIONS, metavar="NAME", help=help)
    add_number(parser, "--batch-size", 64, "number of lines per batch, for BLEU")
    add_number(parser, "--rounds", 50, "number of timed lines per export")
    add("--json", **file, help="file for all numbers, as JSON")
    options = parser.parse_args(arguments)

    from keras_vqem.evaluation import latency, translation_scores
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.evaluation.markdown import markdown_table
    from keras_vqem.files import write_json
    from keras_vqem.models import CTCTranslator
    from keras_vqem.models.loading import load_translator

    lines, references = (
        path.read_text(encoding="utf-8").splitlines()
        for path in (options.source, options.reference)
    )
    timed = random.Random(0).sample(lines, min(options.rounds, len(lines)))
    entries, functions, texts = [], {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        for entry, precision in itertools.product(options.models, options.precisions):
            folder = Path(temporary) / str(len(entries))
            name, chosen = name_and_options(entry)
            model = load_translator(name)
            if precision not in LITERT:
                translate = saved_model(model, folder, precision, chosen)
            elif isinstance(model, CTCTranslator):
                longest = model.tokenizer.encode(lines).row_lengths().numpy().max()
                translate = litert(model, folder, int(longest), LITERT[precision])
            else:
                continue
            found = translated(translate, lines, options.batch_size)
            same = texts.setdefault(entry, found)
            result = {
                "model": Path(entry).name,
                "precision": precision,
                "bleu": translation_scores.bleu(found, references),
                "same": sum(a == b for a, b in zip(found, same, strict=True)),
                "megabytes": megabytes(folder.rglob("*")),
                "megabytes_of_weights": megabytes(
                    [*folder.glob("variables/*.data-*"), *folder.glob("*.tflite")]
                ),
            }
            functions[len(entries)] = one_by_one(translate, timed)
            entries.append(result)
            print(f"{entry}, {precision}: BLEU {result['bleu']:.2f}", flush=True)
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
        content = {"lines": len(lines), "entries": entries, **environment()}
        write_json(options.json, content)


if __name__ == "__main__":
    main()
