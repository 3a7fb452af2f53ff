"""Measures the time of a training step of a bottleneck, beside a matrix product.

The published table was written by

    make bench

which makes both environments and runs

    .venv/bin/python recipes/benchmark_bottleneck.py --peers .venv-peers/bin/python \\
        --members

and the published plot by the same command with

    --sweep --plot out/bottleneck.png --json out/bottleneck.json

Where the milliseconds of a step go, here for an image model's codebook:

    .venv/bin/python recipes/benchmark_bottleneck.py --profile --num-codes 256

A step is a forward pass in training mode, the gradient of sum(quantized * w) + losses
with respect to the inputs, and the update of the codebook by moving averages: for
4,096 vectors of size 512 and 4,096 codes, in float32 on the CPU. The yardstick is the
product of the vectors and the codebook alone, which every nearest-neighbour search has
to compute. Every contestant (bottleneck_contestants.py) has its own process, with the
same data, start and number of threads, and they take turns.
"""

import importlib.util
import pathlib
import signal
import sys
import tempfile

import bottleneck_contestants as contestants
from arguments import make_parser, user_errors
from compared_bottlenecks import QUANTIZERS

STEPS_PER_ROUND = 2
WARM_UP_STEPS = 3
ROWS_PER_HEAT = 10  # at once, each in a process of up to a gigabyte
# Peak memory differs from step to step, with the order of parallel operations.
MEMORY_STEPS = 6
# The sizes that the targets are meant for.
TARGET_SIZES = {"vectors": 4096, "dim": 512, "codes": 4096, "memory_codes": 65536}


def at(size, name="matmul"):
    """Returns the name of a contestant of the sweep at a number of codes."""
    return f"{name}, K={size}"


TARGETS = [
    ("hard EM at most 1.15x the bare matmul", "hard", "matmul", "<=", 1.15),
    ("soft EM, m=10, at most 1.4x the bare matmul", "soft10", "matmul", "<=", 1.4),
    ("soft EM, m=50, at most 1.8x the bare matmul", "soft50", "matmul", "<=", 1.8),
    ("hard EM 5x faster than vector-quantize-pytorch", "vqp", "hard", ">=", 5.0),
    ("hard EM faster than Sonnet", "sonnet", "hard", ">", 1.0),
    ("hard EM faster than KerasHub", "keras_hub", "hard", ">", 1.0),
    ("hard EM under 600 MB beyond its state", "hard", None, "<", 600.0),
    ("soft EM, m=10, under 600 MB beyond its state", "soft10", None, "<", 600.0),
]
# Of points of the sweep: K, and how often the time of the bare product hard EM and soft
# EM with 10 draws may take there.
SWEEP_TARGETS = [(256, 1.3, 1.8), (1024, 1.15, 1.4), (16384, 1.15, 1.4)]
SWEEP_TARGETS += [(65536, 1.15, 1.5)]
TARGETS += [
    (f"{label} at most {bound}x, K={size:,}", at(size, name), at(size), "<=", bound)
    for size, *bounds in SWEEP_TARGETS
    for label, name, bound in zip(
        ("hard EM", "soft EM, m=10,"), ("hard", "soft"), bounds, strict=True
    )
]
# The parts of a step, and the types of operations in them.
PARTS = {
    "product and bias": ["FusedMatMul"],
    "squared norms of the codes": ["Einsum"],
    "likeliest code": ["ArgMax", "Max"],
    "softmax": ["Softmax"],
    "random numbers": ["StatelessRandomUniformV2", "Unpack", "StridedSlice"],
    "cumulative sums of the draws": ["MatMul", "Sum"],
    "search in them": ["UpperBound", "LessEqual", "Cast"],
    "look-up of codes and blocks": ["GatherV2"],
    "sums and means of vectors": [
        "SparseMatrixMatMul",
        "SparseMatrixTranspose",
        "SparseTensorToCSRSparseMatrix",
        "UnsortedSegmentSum",
        "DenseBincount",
        "Pack",
        "Less",
    ],
    "norms of vectors and errors": ["EuclideanNorm"],
    "passes over vectors or codebook": ["Mul", "Sub", "AddV2", "AddN", "SelectV2"],
}
# Rows of compared_bottlenecks.py that the rows below stand for: the same work.
STANDS_FOR = {"hard_em", "hard_em_kmeans", "hard_em_revival", "soft_em"}
STANDS_FOR |= {"vqp_ema", "vqp_revival"}
PROFILED = ("matmul", "hard", "soft10", "soft50")
RATIOS = {"times_matmul": "matmul", "times_hard_em": "hard"}
COLUMNS = [("x matmul", "times_matmul"), ("x hard EM", "times_hard_em")]
COLUMNS += [("first error", "mse", "{:.5f}")]
SPEED_NOTES = """\
x matmul, x hard EM: time of the row divided by that of the bare matmul in TensorFlow,
and by that of keras_vqem's hard EM.
first error: mean squared error of the first step. All start from the same codebook;
those that take the nearest code have to agree."""
MEMORY_NOTES = """\
state: the codebook, its counts and the counts of the metrics.
first step, later steps: growth of resident memory, from the layer built and no step
made to its highest. The first step also traces the graph.
in use: the most that TensorFlow's allocator gave out for a step. It keeps what was
freed when the layer was built and uses that first, so less than this gets resident.
with build: from before the layer was made to the highest, less the state.
The target is for the larger of growth and use."""


