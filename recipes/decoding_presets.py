"""The second half of benchmark_decoding.py: trained models, BLEU and real lengths.

Only recipes import this module. It imports the library inside functions, so that
--help is fast.
"""

import json
import sys
import time

import decoding_contestants
import plot_latency

SHIPPED = [
    f"multi30k_en_de_{kind}" for kind in ("teacher", "em", "hard", "codes", "ctc")
]
LANGUAGES = ("en", "de")


def sentences(args):
    """Returns the corpus: a split of a prepared folder, or two files of lines."""
    from keras_vqem.text import ParallelCorpus, TranslationData

    files = [args.data / f"{args.split}.{language}" for language in LANGUAGES]
    if all(file.is_file() for file in files):
        corpus = ParallelCorpus.from_files(*files)
    else:
        corpus = TranslationData(args.data).corpus(args.split)
    return corpus.take(range(min(args.lines or len(corpus), len(corpus))))


def entries_of(args, models, precisions):
    """Returns the rows: each model greedily and as it is stored, and the peers."""
    from keras_vqem.evaluation.benchmark_processes import Entry

    entries = {}
    for precision in args.precision:
        for name, model in models.items():
            beams = model.generation_config.get("num_beams", 1)
            for way in ("greedy", "stored") if beams > 1 else ("greedy",):
                text = "greedy" if way == "greedy" else f"{beams} beams"
                entries[f"{name}_{way}_{precision}"] = Entry(
                    f"{name}, {text}, {precision}",
                    "keras_vqem",
                    {"model": name, "precision": precision, "way": way},
                    process=f"keras_vqem {precision}",
                )
    teacher = next(iter(models))
    for precision in precisions:
        for num_beams in (1, 4):
            text = "greedy" if num_beams == 1 else f"{num_beams} beams"
            options = {"model": f"{teacher}_ct2", "precision": precision}
            options |= {"num_beams": num_beams, "threads": args.threads}
            entries[f"peer_{num_beams}_{precision}"] = Entry(
                f"CTranslate2, {teacher}, {text}, {precision}",
                "ctranslate2",
                options,
                peer=True,
                process="ctranslate2",
            )
    return entries


def measure(args, folder):
    """Scores and times all rows, and returns a dict with one size and its rows."""
    from keras_vqem.evaluation import decoding_report, translation_scores
    from keras_vqem.evaluation.benchmark_processes import Contest
    from keras_vqem.models import Transformer, loading
    from keras_vqem.serving import ctranslate2_precisions, write_ctranslate2

    given = args.presets or SHIPPED
    names = loading.short_names([loading.model_file(path) for path in given])
    paths = dict(zip(names, map(str, given), strict=True))
    models = {name: loading.load_translator(path) for name, path in paths.items()}
    first, tokenizer = names[0], models[names[0]].tokenizer
    if not isinstance(models[first], Transformer):
        raise ValueError(f"The first of --presets must be a Transformer, not {first}.")
    if len({model.tokenizer.sha256 for model in models.values()}) > 1:
        raise ValueError(
            f"The models {', '.join(names)} have different tokenizers, so they cannot "
            f"translate the same ids. Pass models that learned from the first."
        )
    corpus = sentences(args)
    rows = tokenizer.encode(corpus.sources).to_list()
    (folder / "settings.json").write_text(json.dumps({"presets": paths}))
    (folder / "sentences.json").write_text(json.dumps(rows))
    precisions = []
    if args.peers:
        precisions = ctranslate2_precisions(args.peers)
        write_ctranslate2(models[first], folder / f"{first}_ct2", args.peers)
    end = time.monotonic() + 60 * args.minutes
    with Contest(
        decoding_contestants.__file__, folder, args.threads, args.peers
    ) as contest:
        print("loading", file=sys.stderr)
        contest.build(entries_of(args, models, precisions), tokens=0, batch_size=1)
        for name in list(contest.workers):
            print(f"translating: {name}", file=sys.stderr)
            contest.ask(name, warm=1)
        left = end - time.monotonic()
        most = max(len(rows) // 4, 1)
        chosen = decoding_report.race(contest, left, most_rounds=most, warmup=0)
        results = contest.results
    decoding_report.summarize(results, {"over_greedy": f"{first}_greedy_float32"})
    for row in results.values():
        if ids := row.pop("ids", None):
            width = max(map(len, ids))
            padded = [line + [0] * (width - len(line)) for line in ids]
            texts = [x.decode() for x in tokenizer.decode(padded).numpy()]
            row["bleu"] = translation_scores.bleu(texts, corpus.targets)
    size = {"tokens": 0, "batch_size": 1, "rows": results}
    size |= chosen._asdict() if chosen else {}
    return {"sizes": [size], "sentences": len(corpus)}


def text_of(args, result):
    """Returns the table of the page."""
    from keras_vqem.evaluation.markdown import markdown_table

    [size] = result["sizes"]
    lines = []
    for row in size["rows"].values():
        if "median_ms" not in row:
            lines.append([row["label"], row.get("status", "-"), "", "", ""])
            continue
        ratio = f"{row['over_greedy']:.2f}" if "over_greedy" in row else "-"
        numbers = [f"{row[key]:.2f}" for key in ("bleu", "median_ms", "p95_ms")]
        lines.append([row["label"], *numbers, ratio])
    names = ["", "BLEU", "median ms", "p95 ms", "over the first"]
    timed = size.get("rounds", 0) * size.get("steps", 0)
    note = f"{result['sentences']} sentences scored, {timed} timed one at a time."
    return "\n\n".join([result["header"], markdown_table(names, lines), note])


def draw(args, result, path):
    """Draws BLEU against latency, a point per row and a color per model."""
    entries = [
        {
            "translator": row["label"].rsplit(", ", 2)[0],
            "name": row["label"],
            "bleu": row["bleu"],
            "latency": {"1": {"median_ms": row["median_ms"]}},
        }
        for row in result["sizes"][0]["rows"].values()
        if "bleu" in row and "median_ms" in row
    ]
    plot_latency.plot(entries, {}, path)
