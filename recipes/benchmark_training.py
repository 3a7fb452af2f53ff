"""Measures the speed of training beside torch and KerasHub, on the CPU.

    .venv/bin/python recipes/benchmark_training.py --peers .venv-peers/bin/python \\
        --sweep --plot out/training_speed.png --json out/training_speed.json

A step is what `fit` runs for one batch, from the ids or pixels to the update by Adam.
Every contestant (training_contestants.py) has its own process and as many threads, and
they take turns. The yardstick is one large matrix product: "of the peak" divides the
floating-point operations of the matrix products of a step by its time, and by the rate
of that product. Sizes are rows x tokens per side, or rows of 32 x 32 images. With
--sweep, step time and memory of LatentNMT follow for a range of batch sizes, lengths,
numbers of codes and of draws.
"""

import pathlib
import sys
import tempfile
import time

import training_contestants as contestants
from arguments import above_zero, add_number, make_parser, user_errors

WARM_UP_STEPS, SWEEP_STEPS = 4, 5
TEXT = {
    "128": {"width": 128, "layers": 4, "heads": 4, "intermediate": 512},
    "512": {"width": 512, "layers": 6, "heads": 8, "intermediate": 2048},
}
BATCHES = {"128": {"rows": 64, "length": 32}, "512": {"rows": 16, "length": 32}}
IMAGES = {"rows": 16, "channels": 64}
TEXT_TARGET, IMAGE_TARGET, LATENT_TARGET, DATA_TARGET = 1.2, 1.0, 1.6, 20.0
SWEEPS = {
    "rows": [8, 16, 32, 64, 128],
    "length": [8, 16, 32, 64, 128],
    "num_codes": [2**n for n in range(8, 17, 2)],
    "num_samples": [1, 5, 10, 25, 50],
}
NOTES = """\
tokens/s counts source and target tokens. of the peak: see the docstring of the recipe.
float32 unless a row says bfloat16, which is mixed: weights and losses stay float32.
All use Adam, torch the fused one; torch convolutions are channels_last."""


def text_entries():
    from keras_vqem.evaluation.benchmark_processes import Entry

    half = {"precision": "mixed_bfloat16"}
    return {
        "ours": Entry("keras_vqem Transformer, XLA", "transformer"),
        "ours_ops": Entry("keras_vqem Transformer", "transformer", {"jit": False}),
        "ours_half": Entry(
            "keras_vqem Transformer, XLA, bfloat16", "transformer", half
        ),
        "latent": Entry("keras_vqem LatentNMT, XLA", "latent_nmt"),
        "latent_ops": Entry("keras_vqem LatentNMT", "latent_nmt", {"jit": False}),
        "torch": Entry("torch.nn.Transformer", "torch_transformer", {}, True),
        "torch_compiled": Entry(
            "torch.nn.Transformer, torch.compile",
            "torch_transformer",
            {"compiled": True},
            True,
        ),
        "torch_half": Entry(
            "torch.nn.Transformer, bfloat16", "torch_transformer", {"half": True}, True
        ),
        "keras_hub": Entry("KerasHub, XLA", "keras_hub", {}, True),
        "keras_hub_ops": Entry("KerasHub", "keras_hub", {"jit": False}, True),
    }


def image_entries():
    from keras_vqem.evaluation.benchmark_processes import Entry

    return {
        "ours": Entry("keras_vqem ImageVQVAE", "image_vqvae"),
        "ours_jit": Entry("keras_vqem ImageVQVAE, XLA", "image_vqvae", {"jit": True}),
        "torch": Entry("torch", "torch_images", {}, True),
        "torch_compiled": Entry(
            "torch, torch.compile", "torch_images", {"compiled": True}, True
        ),
    }


def text_flops(width, layers, intermediate, rows, length, vocabulary, **_):
    """Floating-point operations of the matrix products of a Transformer's step."""
    tokens = rows * length
    attention = 8 * tokens * width**2 + 4 * tokens * length * width
    block = attention + 4 * tokens * width * intermediate
    forward = layers * (2 * block + attention) + 2 * tokens * width * vocabulary
    return 3 * forward  # A backward pass has twice the products.


