"""How long a training step of a bottleneck takes, beside the bare matrix product.

The published table is that of

    make bench

which makes both environments and runs

    .venv/bin/python recipes/benchmark_bottleneck.py --peers .venv-peers/bin/python

and the published plot that of the same with

    --sweep --plot out/bottleneck.png --json out/bottleneck.json

A step is a forward pass in training mode, the gradient of sum(quantized * w) + losses
to the inputs, and the update of the codebook by moving averages: for 4,096 vectors of
size 512 and 4,096 codes, in float32 on the CPU. The yardstick is the product of the
vectors and the codebook alone, which every nearest-neighbour search has to compute.

Every contestant lives in a process of its own (bottleneck_worker.py), with the
same data, start and number of threads. They take turns, round after round, and only
one computes at a time, so that a slow minute of the machine is a slow minute for all.
"""

import argparse
import contextlib
import importlib.util
import pathlib
import signal
import sys
import tempfile
import time
from typing import NamedTuple

import bottleneck_report as report
import numpy as np
from bottleneck_processes import (
    OtherProcesses,
    Progress,
    Worker,
    WorkerFailed,
    describe_machine,
    usable_cores,
)

STEPS_PER_ROUND = 2
WARM_UP_STEPS = 3
# The most in use differs from step to step, with the order of parallel operations.
MEMORY_STEPS = 6
# For the threads of the contestant before to stop spinning for more work.
PAUSE = 0.05


class Entry(NamedTuple):
    """A row: what it is called, which contestant it is, whose interpreter it needs."""

    label: str
    contestant: str
    options: dict = {}
    peer: bool = False


MATMUL = Entry("bare matmul, TensorFlow", "tf_matmul")
HARD = Entry("keras_vqem hard EM", "keras_vqem")


def soft(num_samples, temperature):
    options = {"num_samples": num_samples, "temperature": temperature}
    return Entry(f"keras_vqem soft EM, m={num_samples}", "keras_vqem", options)


def all_entries(temperature):
    vqp, name = "vector_quantize_pytorch", "vector-quantize-pytorch"
    return {
        "matmul": MATMUL,
        "hard": HARD,
        "soft10": soft(10, temperature),
        "soft50": soft(50, temperature),
        "torch_matmul": Entry("bare matmul, torch", "torch_matmul", peer=True),
        # It passes gradients by a rotation unless told otherwise, which costs more.
        # Only the first of the two does what our step does.
        "vqp": Entry(f"{name}, straight-through", vqp, {"rotation_trick": False}, True),
        "vqp_rotation": Entry(f"{name}, rotation", vqp, {"rotation_trick": True}, True),
        "sonnet": Entry("Sonnet VectorQuantizerEMA", "sonnet", peer=True),
        "keras_hub": Entry("KerasHub VectorQuantizerEMA", "keras_hub", peer=True),
    }


