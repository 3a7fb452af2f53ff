"""The environment of a measurement: versions, machine, and other processes."""

import os
import pathlib
import platform
import time
from importlib import metadata

import tensorflow as tf

import keras_vqem

PACKAGES = ("keras", "numpy", "sacrebleu", "tensorflow", "tensorflow-text")


def environment() -> dict[str, dict]:
    """Returns versions and machine, which latencies depend on.

    Returns:
        Dict with `versions` (from package to version) and `machine` (cores,
        processor, threads, number of GPUs).
    """
    versions = {name: metadata.version(name) for name in PACKAGES}
    versions |= {"python": platform.python_version()}
    versions |= {"keras_vqem": keras_vqem.__version__}
    machine = {
        "cores": usable_cores(),
        "processor": processor_name(),
        "system": platform.platform(),
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
        "threads_from_environment": os.environ.get("TF_NUM_INTRAOP_THREADS"),
        "gpus": len(tf.config.list_physical_devices("GPU")),
    }
    return {"versions": versions, "machine": machine}


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    # Not every system has this function.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """Returns the name of the processor, or its architecture if it has no name."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            x.split(":")[1].strip() for x in lines if x.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


class OtherProcesses:
    """Measures the share of the machine that other processes use since creation."""

    def __init__(self):
        self._start = self._now()

    @staticmethod
    def _now():
        """Returns seconds of the clock, of all processors, and of this process."""
        try:
            line = pathlib.Path("/proc/stat").read_text().split("\n")[0]
        except OSError:
            return None
        ticks = [int(x) for x in line.split()[1:9]]
        idle = ticks[3] + ticks[4]
        busy = (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK")
        return time.monotonic(), busy, sum(os.times()[:4])

    def share(self) -> float | None:
        """Returns the share, from 0 to 1, or None if the system does not report it.

        Processes that this one started count as its own once they have ended.
        """
        if self._start is None:
            return None
        clock, busy, ours = (
            b - a for a, b in zip(self._start, self._now(), strict=True)
        )
        return max(0.0, (busy - ours) / (clock * os.cpu_count()))
