"""Latencies of functions, measured side by side."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from keras_vqem.checks import whole_number


class Latency(NamedTuple):
    """Duration of a call over several rounds.

    Attributes:
        median_ms: Median, in milliseconds.
        p95_ms: 95th percentile, in milliseconds.
        rounds: Number of timed calls.
    """

    median_ms: float
    p95_ms: float
    rounds: int


def measure(
    functions: Mapping[str, Callable[[], object]],
    rounds: int = 30,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Latency]:
    """Times functions in turns, so that a busy moment of the machine affects all.

    Each round calls every function once, and each round starts with another one.

    Args:
        functions: Dict from names to functions without arguments. A function must
            return only when its work is done: end with `.numpy()` where TensorFlow
            may still be computing.
        rounds: Number of timed calls per function.
        warmup: Number of calls per function before these, not timed, for tracing and
            caches.
        clock: Function that returns the time in seconds.

    Returns:
        Dict from the same names, in the same order, to `Latency`.

    Example:

    >>> latencies = measure({"sum": lambda: sum(range(100))}, rounds=5)
    >>> latencies["sum"].rounds
    5
    """
    rounds = whole_number("rounds", rounds, 1)
    warmup = whole_number("warmup", warmup, 0)
    if not functions:
        raise ValueError("`functions` is empty: pass at least one function to time.")
    names = list(functions)
    seconds = {name: [] for name in names}
    for number in range(warmup + rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            start = clock()
            functions[name]()
            taken = clock() - start
            if number >= warmup:
                seconds[name].append(taken)
    return {
        name: Latency(
            1000 * float(np.median(taken)),
            1000 * float(np.percentile(taken, 95)),
            rounds,
        )
        for name, taken in seconds.items()
    }


def table(latencies: Mapping[str, Latency], baseline: str | None = None) -> str:
    """Writes latencies as a Markdown table.

    Args:
        latencies: Dict from names to `Latency`, as returned by `measure`.
        baseline: Name whose median the others are divided by, or None for the first.
            A ratio of 0.5 means half its time.

    Returns:
        The table as text, one line per name.

    Example:

    >>> print(table({"greedy": Latency(80, 90, 30), "latent": Latency(20, 24, 30)}))
    | | median ms | p95 ms | ratio |
    |---|---:|---:|---:|
    | greedy | 80.0 | 90.0 | 1.00 |
    | latent | 20.0 | 24.0 | 0.25 |
    """
    baseline = next(iter(latencies)) if baseline is None else baseline
    if baseline not in latencies:
        raise ValueError(
            f"`baseline` must be one of {list(latencies)}, received {baseline!r}."
        )
    unit = latencies[baseline].median_ms
    lines = ["| | median ms | p95 ms | ratio |", "|---|---:|---:|---:|"]
    for name, latency in latencies.items():
        lines.append(
            f"| {name} | {latency.median_ms:.1f} | {latency.p95_ms:.1f} "
            f"| {latency.median_ms / unit:.2f} |"
        )
    return "\n".join(lines)