class Benchmark:
    """The data, the workers, and what they are asked."""

    def __init__(self, args, folder, stack):
        self.args, self.folder, self.stack = args, folder, stack
        rng = np.random.default_rng(args.seed)
        for name in ("vectors", "weights"):
            values = rng.normal(size=(args.vectors, args.dim)).astype("float32")
            np.save(f"{folder}/{name}.npy", values)

    def make_codebook(self, num_codes):
        path = pathlib.Path(f"{self.folder}/codebook_{num_codes}.npy")
        if not path.exists():
            rng = np.random.default_rng([self.args.seed, num_codes])
            np.save(path, rng.normal(size=(num_codes, self.args.dim)).astype("float32"))

    def start(self, entries, num_codes, workers=None):
        """Workers that have built their entries, and a dict of results to fill.

        Entries without a worker get what the row is to say as their `status`.
        """
        self.make_codebook(num_codes)
        workers = {} if workers is None else workers
        results = {name: {"label": entry.label} for name, entry in entries.items()}
        for name, entry in entries.items():
            python = self.args.peers if entry.peer else sys.executable
            try:
                if python is None:
                    raise WorkerFailed("left out: no --peers interpreter")
                if name not in workers:
                    workers[name] = Worker(python, self.folder, self.args.threads)
                    self.stack.callback(workers[name].close)
                spec = {"contestant": entry.contestant, "options": entry.options}
                workers[name].send(build=spec | {"num_codes": num_codes})
            except WorkerFailed as error:
                results[name]["status"] = str(error)
        for name in [name for name in workers if name in entries]:
            self.ask(workers, results, name)
        return workers, results

    def ask(self, workers, results, name, **request):
        """Sends the request, if any, and merges the answer into the results."""
        try:
            if request:
                workers[name].send(**request)
            answer = workers[name].receive()
        except WorkerFailed as error:
            results[name]["status"] = str(error)
            del workers[name]
            return
        for key, value in answer.items():
            if key == "seconds":
                results[name].setdefault(key, []).extend(value)
            else:
                results[name][key] = value

    def race(self, workers, results, rounds, progress, what=""):
        """Warms all up, then times `rounds` rounds of all, one after the other."""
        for number in range(rounds + 1):
            stage = f"{what}round {number}/{rounds}" if number else f"{what}warm-up"
            request = {"run": STEPS_PER_ROUND} if number else {"warm": WARM_UP_STEPS}
            for name in list(workers):
                progress.show(f"{stage}: {name}")
                time.sleep(PAUSE)
                self.ask(workers, results, name, **request)
        report.compare(results)

    def speed(self):
        args = self.args
        print("starting the contestants", file=sys.stderr)
        workers, results = self.start(all_entries(args.temperature), args.codes)
        progress = Progress((args.rounds + 1) * len(workers))
        self.race(workers, results, args.rounds, progress)
        progress.close()
        for worker in workers.values():
            worker.close()
        return results

    def memory(self):
        """One fresh process after the other, so that none inherits memory."""
        args, merged = self.args, {}
        for name, entry in (("hard", HARD), ("soft10", soft(10, args.temperature))):
            print(f"memory, K={args.memory_codes}: {name}", file=sys.stderr)
            workers, results = self.start({name: entry}, args.memory_codes)
            if workers:
                self.ask(workers, results, name, memory=MEMORY_STEPS)
            for worker in workers.values():
                worker.close()
            # Vectors and their counts, and the counts of two metrics.
            results[name]["state"] = 4 * args.memory_codes * (args.dim + 3)
            merged |= results
        return merged

    def sweep(self):
        """Cost against K and against m; the workers stay and build one size anew."""
        args, workers = self.args, {}
        rounds = max(2, args.rounds // 3)
        sizes = [("K", size) for size in args.sweep_codes]
        sizes += [("m", size) for size in args.sweep_samples]
        progress = Progress((rounds + 1) * 3 * len(sizes))
        sweep = {"K": [], "m": []}
        for axis, size in sizes:
            num_codes, samples = (size, 10) if axis == "K" else (args.codes, size)
            drawn = soft(samples, args.temperature)
            if axis == "m":
                drawn = drawn._replace(label="keras_vqem soft EM")
            entries = {"matmul": MATMUL, "hard": HARD, "soft": drawn}
            _, results = self.start(entries, num_codes, workers)
            self.race(workers, results, rounds, progress, f"{axis}={size} ")
            sweep[axis].append({axis: size, "contestants": results})
        progress.close()
        for worker in workers.values():
            worker.close()
        return sweep


def parse(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        epilog="Numbers in brackets are the defaults.",
    )
    add = parser.add_argument
    add("--peers", metavar="PYTHON", help="interpreter that has the peers (left out)")
    for name, default, text in (
        ("rounds", 15, "turns that every contestant gets"),
        ("vectors", 4096, "N, vectors in a batch"),
        ("dim", 512, "D, size of a vector"),
        ("codes", 4096, "K, size of the codebook"),
        ("memory-codes", 65536, "K for the memory of a step"),
        ("threads", usable_cores(), "threads of every contestant"),
        ("seed", 0, "seed of the data"),
    ):
        text += f" ({default})"
        add(f"--{name}", type=int, metavar="N", default=default, help=text)
    text = "temperature of soft EM; a low one draws the same code again and again (100)"
    add("--temperature", type=float, metavar="T", default=100.0, help=text)
    add("--no-memory", action="store_true", help="leave out the memory of a step")
    add("--sweep", action="store_true", help="time a range of K and of m as well")
    for name, letter, default in (
        ("codes", "K", [4**n for n in range(4, 9)]),
        ("samples", "M", [1, 2, 5, 10, 25, 50]),
    ):
        flag, text = f"--sweep-{name}", f"of the sweep ({' '.join(map(str, default))})"
        add(flag, type=int, nargs="+", metavar=letter, default=default, help=text)
    add("--plot", metavar="FILE.png", help="draw the sweep; needs matplotlib")
    add("--json", metavar="FILE", help="write all that was measured, every sample")
    args = parser.parse_args(argv)
    counts = (args.rounds, args.vectors, args.dim, args.threads, *args.sweep_samples)
    if min(counts) < 1 or min(args.codes, args.memory_codes, *args.sweep_codes) < 2:
        parser.error("sizes and counts must be at least 1, codes at least 2")
    # What can be wrong with the end is found out before the long wait for it.
    if args.plot and not args.sweep:
        parser.error("--plot draws the sweep: add --sweep")
    if args.plot and pathlib.Path(args.plot).suffix not in (".png", ".pdf", ".svg"):
        parser.error(f"--plot writes .png, .pdf or .svg, received {args.plot}")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install 'keras-vqem[recipes]'")
    return args


def main(argv=None):
    args = parse(argv)
    # As if interrupted by hand: what was opened gets closed, workers among it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        benchmark = Benchmark(args, folder, stack)
        others = OtherProcesses()
        contestants = benchmark.speed()
        machine = describe_machine() | {"others_share": others.share()}
        memory = {} if args.no_memory else benchmark.memory()
        sweep = benchmark.sweep() if args.sweep else {}
    versions = {"here": {}, "peers": {}}
    for name, entry in all_entries(args.temperature).items():
        where = versions["peers" if entry.peer else "here"]
        where |= contestants[name].pop("versions", {})
    medians = {k: v["median_ms"] for k, v in contestants.items() if "median_ms" in v}
    growths = {k: report.growth_mb(v) for k, v in memory.items() if "first" in v}
    result = {
        "machine": machine,
        "threads": args.threads,
        "versions": versions,
        "sizes": {name: getattr(args, name) for name in report.TARGET_SIZES},
        "seed": args.seed,
        "temperature": args.temperature,
        "rounds": args.rounds,
        "steps_per_round": STEPS_PER_ROUND,
        "contestants": contestants,
        "memory": memory,
        "sweep": sweep,
        "verdict": report.verdict(medians, growths),
    }
    if args.json:
        report.write_json(args.json, result)
    print(report.text(result))
    if args.plot:
        report.write_plot(args.plot, sweep, result["sizes"])
    if not {"matmul", "hard"} <= set(medians):
        sys.exit("Without the bare matmul and hard EM there is nothing to compare.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
