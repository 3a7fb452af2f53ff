"""How long functions take, measured side by side."""

import time
from typing import NamedTuple

import numpy as np

from keras_vqem.checks import whole_number


class Latency(NamedTuple):
    """Milliseconds a call takes: the median and the 95th percentile of the rounds."""

    median_ms: float
    p95_ms: float
    rounds: int


def measure(functions, rounds=30, warmup=3, clock=time.perf_counter):
    """Times functions in turns, so that a busy spell of the machine meets all alike.

    Each round calls every function once, and each round starts with another one.

    Args:
        functions: A dict from names to functions without arguments. A function must
            return only when its work is done: end with `.numpy()` where TensorFlow
            may still be computing.
        rounds: The number of timed calls of each function.
        warmup: The number of rounds before these, not timed: tracing, caches.
        clock: A function that returns the time in seconds.

    Returns:
        A dict from the same names, in the same order, to `Latency`.

    Example:

    >>> latencies = measure({"sum": lambda: sum(range(100))}, rounds=5)
    >>> latencies["sum"].rounds
    5
    """
    rounds = whole_number("rounds", rounds, 1)
    warmup = whole_number("warmup", warmup, 0)
    if not functions:
        raise ValueError("`functions` is empty: give at least one function to time.")
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


def table(latencies, baseline=None):
    """Writes latencies as a Markdown table.

    Args:
        latencies: What `measure` returns.
        baseline: The name whose median the others are divided by: a ratio of 0.5
            takes half its time. None: the first.

    Returns:
        The table as a string, a line for each name.

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
