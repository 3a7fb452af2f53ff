"""Latencies of many translators at several sizes: rounds, tables, targets, a plot."""

import os
import pathlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_vqem.evaluation.benchmark_processes import PAUSE, Contest, Progress
from keras_vqem.evaluation.markdown import markdown_table
from keras_vqem.files import replacing

SECONDS_PER_CELL = 180.0
MOST_ROUNDS = 12
# With longer rounds than this, in seconds, each turn is one step, and all are timed.
LONG_ROUND = 20.0


class Plan(NamedTuple):
    """How often contestants take turns, and what a turn is.

    Attributes:
        rounds: Number of turns of each contestant.
        steps: Number of timed steps per turn.
        untimed: Number of steps before these, which fill caches and wake threads.
    """

    rounds: int
    steps: int
    untimed: int


def plan(
    seconds: Mapping[str, float],
    budget: float,
    per_cell: float = SECONDS_PER_CELL,
    most_rounds: int = MOST_ROUNDS,
) -> Plan:
    """Chooses the number of rounds, the same for all, so that ratios compare equals.

    Args:
        seconds: Dict from contestants to the time of a step.
        budget: Seconds for all contestants together.
        per_cell: Maximum number of seconds per contestant.
        most_rounds: Maximum number of rounds.

    Returns:
        A `Plan` with at least two rounds.

    Example:

    >>> plan({"fast": 0.1, "slow": 0.4}, budget=21.0)
    Plan(rounds=10, steps=3, untimed=1)
    >>> plan({"fast": 10.0, "slow": 40.0}, budget=300.0)
    Plan(rounds=4, steps=1, untimed=0)
    """
    total = sum(seconds.values())
    steps, untimed = (3, 1) if total < LONG_ROUND else (1, 0)
    turn = steps + untimed
    most = budget / (turn * total + PAUSE * len(seconds))
    most = min(most, per_cell / (turn * max(seconds.values())), most_rounds)
    return Plan(max(int(most), 2), steps, untimed)


