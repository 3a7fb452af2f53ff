"""One contestant of a benchmark, in its own process.

`benchmark_processes.Contest` runs this file as a script, once per contestant, with the
interpreter that has the library in question. That interpreter need not have
keras_vqem, so this file imports only Python's own modules and the file of the
contestants, which has

- `CONTESTANTS`: dict from names to pairs of a function `make(data, **options)` and the
  names of the packages whose versions are reported. `make` returns an object with
  `step()`, the step to time, and `check(steps)`, which runs the first steps and returns
  a dict of their results, or is None if there is nothing to check;
- `load_data(folder, **sizes)`: function that returns the `data` of `make`.

Requests and answers are JSON objects, one per line:

    {"build": {...}}  makes the contestant and its data     -> {"versions": ..., ...}
    {"warm": n}       runs n steps and checks them          -> {...}
    {"run": n}        one step to warm caches, n timed ones -> {"seconds": [...]}
    {"memory": n}     n steps, watching resident memory     -> {"baseline": ..., ...}

Instead of a number there may be an object with all arguments of the function.

A failure comes back as {"error": ...}; the end of the input ends the process.
"""

import contextlib
import ctypes
import gc
import importlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import time
import types
from typing import Any


def use_threads(threads: int, packages: tuple[str, ...]) -> None:
    """Sets the number of threads of torch and TensorFlow, if they are in `packages`."""
    if "torch" in packages:
        import torch

        torch.set_num_threads(threads)
    if "tensorflow" in packages:
        import tensorflow as tf

        if tf.config.threading.get_intra_op_parallelism_threads() != threads:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)


def build(
    module: types.ModuleType,
    folder: str,
    threads: int,
    contestant: str,
    options: dict[str, Any],
    sizes: dict[str, int],
) -> tuple[Any, dict]:
    """Makes a contestant, and returns it and the answer to the request."""
    make, packages = module.CONTESTANTS[contestant]
    for name in packages:
        importlib.import_module(name.removeprefix("dm-").replace("-", "_"))
    use_threads(threads, packages)
    data = module.load_data(folder, **sizes)
    versions = {name: importlib.metadata.version(name) for name in packages}
    versions["python"] = platform.python_version()
    before = _resident("VmRSS")
    return make(data, **options), {"versions": versions, "before": before}


def warm(contestant: Any, steps: int) -> dict:
    """Runs the first steps and returns the result of the contestant's check."""
    if contestant.check is not None:
        return contestant.check(steps)
    for _ in range(steps):
        contestant.step()
    return {}


def run(contestant: Any, steps: int, untimed: int = 1) -> dict[str, list[float]]:
    """Times each of several steps, after some that are not timed."""
    for _ in range(untimed):
        contestant.step()
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        result = contestant.step()
        seconds.append(time.perf_counter() - start)
        del result
    return {"seconds": seconds}


def _resident(key):
    """Returns resident bytes: "VmRSS" now, "VmHWM" (and not on Linux) the peak."""
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


def memory(contestant: Any, steps: int) -> dict[str, int]:
    """Measures the peak of resident memory in the first step and in later ones.

    TensorFlow's allocator keeps memory that was freed after building the layer, and
    steps use it first, so resident memory grows by less than they need. Therefore the
    allocator's own count of bytes in use is also reported, if it has one (with oneDNN).
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


def load_module(path: str) -> types.ModuleType:
    """Imports the file of the contestants."""
    spec = importlib.util.spec_from_file_location("contestants", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(request: str, arguments: int | dict[str, int], contestant: Any) -> dict:
    """Answers all requests except "build"."""
    if not isinstance(arguments, dict):
        arguments = {"steps": arguments}
    return {"warm": warm, "run": run, "memory": memory}[request](
        contestant, **arguments
    )


def main() -> None:
    contestants, folder, threads = sys.argv[1:]
    # Libraries may print; their output must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    module = contestant = None
    for line in sys.stdin:
        [(request, arguments)] = json.loads(line).items()
        try:
            module = module or load_module(contestants)
            if request == "build":
                contestant = None  # Its memory is free before the next one is built.
                contestant, reply = build(module, folder, int(threads), **arguments)
            else:
                reply = answer(request, arguments, contestant)
        except Exception as error:
            text = " ".join(str(error).split()) or "no message"
            missing = isinstance(
                error, (ImportError, importlib.metadata.PackageNotFoundError)
            )
            reply = {"error": f"{type(error).__name__}: {text}", "missing": missing}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