def image_flops(rows, channels):
    """The same of an ImageVQVAE's step."""
    c, slots = channels, contestants.CODE_SLOTS
    blocks = 4 * 64 * 10 * c**2
    down = 256 * 75 * c + 64 * 25 * c**2
    up = 64 * 25 * c**2 + 256 * 25 * c**2
    between = 2 * 64 * slots * c**2
    distances = 64 * slots * contestants.NUM_CODES * c / 3  # No gradient.
    return 6 * rows * (blocks + down + up + between + distances + 1024 * c * 768)


def race(args, folder, entries, sizes, progress_title):
    """Times entries in turns until the time is over, each at least three times."""
    from keras_vqem.evaluation import benchmark_report
    from keras_vqem.evaluation.benchmark_processes import PAUSE, Contest

    threads, peers = args.threads, args.peers
    with Contest(contestants.__file__, folder, threads, peers) as contest:
        contest.build(entries, **sizes)
        for name in list(contest.workers):
            print(f"{progress_title}: compiling {name}", file=sys.stderr, flush=True)
            contest.ask(name, warm=WARM_UP_STEPS)
        print(f"{progress_title}: in turns", file=sys.stderr, flush=True)
        end, rounds = time.monotonic() + args.seconds, 0
        while contest.workers and (rounds < 3 or time.monotonic() < end):
            rounds += 1
            for name in list(contest.workers):
                time.sleep(PAUSE)
                contest.ask(name, run=1)
        benchmark_report.compare(contest.results, {})
        return contest.results


def peak(args, folder):
    """Returns the highest rate of a matrix product, in operations per second."""
    from keras_vqem.evaluation.benchmark_processes import Entry

    size = {"size": args.matmul}
    entries = {
        "tensorflow": Entry("matmul, TensorFlow", "tf_matmul", size),
        "torch": Entry("matmul, torch", "torch_matmul", size, True),
    }
    sizes = {"rows": 1, "length": 2, "vocabulary": 8}
    found = race(args, folder, entries, sizes, "matmul")
    times = [x["median_ms"] for x in found.values() if "median_ms" in x]
    return 2 * args.matmul**3 / (min(times) / 1e3)


def rate(results, name):
    median = results.get(name, {}).get("median_ms")
    return median and 1e3 / median


def best(results, *names):
    """Returns the highest rate of some rows, or None."""
    return max(filter(None, (rate(results, name) for name in names)), default=None)


def ratio(one, other):
    return one / other if one and other else None


def input_rate(vocabulary):
    """Tokens per second of the input pipeline, padding included."""
    import numpy as np

    from keras_vqem.text import TokenBatches
    from keras_vqem.text.token_ids import TokenIds

    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(2.6, 0.4, 30_000).astype(int), 3, 60)
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    ids = rng.integers(3, vocabulary, offsets[-1], dtype=np.int32)
    side = TokenIds(ids, offsets)
    batches = TokenBatches(side, side, tokens_per_batch=2048)
    iterator = iter(batches.dataset(epochs=2))
    for _ in range(batches.steps_per_epoch):  # Threads start, caches fill.
        next(iterator)
    start, tokens = time.perf_counter(), 0
    for batch in iterator:
        tokens += batch["source_ids"].numpy().size + batch["target_ids"].numpy().size
    return tokens / (time.perf_counter() - start)


