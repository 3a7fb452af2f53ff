"""Measures the time of a translation: ours, beside CTranslate2 with the same weights.

    make .venv-peers/.ready
    python recipes/benchmark_decoding.py --peers .venv-peers/bin/python \\
        --precision float32 bfloat16 --json out/decoding.json --plot out/decoding.png

Random weights at the paper's size by default: 6 + 6 layers, hidden_dim 512,
intermediate_dim 2048, a vocabulary of 32,768. Sources of several lengths, one sentence
at a time, and batches; as many tokens are written as read. Every model of ours is
exported as a SavedModel from ids to ids and loaded again. All take turns, round after
round; one process holds our models of one precision, another one those of CTranslate2.

With --presets, the trained translators instead: BLEU and time of the sentences of a
test set, one at a time, with the lengths that the models choose.

    python recipes/benchmark_decoding.py --peers .venv-peers/bin/python \\
        --presets --data data/multi30k --json out/presets.json --plot out/presets.png

Lengths are forced where weights are random: they do not predict an end. A Transformer
writes as many ids as its source has; LatentNMT predicts the codes that they need, and
then the end of the codes. --page writes the tables into a page between the lines
<!-- decoding --> and <!-- end decoding -->, or presets instead of decoding. Run it on
an idle machine, and compare ratios, not milliseconds.
"""

import gc
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import decoding_contestants
from arguments import (
    above_zero,
    add_number,
    add_sizes,
    make_parser,
    positive,
    sizes,
    user_errors,
)
from plot_runs import COLORS

PEER_TYPES = ("float32", "bfloat16", "int8")
PEER = "peer_shallow_greedy_int8"
RATIOS = {
    "over_greedy": "over our greedy",
    "over_peer": "over CTranslate2 12 + 1 int8",
    "times_limit": "x limit",
}
WAYS = {"greedy": ("greedy", 1), "beam": ("4 beams", 4)}


def labels_of(args):
    """Returns a dict from names of `decoding_models.build` to labels."""
    encoder, decoder = args.num_encoder_layers, args.num_decoder_layers
    labels = {
        "transformer": f"Transformer {encoder} + {decoder}",
        "shallow": f"Transformer {encoder + decoder} + 1",
    }
    for compress in args.num_compress_steps:
        for depth in args.num_predictor_layers:
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


def supported(python):
    """Returns the precisions in which CTranslate2 can compute here."""
    code = "import ctranslate2; print(*ctranslate2.get_supported_compute_types('cpu'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{python} has no CTranslate2. `make .venv-peers/.ready` makes an "
            f"interpreter that has it."
        )
    return [name for name in PEER_TYPES if name in done.stdout.split()]


def entries_of(args):
    """Returns the rows: our models in each precision, then those of CTranslate2."""
    from keras_vqem.evaluation.benchmark_processes import Entry

    entries, labels = {}, labels_of(args)
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
        for precision in supported(args.peers):
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
                for prefix in ("", "peer_"):
                    row = f"{prefix}{name}_{way}_float32"
                    parts[(tokens, batch_size), row] = found
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
    points, entries = [], entries_of(args)
    with Contest(
        decoding_contestants.__file__, folder, args.threads, args.peers
    ) as contest:
        for number, (tokens, batch_size) in enumerate(at):
            title = f"{tokens} tokens, batch {batch_size}: "
            print(f"{title}building", file=sys.stderr)
            contest.build(entries, tokens=tokens, batch_size=batch_size)
            budget = (deadline - time.monotonic()) / (len(at) - number)
            chosen = decoding_report.race(contest, budget, title)
            results = contest.results
            first = args.precision[0]
            bases = {"over_greedy": f"transformer_greedy_{first}", "over_peer": PEER}
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
            limit = rows.get(f"{model}_ids_float32", {}).get("times_limit")
            if lone and limit:
                say(f"{label}, {where}: x limit, at most 1.5", limit, 1.5, least=False)
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


def drawn(args, points):
    """Returns colors and lines of the rows in the picture, one way of each model."""
    compress, depth = args.num_compress_steps[0], default_depth(args)
    models = ["transformer_greedy", "shallow_greedy", f"latent_{compress}_{depth}_ids"]
    models += ["ctc_ids", "peer_transformer_greedy", "peer_shallow_greedy"]
    lines = {"float32": "-", "bfloat16": "--", "int8": ":"}
    return {
        f"{model}_{precision}": (color, line)
        for model, color in zip(models, COLORS, strict=True)
        for precision, line in lines.items()
        if any(f"{model}_{precision}" in point["rows"] for point in points)
    }


