"""One contestant of benchmark_bottleneck.py, in a process of its own.

The benchmark starts this file once for each contestant, with the interpreter that has
the library in question, and talks to it in JSON objects, one a line:

    {"build": {...}}  makes the contestant and its data     -> {"versions": ..., ...}
    {"warm": n}       runs n steps and checks the first one -> {"mse": ..., ...}
    {"run": n}        one step to warm caches, n timed ones -> {"seconds": [...]}
    {"memory": n}     n steps, watching resident memory     -> {"baseline": ..., ...}

Whatever goes wrong comes back as {"error": ...}; the end of the input ends the process.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import importlib.metadata
import json
import os
import platform
import sys
import time

import numpy as np
from bottleneck_contestants import CONTESTANTS, Data


def use_threads(threads, packages):
    if "torch" in packages:
        import torch

        torch.set_num_threads(threads)
    if "tensorflow" in packages:
        import tensorflow as tf

        if tf.config.threading.get_intra_op_parallelism_threads() != threads:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)


def build(contestant, folder, threads, num_codes, options):
    make, packages = CONTESTANTS[contestant]
    for name in packages:
        importlib.import_module(name.removeprefix("dm-").replace("-", "_"))
    use_threads(threads, packages)
    names = ("vectors", "weights", f"codebook_{num_codes}")
    data = Data(*(np.load(f"{folder}/{name}.npy") for name in names))
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions["python"] = platform.python_version()
    before = _resident("VmRSS") - data.codebook.nbytes
    # The array of the codebook is let go: TensorFlow may share its memory, and then
    # the first update would seem to need more than it does.
    contestant, data = make(data, **options), data._replace(codebook=None)
    return contestant, data, {"versions": versions, "before": before}


def warm(contestant, data, steps):
    """Runs `steps` steps; of the first says whether it did what it should."""
    if contestant.codebook is None:
        for _ in range(steps):
            contestant.step()
        return {}
    start = contestant.codebook()
    quantized, gradient = (np.asarray(x) for x in contestant.step())
    report = {
        "mse": float(np.mean((data.vectors - quantized) ** 2)),
        "gradient_error": float(np.max(np.abs(gradient - data.weights))),
    }
    for _ in range(1, steps):
        contestant.step()
    if np.array_equal(start, contestant.codebook()):
        raise RuntimeError("the codebook does not learn")
    if contestant.draw is not None:
        draws = np.sort(contestant.draw(), axis=-1)
        different = 1 + np.sum(draws[:, 1:] != draws[:, :-1], axis=-1)
        report["different_draws"] = float(np.mean(different))
    return report


def run(contestant, steps):
    contestant.step()
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        result = contestant.step()
        seconds.append(time.perf_counter() - start)
        del result
    return {"seconds": seconds}


def _resident(key):
    """Bytes resident: "VmRSS" now, "VmHWM" at most; elsewhere than on Linux at most."""
    if sys.platform == "linux":
        with open("/proc/self/status") as file:
            [line] = [line for line in file if line.startswith(key)]
        return int(line.split()[1]) * 1024
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _forget_peak():
    if sys.platform == "linux":
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")


def memory(contestant, steps):
    """The most memory resident in the first step, and in those after it.

    TensorFlow's allocator keeps what building the layer has freed, and the steps use
    that first: what is resident grows by less than they need. So the allocator's own
    count of bytes in use is reported too, where it has one (with oneDNN).
    """
    import tensorflow as tf

    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    report = {"baseline": _resident("VmRSS")}
    for name, count in (("first", 1), ("later", steps - 1)):
        _forget_peak()
        for _ in range(count):
            with contextlib.suppress(ValueError):
                tf.config.experimental.reset_memory_stats("CPU:0")
                start = tf.config.experimental.get_memory_info("CPU:0")["current"]
            contestant.step()
            with contextlib.suppress(ValueError):
                peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
                report["in_use"] = max(report.get("in_use", 0), peak - start)
        report[name] = _resident("VmHWM")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="where the data is")
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    # Libraries may print; what they print must not get between the replies.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    contestant = data = None
    for line in sys.stdin:
        [(request, argument)] = json.loads(line).items()
        try:
            if request == "build":
                contestant = data = None
                contestant, data, reply = build(
                    folder=args.folder, threads=args.threads, **argument
                )
            elif request == "warm":
                reply = warm(contestant, data, argument)
            elif request == "run":
                reply = run(contestant, argument)
            else:
                reply = memory(contestant, argument)
        except Exception as error:
            text = " ".join(str(error).split()) or "no message"
            missing = isinstance(
                error, (ImportError, importlib.metadata.PackageNotFoundError)
            )
            reply = {"error": f"{type(error).__name__}: {text}", "missing": missing}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
