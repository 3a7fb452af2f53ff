"""Where the time of a TensorFlow step goes, operation by operation."""

import collections
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf


def profile(step: Callable, steps: int = 8) -> tuple[float, dict[str, float]]:
    """Profiles a step, and shares its time out among the types of its operations.

    Args:
        step: Function without arguments, traced already.
        steps: Number of steps to profile.

    Returns:
        The mean time of a step in ms, and a dict from types of operations, such as
        `GatherV2`, to their parts of it. What is missing from the sum of the parts is
        the time in which no operation ran.
    """
    # TensorFlow has the format of its own traces only here.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder)
        start = time.perf_counter()
        for _ in range(steps):
            step()
        wall = 1e3 * (time.perf_counter() - start) / steps
        tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        for file in pathlib.Path(folder).rglob("*.xplane.pb"):
            space.MergeFromString(file.read_bytes())
    times = share(_operations(space))
    return wall, {kind: ms / steps for kind, ms in times.items()}


def _operations(space):
    """Yields the type, start and end in ms of every operation of a trace."""
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                # Operations are "name:type"; other events have C++ names or none.
                _, colon, kind = name.partition(":")
                if colon and not kind.startswith((":", " ")):
                    start = line.timestamp_ns * 1e-6 + event.offset_ps * 1e-9
                    kind = kind.removeprefix("_MklNative").removeprefix("_Mkl")
                    yield kind, start, start + event.duration_ps * 1e-9


def share(events: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    """Shares time out: a moment in which several events run is divided among them.

    Args:
        events: Tuples of a name, a start and an end.

    Returns:
        Dict from names to their shares, the largest first. They add up to the time in
        which at least one event runs.

    Example:

    >>> from keras_vqem.evaluation.op_profile import share
    >>> share([("product", 0.0, 4.0), ("draws", 3.0, 5.0), ("sums", 9.0, 9.5)])
    {'product': 3.5, 'draws': 1.5, 'sums': 0.5}
    """
    events = list(events)
    changes = []
    for number, (_, start, end) in enumerate(events):
        changes += [(start, number), (end, number)]
    shares, running, last = collections.Counter(), set(), 0.0
    for moment, number in sorted(changes):
        for other in running:
            shares[events[other][0]] += (moment - last) / len(running)
        running ^= {number}
        last = moment
    return dict(shares.most_common())


def by_part(
    times: Mapping[str, float], parts: Mapping[str, Iterable[str]]
) -> dict[str, float]:
    """Adds up times of types of operations that belong to one part of a step.

    Args:
        times: Dict from types to times.
        parts: Dict from the names of parts to the types in them.

    Returns:
        Dict from the names of parts to times, in their order, and `all else`.
    """
    part_of = {kind: part for part, kinds in parts.items() for kind in kinds}
    totals = dict.fromkeys([*parts, "all else"], 0.0)
    for kind, ms in times.items():
        totals[part_of.get(kind, "all else")] += ms
    return totals
