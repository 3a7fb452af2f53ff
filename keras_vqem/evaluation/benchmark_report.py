"""Results of a benchmark: medians, ratios, targets, tables and a plot."""

import operator
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_vqem.files import replacing

MB = 1e6
RELATIONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Target(NamedTuple):
    """A bound that a benchmark has to keep.

    Attributes:
        text: The target in words.
        name: Name of the contestant.
        base: Name of the contestant whose median time divides that of `name`, or None
            to measure the growth of memory in MB.
        relation: One of `<`, `<=`, `>`, `>=`.
        bound: Number on the right of the relation.
    """

    text: str
    name: str
    base: str | None
    relation: str
    bound: float


class Column(NamedTuple):
    """A column of `speed_table`: its header, the key of its values, their format."""

    header: str
    key: str
    form: str = "{:.2f}"


TIMES = tuple(
    Column(header, key, "{:.1f}")
    for header, key in (
        ("median ms", "median_ms"),
        ("p10", "p10_ms"),
        ("p90", "p90_ms"),
    )
)


def summarize(seconds: Sequence[float]) -> dict[str, float]:
    """Summarizes samples: median, 10th and 90th percentile and minimum, in ms."""
    low, median, high = np.percentile(np.array(seconds) * 1e3, [10, 50, 90])
    return {
        "median_ms": float(median),
        "p10_ms": float(low),
        "p90_ms": float(high),
        "min_ms": float(np.min(seconds) * 1e3),
    }


def compare(results: Mapping[str, dict], bases: Mapping[str, str]) -> None:
    """Adds summaries and ratios of medians to all contestants that did not fail.

    Args:
        results: Dict of dicts with `seconds`, or with `status`, the reason for a
            failure.
        bases: Dict from the key of a ratio to the contestant to divide by, such as
            `{"times_matmul": "matmul"}`.
    """
    for entry in results.values():
        if "seconds" in entry and "status" not in entry:
            entry.update(summarize(entry["seconds"]))
    for key, base in bases.items():
        median = results.get(base, {}).get("median_ms")
        for entry in results.values():
            if median and "median_ms" in entry:
                entry[key] = entry["median_ms"] / median


def growth_mb(entry: Mapping[str, float]) -> float:
    """Returns the additional memory, in MB, that a step needs.

    It is the larger of the growth of resident memory and of the allocator's count.
    """
    resident = max(entry["first"], entry["later"]) - entry["baseline"]
    return max(resident, entry.get("in_use", 0)) / MB


def verdict(
    targets: Sequence[Target],
    medians: Mapping[str, float],
    growths: Mapping[str, float],
) -> list[dict]:
    """Checks which targets were met.

    Args:
        targets: List of `Target`.
        medians: Dict from contestant to its median time, in any unit.
        growths: Dict from contestant to the growth of its memory, in MB.

    Returns:
        List of dicts with `target`, `value` and `met`. The last two are None if the
        value was not measured.
    """
    results = []
    for target in targets:
        value = (growths if target.base is None else medians).get(target.name)
        if target.base is not None and value is not None:
            base = medians.get(target.base)
            value = None if base is None else value / base
        met = value is not None and bool(
            RELATIONS[target.relation](value, target.bound)
        )
        met = None if value is None else met
        results.append({"target": target.text, "value": value, "met": met})
    return results


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligns cells: the first column to the left, the others to the right.

    Args:
        header: List of the names of the columns.
        rows: List of lists of cells. A row of two cells, a name and a remark, does not
            affect the widths of the other columns.

    Returns:
        The table as text, one line per row.
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


def speed_table(results: Mapping[str, dict], columns: Sequence[Column] = ()) -> str:
    """Writes times, one row per contestant.

    Args:
        results: Dict of results, completed by `compare`.
        columns: List of `Column` after those of the times.

    Returns:
        The table as text. The row of a contestant that failed says why.
    """
    columns = [*TIMES, *columns]
    rows = []
    for entry in results.values():
        if "median_ms" in entry:
            cells = [_cell(entry, column.key, column.form) for column in columns]
            rows.append([entry["label"], *cells])
        else:
            rows.append([entry["label"], entry["status"]])
    return table(["", *(column.header for column in columns)], rows)