def sweep(args, folder):
    """Measures time and memory of LatentNMT's step while one size grows."""
    from keras_vqem.evaluation import benchmark_report
    from keras_vqem.evaluation.benchmark_processes import Contest, Entry

    points, text = {}, TEXT["128"] | {"vocabulary": args.vocabulary}
    for axis, values in SWEEPS.items():
        points[axis] = []
        for value in values:
            print(f"sweep: {axis} {value}", file=sys.stderr, flush=True)
            sizes, options = text | BATCHES["128"], {"jit": False}
            (sizes if axis in sizes else options)[axis] = value
            entries = {"latent": Entry("LatentNMT", "latent_nmt", options)}
            with Contest(contestants.__file__, folder, args.threads) as contest:
                contest.build(entries, **sizes)
                for request in ("memory", "run"):
                    if contest.workers:
                        contest.ask("latent", **{request: SWEEP_STEPS})
                found = contest.results["latent"]
            benchmark_report.compare(contest.results, {})
            if "first" in found:
                found["growth_mb"] = benchmark_report.growth_mb(found)
            points[axis].append({axis: value, **found})
    return points


def write_plot(path, points):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        2, len(points), squeeze=False, figsize=(13, 6), layout="constrained"
    )
    for column, (axis, found) in enumerate(points.items()):
        found = [point for point in found if "growth_mb" in point]
        for panel, key in zip(
            panels[:, column], ("median_ms", "growth_mb"), strict=True
        ):
            panel.plot([p[axis] for p in found], [p[key] for p in found], "o-")
            panel.set_xlabel(axis)
            panel.set_ylim(bottom=0)
            panel.set_xlim(left=0)
    panels[0, 0].set_ylabel("ms per step")
    panels[1, 0].set_ylabel("MB of a step")
    figure.savefig(path, dpi=120)


def rows_of(results, per_step, flops, peak_rate):
    """Adds rates to the results, and returns the rows of their table."""
    rows = []
    for name, entry in results.items():
        found = rate(results, name)
        if found is None or "status" in entry:
            rows.append([entry["label"], entry.get("status", "not measured")])
            continue
        entry["per_second"] = per_step * found
        share = "-"
        if not name.startswith("latent"):
            entry["of_peak"] = flops * found / peak_rate
            share = f"{entry['of_peak']:.0%}"
        cells = [f"{entry['median_ms']:.1f}", f"{entry['p90_ms']:.1f}"]
        rows.append([entry["label"], *cells, f"{entry['per_second']:.0f}", share])
    return rows


def targets_of(result):
    """Returns each target with what was measured and the bound."""
    targets = []
    for size, results in result["text"].items():
        ours = best(results, "ours", "ours_ops")
        peers = best(results, "torch", "torch_compiled", "keras_hub", "keras_hub_ops")
        name = f"Transformer, width {size}, over the fastest peer"
        targets.append((name, ratio(ours, peers), ">=", TEXT_TARGET))
        latent = best(results, "latent", "latent_ops")
        name = f"step of LatentNMT over the Transformer's, width {size}"
        targets.append((name, ratio(ours, latent), "<=", LATENT_TARGET))
    images = result["images"]
    found = ratio(
        best(images, "ours", "ours_jit"), best(images, "torch", "torch_compiled")
    )
    targets.append(("ImageVQVAE over torch", found, ">=", IMAGE_TARGET))
    training = best(result["text"].get("128", {}), "ours", "ours_ops")
    if training:
        sizes = BATCHES["128"]
        training *= 2 * sizes["rows"] * sizes["length"]
        found = result["input_tokens_per_second"] / training
        name = "input pipeline over training, width 128"
        targets.append((name, found, ">=", DATA_TARGET))
    return targets