def entries_of(temperature, *names):
    """Returns the rows with the given names, or all."""
    from keras_vqem.evaluation.benchmark_processes import Entry

    def soft(num_samples):
        options = {"num_samples": num_samples, "temperature": temperature}
        return Entry(f"keras_vqem soft EM, m={num_samples}", "keras_vqem", options)

    vqp, name = "vector_quantize_pytorch", "vector-quantize-pytorch"
    entries = {
        "matmul": Entry("bare matmul, TensorFlow", "tf_matmul"),
        "hard": Entry("keras_vqem hard EM", "keras_vqem"),
        "soft10": soft(10),
        "soft50": soft(50),
        "torch_matmul": Entry("bare matmul, torch", "torch_matmul", peer=True),
        # It passes gradients by a rotation unless told otherwise, which costs more.
        # Only the first of the two does what our step does.
        "vqp": Entry(f"{name}, straight-through", vqp, {"rotation_trick": False}, True),
        "vqp_rotation": Entry(f"{name}, rotation", vqp, {"rotation_trick": True}, True),
        "vqp_compiled": Entry(
            f"{name}, torch.compile",
            vqp,
            {"rotation_trick": False, "compiled": True},
            True,
        ),
        "sonnet": Entry("Sonnet VectorQuantizerEMA", "sonnet", peer=True),
        "keras_hub": Entry("KerasHub VectorQuantizerEMA", "keras_hub", peer=True),
    }
    return {name: entries[name] for name in names or entries}


def member_entries():
    """Returns a row for each other quantizer, each peer below its counterpart."""
    from keras_vqem.evaluation.benchmark_processes import Entry

    kinds = {False: "keras_member", True: "torch_member"}
    return {
        name: Entry(
            row.label if row.peer else f"keras_vqem {row.label}",
            kinds[row.peer],
            {"name": name},
            row.peer,
        )
        for name, row in QUANTIZERS.items()
        if name not in STANDS_FOR
    }


def entries_to_time(args):
    """Returns the rows of the table of times."""
    members = member_entries() if args.members else {}
    return entries_of(args.temperature) | members


def open_contest(args, folder):
    from keras_vqem.evaluation.benchmark_processes import Contest

    return Contest(contestants.__file__, folder, args.threads, args.peers)


def build(args, contest, entries, num_codes):
    contestants.make_codebook(contest.folder, num_codes, args.dim, args.seed)
    contest.build(entries, num_codes=num_codes)


def race(contest, rounds, progress, title=""):
    from keras_vqem.evaluation import benchmark_report

    contest.race(rounds, STEPS_PER_ROUND, WARM_UP_STEPS, progress, title)
    benchmark_report.compare(contest.results, RATIOS)
    return contest.results


def speed(args, folder):
    """Times all rows at one size, in heats whose processes fit into the memory."""
    from keras_vqem.evaluation import benchmark_report
    from keras_vqem.evaluation.benchmark_processes import Progress

    rows, results = list(entries_to_time(args).items()), {}
    for start in range(0, len(rows), ROWS_PER_HEAT):
        heat = dict(rows[start : start + ROWS_PER_HEAT])
        print(f"starting {len(heat)} of {len(rows)} contestants", file=sys.stderr)
        with open_contest(args, folder) as contest:
            build(args, contest, heat, args.codes)
            progress = Progress((args.rounds + 1) * len(contest.workers))
            contest.race(args.rounds, STEPS_PER_ROUND, WARM_UP_STEPS, progress)
            progress.close()
        results |= contest.results
    benchmark_report.compare(results, RATIOS)
    return results


def memory(args, folder):
    """Measures memory in one new process per contestant."""
    merged = {}
    for name, entry in entries_of(args.temperature, "hard", "soft10").items():
        print(f"memory, K={args.memory_codes}: {name}", file=sys.stderr)
        with open_contest(args, folder) as contest:
            build(args, contest, {name: entry}, args.memory_codes)
            if contest.workers:
                contest.ask(name, memory=MEMORY_STEPS)
        # Vectors and their counts, and the counts of two metrics.
        contest.results[name]["state"] = 4 * args.memory_codes * (args.dim + 3)
        merged |= contest.results
    return merged