def memory_table(entries: Mapping[str, dict]) -> str:
    """Writes the memory of a step, one row per contestant.

    Args:
        entries: Dict of dicts with the answer of a worker to `memory`, and `state`,
            the number of bytes of the contestant's state.

    Returns:
        The table as text, in MB: the state; growth of resident memory in the first
        step and in later ones; peak use by TensorFlow's allocator; growth since
        before the contestant was built, without the state.
    """
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


def sweep_table(axis: str, points: Sequence[dict], base: str, ratio: str) -> str:
    """Writes the times of a sweep, one row per size.

    Args:
        axis: Name of the parameter that is swept, and key of its value in a point.
        points: List of dicts with the value and `contestants`, a dict of results,
            completed by `compare`.
        base: Name of the contestant that the others are divided by.
        ratio: Key of that ratio.

    Returns:
        The table as text: times in ms, then ratios.
    """
    names = list(points[0]["contestants"])
    others = [name for name in names if name != base]
    header = [axis, *(f"{name} ms" for name in names)]
    header += [f"{name} x {base}" for name in others]
    rows = []
    for point in points:
        entries = point["contestants"]
        cells = [_cell(entries[name], "median_ms", "{:.1f}") for name in names]
        cells += [_cell(entries[name], ratio, "{:.2f}") for name in others]
        rows.append([f"{point[axis]:,}", *cells])
    return table(header, rows)


def verdict_lines(results: Sequence[dict]) -> str:
    """Formats the result of `verdict`, one line per target."""
    words = {True: "met", False: "NOT met", None: "not measured"}
    width = max(len(result["target"]) for result in results)
    lines = []
    for result in results:
        value = "" if result["value"] is None else f"{result['value']:8.2f}"
        line = f"{result['target']:<{width}}  {value:>8}  {words[result['met']]}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def write_plot(
    path: str | os.PathLike,
    sweep: Mapping[str, Sequence[dict]],
    titles: Mapping[str, str],
    base: str,
    logarithmic: Sequence[str] = (),
    rows: Mapping[str, dict] | None = None,
) -> None:
    """Draws all times as bars, and sweeps, one panel per axis; writes the picture.

    Args:
        path: File to write. Its suffix determines the format.
        sweep: Dict from axes to points, as in `sweep_table`.
        titles: Dict from axes to the titles of their panels.
        base: Name of the contestant that is drawn as a dashed line.
        logarithmic: Axes whose panels have logarithmic scales.
        rows: Dict of results, as in `speed_table`, of the first panel, or None to leave
            it out. Rows that failed are not drawn.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    times = {k: v for k, v in (rows or {}).items() if "median_ms" in v}
    widths = [7] * bool(times) + [5.5] * len(sweep)
    size = (sum(widths), max(4.0, 0.3 * len(times) + 1))
    figure, panels = plt.subplots(
        1, len(widths), figsize=size, width_ratios=widths, layout="constrained"
    )
    panels = list(np.ravel(panels))
    if times:
        _draw_times(panels.pop(0), times, base)
    for panel, (axis, points) in zip(panels, sweep.items(), strict=True):
        for name, entry in points[0]["contestants"].items():
            pairs = [
                (point[axis], point["contestants"][name]["median_ms"])
                for point in points
                if "median_ms" in point["contestants"][name]
            ]
            style = "k--" if name == base else "o-"
            if pairs:
                panel.plot(*zip(*pairs, strict=True), style, label=entry["label"])
        panel.set(title=titles[axis], xlabel=axis, ylabel="ms per training step")
        panel.legend()
        if axis in logarithmic:
            panel.set_xscale("log", base=2)
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=90)
    plt.close(figure)


def _draw_times(panel, times, base):
    """Draws medians as bars with 10th and 90th percentiles."""
    for place, entry in enumerate(times.values()):
        median, ours = entry["median_ms"], entry["label"].startswith("keras_vqem")
        reach = [[median - entry["p10_ms"]], [entry["p90_ms"] - median]]
        color = "tab:blue" if ours else "0.65"
        panel.barh(place, median, xerr=reach, color=color, capsize=2)
    if base in times:
        panel.axvline(times[base]["median_ms"], color="k", linestyle="--")
    labels = [entry["label"] for entry in times.values()]
    panel.set(
        yticks=range(len(times)), yticklabels=labels, xlabel="ms per training step"
    )
    panel.set_title("All contestants: median, 10th and 90th percentile")
    panel.invert_yaxis()