def text_of(result):
    """Returns the results as text."""
    from keras_vqem.evaluation import benchmark_report as report

    processor, threads = result["machine"]["processor"], result["threads"]
    rate = result["peak"] / 1e9
    lines = [f"{processor}; {threads} threads; matrix product {rate:.0f} GFLOP/s"]
    for title in result["rows"]:
        unit = "images/s" if title == "Images" else "tokens/s"
        header = ["", "median ms", "p90", unit, "of the peak"]
        lines += ["", title, "", report.table(header, result["rows"][title])]
    lines += ["", NOTES, ""]
    lines.append(f"input pipeline: {result['input_tokens_per_second']:.0f} tokens/s")
    for axis, points in result["sweep"].items():
        rows = [
            [str(p[axis]), f"{p['median_ms']:.1f}", f"{p['growth_mb']:.0f}"]
            if "growth_mb" in p and "median_ms" in p
            else [str(p[axis]), p.get("status", "not measured")]
            for p in points
        ]
        lines += ["", f"LatentNMT, width 128, by {axis}", ""]
        lines.append(report.table([axis, "ms per step", "MB"], rows))
    lines += ["", "Targets", ""]
    for name, found, relation, bound in targets_of(result):
        said = "not measured"
        if found is not None:
            met = report.RELATIONS[relation](found, bound)
            said = f"{found:.2f} ({relation} {bound:g}): {'met' if met else 'MISSED'}"
        lines.append(f"{name}: {said}")
    others = result["machine"]["others_share"]
    if others is not None and others > 0.05:
        lines.append(f"OTHER PROCESSES used {others:.0%} of the machine meanwhile.")
    return "\n".join(lines)


def parse(argv):
    parser = make_parser(__doc__)
    help = "Python interpreter that has the peers (default: peers are left out)"
    parser.add_argument("--peers", metavar="PYTHON", help=help)
    help = "widths of the translators; none leaves them out"
    parser.add_argument(
        "--widths", nargs="*", choices=TEXT, default=list(TEXT), help=help
    )
    help = "seconds in turns per table, after compiling"
    add_number(parser, "--seconds", 150.0, help, above_zero)
    add_number(parser, "--vocabulary", 8000, "number of ids")
    add_number(parser, "--matmul", 2048, "rows and columns of the matrix product")
    help = "threads per contestant (default: as many as usable cores)"
    parser.add_argument("--threads", type=int, metavar="N", help=help)
    help = "measure how time and memory grow as well"
    parser.add_argument("--sweep", action="store_true", help=help)
    help = "picture of the sweep to write; needs matplotlib"
    parser.add_argument("--plot", metavar="FILE", help=help)
    help = "file for all that was measured, every sample, as JSON"
    parser.add_argument("--json", metavar="FILE", help=help)
    args = parser.parse_args(argv)
    if args.plot and not args.sweep:
        parser.error("--plot draws the sweep: add --sweep")
    if args.plot and pathlib.Path(args.plot).suffix not in (".png", ".pdf", ".svg"):
        parser.error(f"--plot writes .png, .pdf or .svg, received {args.plot}")
    return args


@user_errors
def main(argv=None):
    args = parse(argv)

    from keras_vqem.evaluation import environment
    from keras_vqem.files import write_json

    args.threads = args.threads or environment.usable_cores()
    others = environment.OtherProcesses()
    result = {"threads": args.threads, "text": {}, "rows": {}, "sweep": {}}
    with tempfile.TemporaryDirectory() as folder:
        result["peak"] = peak(args, folder)
        for width in args.widths:
            sizes = TEXT[width] | BATCHES[width] | {"vocabulary": args.vocabulary}
            title = f"Translators, width {width}"
            found = race(args, folder, text_entries(), sizes, title)
            result["text"][width] = found
            tokens = 2 * sizes["rows"] * sizes["length"]
            result["rows"][title] = rows_of(
                found, tokens, text_flops(**sizes), result["peak"]
            )
        found = race(args, folder, image_entries(), IMAGES, "Images")
        result["images"] = found
        result["rows"]["Images"] = rows_of(
            found, IMAGES["rows"], image_flops(**IMAGES), result["peak"]
        )
        result["input_tokens_per_second"] = input_rate(args.vocabulary)
        result["machine"] = environment.environment()["machine"]
        result["machine"]["others_share"] = others.share()
        if args.sweep:
            result["sweep"] = sweep(args, folder)
    if args.json:
        write_json(args.json, result)
    print(text_of(result))
    if args.plot:
        write_plot(args.plot, result["sweep"])


if __name__ == "__main__":
    main()
