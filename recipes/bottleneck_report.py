"""What benchmark_bottleneck.py makes of its samples: numbers, verdict, tables, plot."""

import json
import os
import pathlib
import tempfile

import numpy as np

MB = 1e6
# The sizes that the targets are meant for.
TARGET_SIZES = {"vectors": 4096, "dim": 512, "codes": 4096, "memory_codes": 65536}
# What is divided by what, and the bound that the quotient has to keep.
RATIO_TARGETS = [
    ("hard EM at most 1.3x the bare matmul", "hard", "matmul", "<=", 1.3),
    ("soft EM, m=10, at most 2x the bare matmul", "soft10", "matmul", "<=", 2.0),
    ("soft EM, m=50, at most 3x the bare matmul", "soft50", "matmul", "<=", 3.0),
    ("hard EM 5x faster than vector-quantize-pytorch", "vqp", "hard", ">=", 5.0),
    ("hard EM faster than Sonnet", "sonnet", "hard", ">", 1.0),
    ("hard EM faster than KerasHub", "keras_hub", "hard", ">", 1.0),
]
MEMORY_TARGETS = [
    ("hard EM under 600 MB beyond its state", "hard", 600.0),
    ("soft EM, m=10, under 600 MB beyond its state", "soft10", 600.0),
]
COMPARE = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
SPEED_NOTES = """\
x hard EM: how many times as long as keras_vqem's hard EM it takes.
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


def summarize(seconds):
    """Milliseconds of a list of samples: the median, and where the rest lies."""
    low, median, high = np.percentile(np.array(seconds) * 1e3, [10, 50, 90])
    return {
        "median_ms": float(median),
        "p10_ms": float(low),
        "p90_ms": float(high),
        "min_ms": float(np.min(seconds) * 1e3),
    }


def compare(contestants):
    """Adds the summary and the two ratios to every contestant that ran to the end.

    Args:
        contestants: Dict of dicts with `seconds`, or a `status` that says why not.
    """
    for entry in contestants.values():
        if "seconds" in entry and "status" not in entry:
            entry.update(summarize(entry["seconds"]))
    for name, base in (("times_matmul", "matmul"), ("times_hard_em", "hard")):
        base = contestants.get(base, {}).get("median_ms")
        for entry in contestants.values():
            if base and "median_ms" in entry:
                entry[name] = entry["median_ms"] / base


def growth_mb(entry):
    """What a step needs beyond what was there before the first: the larger measure."""
    resident = max(entry["first"], entry["later"]) - entry["baseline"]
    return max(resident, entry.get("in_use", 0)) / MB


def verdict(medians, growths):
    """Which targets this run met.

    Args:
        medians: Dict from contestant to its median time, in any unit.
        growths: Dict from contestant to the growth of its memory, in MB.

    Returns:
        A list of dicts with `target`, `value`, `met`; None for what was not measured.
    """
    values = [
        (target, medians.get(above), medians.get(below), relation, bound)
        for target, above, below, relation, bound in RATIO_TARGETS
    ] + [
        (target, growths.get(name), 1.0, "<", bound)
        for target, name, bound in MEMORY_TARGETS
    ]
    results = []
    for target, above, below, relation, bound in values:
        value = None if above is None or below is None else above / below
        met = None if value is None else bool(COMPARE[relation](value, bound))
        results.append({"target": target, "value": value, "met": met})
    return results


def table(header, rows):
    """Aligned text: the first column to the left, the others to the right.

    A row of two cells, a name and a remark, may be as wide as it likes.
    """
    full = [header, *(row for row in rows if len(row) == len(header))]
    widths = [max(len(row[i]) for row in full) for i in range(len(header))]
    widths[0] = max(len(row[0]) for row in [header, *rows])
    lines = []
    for row in [header, *rows]:
        if len(row) == len(header):
            cells = [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        else:
            cells = list(row[1:])
        lines.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
    rule = "-" * len(lines[0])
    return "\n".join([lines[0], rule, *lines[1:]])


def _cell(entry, key, form):
    return form.format(entry[key]) if key in entry else "-"


def speed_table(contestants):
    header = ["", "median ms", "p10", "p90", "x matmul", "x hard EM", "first error"]
    rows = []
    for entry in contestants.values():
        if "median_ms" not in entry:
            rows.append([entry["label"], entry["status"]])
            continue
        cells = [_cell(entry, k, "{:.1f}") for k in ("median_ms", "p10_ms", "p90_ms")]
        cells += [_cell(entry, k, "{:.2f}") for k in ("times_matmul", "times_hard_em")]
        rows.append([entry["label"], *cells, _cell(entry, "mse", "{:.5f}")])
    return table(header, rows)


def memory_table(entries):
    header = ["MB", "state", "first step", "later steps", "in use", "with build"]
    rows = []
    for entry in entries.values():
        if "baseline" not in entry:
            rows.append([entry["label"], entry["status"]])
            continue
        most = max(entry["first"], entry["later"])
        values = [
            entry["state"],
            entry["first"] - entry["baseline"],
            entry["later"] - entry["baseline"],
            entry.get("in_use"),
            most - entry["before"] - entry["state"],
        ]
        cells = ["-" if value is None else f"{value / MB:.0f}" for value in values]
        rows.append([entry["label"], *cells])
    return table(header, rows)


def sweep_table(axis, points):
    """Rows for values of `axis` ("K" or "m"): times, and times the bare matmul."""
    names = list(points[0]["contestants"])
    header = [axis, *(f"{name} ms" for name in names)]
    header += [f"{name} x matmul" for name in names if name != "matmul"]
    rows = []
    for point in points:
        entries = point["contestants"]
        cells = [_cell(entries[name], "median_ms", "{:.1f}") for name in names]
        cells += [
            _cell(entries[name], "times_matmul", "{:.2f}")
            for name in names
            if name != "matmul"
        ]
        rows.append([f"{point[axis]:,}", *cells])
    return table(header, rows)


def verdict_lines(results):
    words = {True: "met", False: "NOT met", None: "not measured"}
    width = max(len(result["target"]) for result in results)
    lines = []
    for result in results:
        value = "" if result["value"] is None else f"{result['value']:8.2f}"
        line = f"{result['target']:<{width}}  {value:>8}  {words[result['met']]}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def text(result):
    """The whole of what the benchmark found, to read."""
    sizes, speed = result["sizes"], result["contestants"]
    lines = [f"{result['machine']['cpu']}; {result['threads']} threads"]
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
        speed_table(speed),
        "",
        SPEED_NOTES,
    ]
    others = result["machine"]["others_share"]
    if others is not None and others > 0.05:
        lines.append(
            f"OTHER PROCESSES took {others:.0%} of the machine meanwhile: these times "
            f"are too long, and not for all alike."
        )
    draws = [
        f"{entry['different_draws']:.1f} of {number}"
        for number, entry in ((10, speed["soft10"]), (50, speed["soft50"]))
        if "different_draws" in entry
    ]
    if draws:
        lines.append(
            f"Soft EM has temperature {result['temperature']:g}: different codes among "
            f"the draws for a vector: {', '.join(draws)}."
        )
    if result["memory"]:
        lines += [
            "",
            f"Memory of a step with {sizes['memory_codes']:,} codes",
            "",
            memory_table(result["memory"]),
            "",
            MEMORY_NOTES,
        ]
    for axis, points in result["sweep"].items():
        lines += ["", f"Cost against {axis}", "", sweep_table(axis, points)]
    lines += ["", "Targets", "", verdict_lines(result["verdict"])]
    if sizes != TARGET_SIZES:
        lines += [
            "",
            "The targets are meant for the default sizes, not for this run's.",
        ]
    return "\n".join(lines)


def write_atomically(path, write):
    """`write(temporary path)`, then moves that to `path`: all of the file or none."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=path.suffix)
    os.close(handle)
    try:
        write(temporary)
        # mkstemp makes files private; this one is as any other.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_json(path, result):
    text = json.dumps(result, indent=1, allow_nan=False)
    write_atomically(path, lambda name: pathlib.Path(name).write_text(text + "\n"))


def write_plot(path, sweep, sizes):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    titles = {
        "K": "Cost against the size of the codebook",
        "m": f"Cost against the number of draws, K = {sizes['codes']:,}",
    }
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for panel, (axis, points) in zip(panels, sweep.items(), strict=True):
        for name in points[0]["contestants"]:
            pairs = [
                (point[axis], point["contestants"][name]["median_ms"])
                for point in points
                if "median_ms" in point["contestants"][name]
            ]
            style = "k--" if name == "matmul" else "o-"
            label = points[0]["contestants"][name]["label"]
            if pairs:
                panel.plot(*zip(*pairs, strict=True), style, label=label)
        panel.set(title=titles[axis], xlabel=axis, ylabel="ms a training step")
        panel.legend()
    panels[0].set_xscale("log", base=2)
    panels[0].set_yscale("log")
    panels[1].set_ylim(bottom=0)
    write_atomically(path, lambda name: figure.savefig(name, dpi=150))
    plt.close(figure)
