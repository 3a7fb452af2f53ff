"""The first half of benchmark_decoding.py: random weights, lengths and batches.

Only recipes import this module. It imports the library inside functions, so that
--help is fast.
"""

import gc
import json
import sys
import time

import decoding_contestants
from arguments import sizes
from plot_runs import COLORS

PEER = "peer_shallow_greedy_int8"
RATIOS = {
    "over_greedy": "over our greedy",
    "over_peer": "over CTranslate2 12 + 1 int8",
    "times_limit": "x limit",
}
WAYS = {"greedy": ("greedy", 1), "beam": ("4 beams", 4)}


def labels_of(args, lone=True):
    """Returns a dict from names of `decoding_models.build` to labels.

    Only one sentence at a time, `lone`, is translated by predictors of every depth.
    """
    encoder, decoder = args.num_encoder_layers, args.num_decoder_layers
    labels = {
        "transformer": f"Transformer {encoder} + {decoder}",
        "shallow": f"Transformer {encoder + decoder} + 1",
    }
    for compress in args.num_compress_steps:
        for depth in args.num_predictor_layers if lone else [default_depth(args)]:
            labels[f"latent_{compress}_{depth}"] = (
                f"LatentNMT n_c={compress}, P={depth}"
            )
    compress, depth = args.num_compress_steps[0], default_depth(args)
    labels["ctc"] = "CTCTranslator"
    labels[f"codes_{compress}_{depth}"] = (
        f"LatentNMT n_c={compress}, P={depth}, words by CTC"
    )
    return labels


def default_depth(args):
    """The default number of predictor layers, or the first one that is measured."""
    depths = args.num_predictor_layers
    return 2 if 2 in depths else depths[0]


def entries_of(args, lone):
    """Returns the rows: our models in each precision, then those of CTranslate2."""
    from keras_vqem.evaluation.benchmark_processes import Entry
    from keras_vqem.serving import ctranslate2_precisions

    entries, labels = {}, labels_of(args, lone)
    for precision in args.precision:
        for model, label in labels.items():
            ways = {"ids": ("", 1)}
            if model in ("transformer", "shallow"):
                ways = {"greedy": WAYS["greedy"]} if model == "shallow" else WAYS
            for way, (text, _) in ways.items():
                entries[f"{model}_{way}_{precision}"] = Entry(
                    ", ".join(filter(None, (label, text, precision))),
                    "keras_vqem",
                    {"model": model, "precision": precision, "way": way},
                    process=f"keras_vqem {precision}",
                )
    for model in ("transformer", "shallow") if args.peers else ():
        label = labels[model].replace("Transformer", "CTranslate2")
        for precision in ctranslate2_precisions(args.peers):
            for way, (text, num_beams) in WAYS.items():
                options = {"model": model, "precision": precision}
                entries[f"peer_{model}_{way}_{precision}"] = Entry(
                    f"{label}, {text}, {precision}",
                    "ctranslate2",
                    {**options, "num_beams": num_beams, "threads": args.threads},
                    peer=True,
                    process="ctranslate2",
                )
    return entries