def race(
    contest: Contest,
    budget: float,
    title: str = "",
    most_rounds: int = MOST_ROUNDS,
    warmup: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> Plan | None:
    """Warms up all contestants, tries one step of each, then times as many as fit.

    Where a turn is a single step, the trial is the first round.

    Args:
        contest: A `Contest` whose entries are built. Its results get `seconds`.
        budget: Seconds for everything.
        title: Text before the names of the rounds.
        most_rounds: Maximum number of rounds, after the first.
        warmup: Number of steps before the trial. 0 if there were some already.
        clock: Function that returns the time in seconds.

    Returns:
        The `Plan`, or None if no contestant is left.
    """
    start, stages = clock(), 2 if warmup else 1
    progress = Progress(stages * len(contest.workers))
    contest.race(1, 1, warmup, progress, title, untimed=0)
    progress.close()
    seconds = {
        name: result["seconds"][0]
        for name, result in contest.results.items()
        if "seconds" in result and "status" not in result
    }
    if not seconds:
        return None
    chosen = plan(seconds, budget - (clock() - start), most_rounds=most_rounds)
    rounds = chosen.rounds
    if chosen.untimed:
        for name in seconds:
            del contest.results[name]["seconds"]
    else:
        rounds -= 1
    progress = Progress(rounds * len(contest.workers))
    contest.race(rounds, chosen.steps, 0, progress, title, chosen.untimed)
    progress.close()
    return chosen


def summarize(
    results: Mapping[str, dict],
    bases: Mapping[str, str],
    limits: Mapping[str, float] | None = None,
) -> None:
    """Adds medians, 95th percentiles and ratios to the rows that did not fail.

    Args:
        results: Dict from rows to dicts with `seconds`.
        bases: Dict from the key of a ratio to the row whose median is divided by that
            of each row: 2 is twice as fast.
        limits: Dict from rows to the least time in seconds, or None.
    """
    for row in results.values():
        if "seconds" in row and "status" not in row:
            row["median_ms"], row["p95_ms"] = (
                1e3 * float(np.percentile(row["seconds"], share)) for share in (50, 95)
            )
    for key, base in bases.items():
        median = results.get(base, {}).get("median_ms")
        for row in results.values():
            if median and "median_ms" in row:
                row[key] = median / row["median_ms"]
    for name, least in (limits or {}).items():
        row = results.get(name, {})
        if "median_ms" in row:
            row["limit_ms"] = 1e3 * least
            row["times_limit"] = row["median_ms"] / row["limit_ms"]


def table(results: Mapping[str, dict], columns: Mapping[str, str]) -> str:
    """Writes rows as a Markdown table.

    Args:
        results: Dict from rows to dicts, as `summarize` leaves them. A row with a
            `status` shows that instead.
        columns: Dict from the keys of ratios to their headers.

    Returns:
        The table as text.

    Example:

    >>> ours = {"label": "greedy", "median_ms": 8.0, "p95_ms": 9.0, "faster": 1.0}
    >>> peer = {"label": "peer", "status": "not installed"}
    >>> print(table({"a": ours, "b": peer}, {"faster": "over greedy"}))
    |  | median ms | p95 ms | over greedy |
    | --- | ---: | ---: | ---: |
    | greedy | 8.0 | 9.0 | 1.00 |
    | peer | not installed |  |  |
    """
    lines = []
    for row in results.values():
        if "median_ms" not in row:
            lines.append(
                [row["label"], row.get("status", "-"), *["" for _ in columns], ""]
            )
            continue
        times = [f"{row['median_ms']:.1f}", f"{row['p95_ms']:.1f}"]
        ratios = [f"{row[key]:.2f}" if key in row else "-" for key in columns]
        lines.append([row["label"], *times, *ratios])
    return markdown_table(["", "median ms", "p95 ms", *columns.values()], lines)


def write_plot(
    path: str | os.PathLike,
    sizes: Sequence[Mapping],
    styles: Mapping[str, tuple[str, str]],
) -> None:
    """Draws medians against the length of sources and against the size of batches.

    Args:
        path: File to write: .png, .pdf or .svg.
        sizes: List of dicts with `tokens`, `batch_size` and `rows`, as in the results.
        styles: Dict from the rows to draw to their colors and kinds of line.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib import ticker

    figure, axes = plt.subplots(1, 2, figsize=(11, 5.2))
    lone = [size for size in sizes if size["batch_size"] == 1]
    most = max(sizes, key=lambda size: size["batch_size"])["tokens"]
    batches = [size for size in sizes if size["tokens"] == most]
    for axis, points, key in (
        (axes[0], lone, "tokens"),
        (axes[1], batches, "batch_size"),
    ):
        for name, (color, line) in styles.items():
            found = [
                size for size in points if "median_ms" in size["rows"].get(name, {})
            ]
            axis.plot(
                [size[key] for size in found],
                [
                    size["rows"][name]["median_ms"] / size["batch_size"]
                    for size in found
                ],
                marker="o",
                markersize=4,
                color=color,
                linestyle=line,
                label=found[0]["rows"][name]["label"] if found else None,
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(sorted({size[key] for size in points}))
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_formatter("{x:g}")
            side.set_minor_formatter(ticker.NullFormatter())
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_xlabel("tokens in and out, one sentence at a time")
    axes[1].set_xlabel(f"sentences per batch, {most} tokens")
    axes[0].set_ylabel("median milliseconds per sentence")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    figure.tight_layout(rect=(0, 0.06 + 0.03 * -(-len(labels) // 3), 1, 1))
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def write_section(path: str | os.PathLike, name: str, text: str) -> None:
    """Replaces the text of a page between `<!-- NAME -->` and `<!-- end NAME -->`.

    Args:
        path: Markdown file that has both lines.
        name: Name of the section.
        text: The new text.
    """
    path = pathlib.Path(path)
    page = path.read_text(encoding="utf-8")
    first, last = f"<!-- {name} -->\n", f"<!-- end {name} -->"
    pattern = re.compile(re.escape(first) + ".*?" + re.escape(last), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"{path} needs a line {first.strip()} and a line {last}.")
    page = pattern.sub(lambda _: f"{first}\n{text.strip()}\n\n{last}", page, count=1)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