def parse(argv):
    parser = make_parser(__doc__)
    add = parser.add_argument
    add_sizes(
        parser,
        hidden_dim=512,
        intermediate_dim=2048,
        num_heads=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
    )
    peers_help = "Python interpreter that has ctranslate2 (default: it is left out)"
    add("--peers", metavar="PYTHON", help=peers_help)
    help = "precisions of our models (default: float32)"
    choices = {"choices": ("float32", "bfloat16"), "nargs": "+"}
    add("--precision", default=["float32"], **choices, help=help)
    many = {"type": positive, "nargs": "+", "metavar": "N"}
    for flag, default, text in (
        ("--tokens", [8, 16, 27, 50], "lengths of single sentences"),
        ("--batch-sizes", [8, 32, 128], "sizes of batches"),
        ("--num-compress-steps", [3, 4], "numbers of compress steps, n_c, to try"),
        ("--num-predictor-layers", [6, 2, 1], "numbers of predictor layers, P, to try"),
    ):
        help = f"{text} (default: {' '.join(map(str, default))})"
        add(flag, default=default, **many, help=help)
    add_number(parser, "--batch-tokens", 27, "length of the sentences of batches")
    add_number(parser, "--vocabulary", 32_768, "size of the vocabulary")
    add_number(parser, "--num-codes", 4096, "size of the codebook")
    help = "minutes for everything, if there is time for two rounds of each size"
    add_number(parser, "--minutes", 20.0, help, above_zero)
    threads_help = "threads per contestant (default: as many as usable cores)"
    add("--threads", type=positive, metavar="N", help=threads_help)
    group = parser.add_argument_group("trained models")
    help = "time trained models instead: presets, the first one a Transformer "
    help += "(default: those of Multi30k)"
    group.add_argument("--presets", nargs="*", metavar="NAME", help=help)
    help = "folder of prepare_translation.py, or one with the files of the test set, "
    help += "such as test_2016_flickr.en and .de"
    group.add_argument("--data", type=pathlib.Path, metavar="DIR", help=help)
    help = "name of the split or of the files (default: %(default)s)"
    group.add_argument("--split", default="test_2016_flickr", help=help)
    help = "number of lines of the test set (default: all)"
    group.add_argument("--lines", type=positive, metavar="N", help=help)
    for flag, metavar, text in (
        ("--json", "FILE", "file for all numbers, as JSON"),
        ("--plot", "FILE", "picture to write: .png, .pdf or .svg; needs matplotlib"),
        ("--page", "FILE", "Markdown page whose section of tables is replaced"),
    ):
        add(flag, type=pathlib.Path, metavar=metavar, help=text)
    args = parser.parse_args(argv)
    # Mistakes are found before the long computation.
    if args.hidden_dim % args.num_heads:
        parser.error("--hidden-dim must be a multiple of --num-heads")
    if args.presets is not None and not args.data:
        parser.error("--presets translates a test set: add --data")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install '.[recipes]' in a checkout")
    if args.page and not args.page.is_file():
        parser.error(f"--page {args.page} does not exist")
    return args


def header(result):
    """One line about machine and versions, and a warning if it was not idle."""
    machine, versions = result["machine"], result["versions"]
    named = [f"{k} {versions[k]}" for k in ("tensorflow", "keras", "python")]
    named += [f"ctranslate2 {result['peer']}"] if result.get("peer") else []
    line = f"{machine['processor']}, {machine['threads']} threads; {', '.join(named)}."
    others = machine["others_share"]
    if others is not None and others > 0.05:
        line += f" **Other processes used {others:.0%} of the machine meanwhile.**"
    return line


@user_errors
def main(arguments=None):
    args = parse(arguments)

    import decoding_presets

    from keras_vqem.evaluation import decoding_report, environment
    from keras_vqem.files import write_json

    args.threads = args.threads or environment.usable_cores()
    trained = args.presets is not None
    others = environment.OtherProcesses()
    with tempfile.TemporaryDirectory() as folder:
        task = decoding_presets.measure if trained else measure
        result = task(args, pathlib.Path(folder))
    result |= environment.environment()
    result["machine"] |= {"threads": args.threads, "others_share": others.share()}
    rows = result["sizes"][0]["rows"].values()
    found = [row.get("versions", {}).get("ctranslate2") for row in rows]
    result["peer"] = next(filter(None, found), None)
    result["header"] = header(result)
    settings = vars(args).items()
    result["settings"] = {
        k: str(v) if isinstance(v, pathlib.Path) else v for k, v in settings
    }
    text = (decoding_presets.text_of if trained else text_of)(args, result)
    if args.json:
        write_json(args.json, result)
    print(text)
    if args.page:
        name = "presets" if trained else "decoding"
        decoding_report.write_section(args.page, name, text)
    if args.plot and trained:
        decoding_presets.draw(result, args.plot)
    elif args.plot:
        points = result["sizes"]
        decoding_report.write_plot(args.plot, points, drawn(args, points))


if __name__ == "__main__":
    main()