def prepare(args, folder, sizes_to_time):
    """Writes what the contestants read, and returns the parts of each translation.

    Returns:
        Dict from pairs of a size and the name of a row in float32 to lists of `Part`.
    """
    import decoding_models

    from keras_vqem.evaluation import decoding_limit
    from keras_vqem.serving import write_ctranslate2

    settings = {
        "network": sizes(args),
        "vocabulary": args.vocabulary,
        "num_codes": args.num_codes,
        "tokens": sorted({tokens for tokens, _ in sizes_to_time}),
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    parts = {}
    for name in labels_of(args):
        print(f"building {name}", file=sys.stderr)
        gc.collect()  # Layers refer to each other, and a model has 250 MB.
        model, told = decoding_models.build(name, settings), {"ids": 1}
        if name in ("transformer", "shallow"):
            told = {way: num_beams for way, (_, num_beams) in WAYS.items()}
            if args.peers:
                write_ctranslate2(model, folder / name, args.peers)
        for tokens, batch_size in sizes_to_time:
            for way, num_beams in told.items():
                found = decoding_limit.parts_of(
                    model, tokens, tokens, batch_size, num_beams
                )
                # XLA computes in float32 too.
                row = f"{name}_{way}_float32"
                for same in (row, f"peer_{row}", f"{row}-xla"):
                    parts[(tokens, batch_size), same] = found
    return parts


def measure(args, folder):
    """Times all rows at all sizes, and returns a list of dicts, one per size."""
    from keras_vqem.evaluation import decoding_limit, decoding_report
    from keras_vqem.evaluation.benchmark_processes import Contest

    deadline = time.monotonic() + 60 * args.minutes
    at = [(tokens, 1) for tokens in args.tokens]
    at += [(args.batch_tokens, number) for number in args.batch_sizes]
    parts = prepare(args, folder, at)
    gc.collect()
    rows = {part.rows for found in parts.values() for part in found}
    rates = decoding_limit.rates(rows, args.hidden_dim, args.intermediate_dim)
    limits = {k: decoding_limit.least_seconds(v, rates) for k, v in parts.items()}
    points, left = [], len(at)
    # Batches need memory: they start with new processes, and fewer models.
    number = len(args.tokens)
    for lone, group in ((True, at[:number]), (False, at[number:])):
        entries = entries_of(args, lone)
        with Contest(
            decoding_contestants.__file__, folder, args.threads, args.peers
        ) as contest:
            for tokens, batch_size in group:
                title = f"{tokens} tokens, batch {batch_size}: "
                print(f"{title}building", file=sys.stderr)
                contest.build(entries, tokens=tokens, batch_size=batch_size)
                budget = (deadline - time.monotonic()) / left
                left -= 1
                chosen = decoding_report.race(contest, budget, title)
                results = contest.results
                first = args.precision[0]
                bases = {"over_greedy": f"transformer_greedy_{first}"}
                bases["over_peer"] = PEER
                own = {
                    row: least
                    for (size, row), least in limits.items()
                    if size == (tokens, batch_size)
                }
                decoding_report.summarize(results, bases, own)
                points.append(
                    {
                        "tokens": tokens,
                        "batch_size": batch_size,
                        **(chosen._asdict() if chosen else {}),
                        "same_ids": same_ids(results),
                        "rows": results,
                    }
                )
    return {"sizes": points, "rates": rates._asdict()}


def same_ids(results):
    """Counts equal translations of CTranslate2 and ours in float32, and drops the ids.

    Returns:
        Dict from rows of CTranslate2 to lists of two numbers: equal, and all.
    """
    ids = {name: row.pop("ids", None) for name, row in results.items()}
    found = {}
    for name, theirs in ids.items():
        ours = ids.get(name.removeprefix("peer_"))
        if name.startswith("peer_") and name.endswith("float32") and ours and theirs:
            equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
            found[name] = [equal, len(theirs)]
    return found


def targets(args, points):
    """Returns the lines about the targets of the page, as far as they were measured."""
    lines = []
    latent = f"latent_{args.num_compress_steps[0]}_{default_depth(args)}"
    ours = {latent: f"LatentNMT n_c={args.num_compress_steps[0]}", "ctc": "CTC"}

    def say(text, value, bound, least=True):
        met = value >= bound if least else value <= bound
        lines.append(f"- {text}: {value:.2f} ({'met' if met else 'missed'})")

    for point in points:
        rows = point["rows"]
        times = {k: row["median_ms"] for k, row in rows.items() if "median_ms" in row}
        lone = point["batch_size"] == 1
        if lone and point["tokens"] != args.batch_tokens:
            continue
        where = f"batch {point['batch_size']}"
        for model, label in ours.items():
            found = {p: times.get(f"{model}_ids_{p}") for p in args.precision}
            for precision, time_of in found.items():
                greedy = times.get(f"transformer_greedy_{precision}")
                if not time_of or not greedy:
                    continue
                bound = 6.0 if lone else 1.0
                text = (
                    f"{label}, {where}: our greedy in the same precision, {precision}"
                )
                say(f"{text}, over it, at least {bound:g}", greedy / time_of, bound)
            best = min(filter(None, found.values()), default=None)
            if lone and best and PEER in times:
                text = f"{label}, {where}: CTranslate2 12 + 1 int8 over its fastest"
                say(f"{text}, above 1", times[PEER] / best, 1.0)
            for precision in ("float32", "float32-xla"):
                limit = rows.get(f"{model}_ids_{precision}", {}).get("times_limit")
                if lone and limit:
                    text = f"{label}, {where}: x limit, {precision}, at most 1.5"
                    say(text, limit, 1.5, least=False)
    return lines


def text_of(args, result):
    """Returns the tables of the page."""
    from keras_vqem.evaluation import decoding_report

    parts = [result["header"]]
    for point in result["sizes"]:
        size, tokens = point["batch_size"], point["tokens"]
        number = "one sentence" if size == 1 else f"batches of {size} sentences"
        parts.append(f"### {tokens} tokens, {number}")
        rows = point["rows"]
        columns = {
            k: v for k, v in RATIOS.items() if any(k in r for r in rows.values())
        }
        parts.append(decoding_report.table(rows, columns))
        if "rounds" in point:
            note = f"{point['rounds']} rounds of {point['steps']} timed translations."
            if point["same_ids"]:
                equal, all_ = map(sum, zip(*point["same_ids"].values(), strict=True))
                note += f" CTranslate2 in float32: {equal} of {all_} with our ids."
            parts.append(note)
    if lines := targets(args, result["sizes"]):
        parts += ["### Targets", "\n".join(lines)]
    return "\n\n".join(parts)


def draw(args, result, path):
    """Draws times over lengths and batches, one way of each model."""
    from keras_vqem.evaluation import decoding_report

    points = result["sizes"]
    compress, depth = args.num_compress_steps[0], default_depth(args)
    models = ["transformer_greedy", "shallow_greedy", f"latent_{compress}_{depth}_ids"]
    models += ["ctc_ids", "peer_transformer_greedy", "peer_shallow_greedy"]
    lines = {"float32": "-", "bfloat16": "--", "float32-xla": "-.", "int8": ":"}
    styles = {
        f"{model}_{precision}": (color, line)
        for model, color in zip(models, COLORS, strict=True)
        for precision, line in lines.items()
        if any(f"{model}_{precision}" in point["rows"] for point in points)
    }
    decoding_report.write_plot(path, points, styles)