def sweep(args, folder):
    """Times ranges of K and of m. Workers build one size after another."""
    from keras_vqem.evaluation.benchmark_processes import Progress

    rounds = max(2, args.rounds // 3)
    sizes = [("K", size) for size in args.sweep_codes]
    sizes += [("m", size) for size in args.sweep_samples]
    progress = Progress((rounds + 1) * 3 * len(sizes))
    points = {"K": [], "m": []}
    with open_contest(args, folder) as contest:
        for axis, size in sizes:
            num_codes, num_samples = (size, 10) if axis == "K" else (args.codes, size)
            entries = entries_of(args.temperature, "matmul", "hard", "soft10")
            soft = entries.pop("soft10")
            options = soft.options | {"num_samples": num_samples}
            label = soft.label if axis == "K" else "keras_vqem soft EM"
            entries["soft"] = soft._replace(label=label, options=options)
            build(args, contest, entries, num_codes)
            results = race(contest, rounds, progress, f"{axis}={size} ")
            points[axis].append({axis: size, "contestants": results})
    progress.close()
    return points


def profiled(args, folder):
    """Returns a table of where the milliseconds of a step go, in this process."""
    from keras_vqem.evaluation import benchmark_report as report
    from keras_vqem.evaluation import benchmark_worker, op_profile

    contestants.make_codebook(folder, args.codes, args.dim, args.seed)
    benchmark_worker.use_threads(args.threads, ("tensorflow",))
    data, columns = contestants.load_data(folder, args.codes), {}
    for name, entry in entries_of(args.temperature, *PROFILED).items():
        make, _ = contestants.CONTESTANTS[entry.contestant]
        contestant = make(data, **entry.options)
        benchmark_worker.warm(contestant, WARM_UP_STEPS)
        wall, times = op_profile.profile(contestant.step)
        if name == "matmul":
            times = {"FusedMatMul": sum(times.values())}
        parts = op_profile.by_part(times, PARTS)
        parts |= {"between operations": wall - sum(times.values()), "all": wall}
        columns[name] = parts
    rows = [
        [part, *(f"{columns[name][part]:.2f}" for name in columns)]
        for part in columns["matmul"]
    ]
    return report.table([f"ms, K={args.codes:,}", *columns], rows)


def text(result):
    """Returns the results as text."""
    from keras_vqem.evaluation import benchmark_report as report

    sizes, rows = result["sizes"], result["contestants"]
    lines = [f"{result['machine']['processor']}; {result['threads']} threads"]
    for where, versions in result["versions"].items():
        if versions:
            named = ", ".join(f"{name} {version}" for name, version in versions.items())
            lines.append(f"{where}: {named}")
    lines += [
        "",
        f"A training step: {sizes['vectors']:,} vectors of size {sizes['dim']:,}, "
        f"{sizes['codes']:,} codes, float32;",
        f"{result['rounds']} rounds of {result['steps_per_round']} steps",
        "",
        report.speed_table(rows, [report.Column(*column) for column in COLUMNS]),
        "",
        SPEED_NOTES,
    ]
    others = result["machine"]["others_share"]
    if others is not None and others > 0.05:
        lines.append(
            f"OTHER PROCESSES used {others:.0%} of the machine meanwhile: these times "
            f"are too long, and not by the same factor for all."
        )
    draws = [
        f"{rows[f'soft{number}']['different_draws']:.1f} of {number}"
        for number in (10, 50)
        if "different_draws" in rows[f"soft{number}"]
    ]
    if draws:
        lines.append(
            f"Soft EM has temperature {result['temperature']:g}: different codes among "
            f"the draws for a vector: {', '.join(draws)}."
        )
    if result["memory"]:
        title = f"Memory of a step with {sizes['memory_codes']:,} codes"
        lines += ["", title, "", report.memory_table(result["memory"])]
        lines += ["", MEMORY_NOTES]
    for axis, points in result["sweep"].items():
        table = report.sweep_table(axis, points, "matmul", "times_matmul")
        lines += ["", f"Cost against {axis}", "", table]
    lines += ["", "Targets", "", report.verdict_lines(result["verdict"])]
    if sizes != TARGET_SIZES:
        note = "The targets are meant for the default sizes, not for this run's."
        lines += ["", note]
    return "\n".join(lines)


def parse(argv=None):
    parser = make_parser(__doc__.partition("\n\n")[0])
    add = parser.add_argument
    peers_help = "Python interpreter that has the peers (default: peers are left out)"
    add("--peers", metavar="PYTHON", help=peers_help)
    for name, default, text in (
        ("rounds", 15, "turns per contestant"),
        ("vectors", 4096, "N, vectors per batch"),
        ("dim", 512, "D, size of a vector"),
        ("num-codes", 4096, "K, size of the codebook"),
        ("memory-codes", 65536, "K for the memory of a step"),
        ("threads", None, "threads per contestant (default: as many as usable cores)"),
        ("seed", 0, "seed of the data"),
    ):
        text += "" if default is None else f" (default: {default})"
        key = name.removeprefix("num-").replace("-", "_")  # as in the JSON
        add(f"--{name}", dest=key, type=int, metavar="N", default=default, help=text)
    text = "temperature of soft EM; at a low one all draws agree (default: 100)"
    add("--temperature", type=float, metavar="T", default=100.0, help=text)
    members_help = "time the other quantizers of compared_bottlenecks.py as well"
    add("--members", action="store_true", help=members_help)
    profile_help = "only show where each millisecond of our steps goes"
    add("--profile", action="store_true", help=profile_help)
    add("--no-memory", action="store_true", help="leave out the memory of a step")
    add("--sweep", action="store_true", help="time a range of K and of m as well")
    for name, letter, default in (
        ("codes", "K", [4**n for n in range(4, 9)]),
        ("samples", "M", [1, 2, 5, 10, 25, 50]),
    ):
        text = (
            f"values of {letter} in the sweep (default: {' '.join(map(str, default))})"
        )
        flag, many = f"--sweep-{name}", {"type": int, "nargs": "+", "metavar": letter}
        add(flag, default=default, **many, help=text)
    plot_help = (
        "picture of times and sweep to write: .png, .pdf or .svg; needs matplotlib"
    )
    add("--plot", metavar="FILE", help=plot_help)
    json_help = "file for all that was measured, every sample, as JSON"
    add("--json", metavar="FILE", help=json_help)
    args = parser.parse_args(argv)
    counts = (args.rounds, args.vectors, args.dim, args.threads, *args.sweep_samples)
    codes = (args.codes, args.memory_codes, *args.sweep_codes)
    if min(1 if n is None else n for n in counts) < 1 or min(codes) < 2:
        parser.error("sizes must be at least 1, numbers of codes at least 2")
    # Mistakes in the output are found before the long computation.
    if args.plot and not args.sweep:
        parser.error("--plot draws the sweep: add --sweep")
    if args.plot and pathlib.Path(args.plot).suffix not in (".png", ".pdf", ".svg"):
        parser.error(f"--plot writes .png, .pdf or .svg, received {args.plot}")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install '.[recipes]' in a checkout")
    return args


@user_errors
def main(argv=None):
    args = parse(argv)
    # Exits like an interrupt from the keyboard, so that workers are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    from keras_vqem.evaluation import benchmark_report as report
    from keras_vqem.evaluation import environment
    from keras_vqem.files import write_json

    args.threads = args.threads or environment.usable_cores()
    with tempfile.TemporaryDirectory() as folder:
        contestants.make_data(folder, args.vectors, args.dim, args.seed)
        if args.profile:
            print(profiled(args, folder))
            return
        others = environment.OtherProcesses()
        results = speed(args, folder)
        machine = environment.environment()["machine"] | {
            "others_share": others.share()
        }
        memories = {} if args.no_memory else memory(args, folder)
        points = sweep(args, folder) if args.sweep else {}
    versions = {"here": {}, "peers": {}}
    for name, entry in entries_to_time(args).items():
        where = versions["peers" if entry.peer else "here"]
        where |= results[name].pop("versions", {})
    timed = dict(results)
    for point in points.get("K", ()):
        rows = point["contestants"].items()
        timed |= {at(point["K"], name): row for name, row in rows}
    medians = {k: v["median_ms"] for k, v in timed.items() if "median_ms" in v}
    growths = {k: report.growth_mb(v) for k, v in memories.items() if "first" in v}
    targets = [report.Target(*target) for target in TARGETS]
    result = {
        "machine": machine,
        "threads": args.threads,
        "versions": versions,
        "sizes": {name: getattr(args, name) for name in TARGET_SIZES},
        "seed": args.seed,
        "temperature": args.temperature,
        "rounds": args.rounds,
        "steps_per_round": STEPS_PER_ROUND,
        "contestants": results,
        "memory": memories,
        "sweep": points,
        "verdict": report.verdict(targets, medians, growths),
    }
    if args.json:
        write_json(args.json, result)
    print(text(result))
    if args.plot:
        titles = {
            "K": "Cost against the size of the codebook",
            "m": f"Cost against the number of draws, K = {args.codes:,}",
        }
        report.write_plot(
            args.plot, points, titles, "matmul", logarithmic="K", rows=results
        )
    if not {"matmul", "hard"} <= set(medians):
        sys.exit("Without the bare matmul and hard EM there is nothing to compare.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
