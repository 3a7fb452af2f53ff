"""Compares all quantizers in one small image autoencoder, with one budget.

    python recipes/compare_bottlenecks.py --peers .venv-peers/bin/python
    python recipes/compare_bottlenecks.py --size small --data data \\
        --peers .venv-peers/bin/python --json out/bottlenecks_cifar10.json

The first command takes minutes and needs no data: generated images (shapes). The second
takes CIFAR-10 and half an hour of one core. Network, first weights, batches, number of
steps and number of codes are the same for all; compared_bottlenecks.py has the table of
quantizers. What was measured is kept in --json: a comparison that was interrupted, or
gets more rows or seeds, goes on where it was. Add --times when nothing else runs on the
machine: then steps of all rows are timed, in turns.
"""

import contextlib
import pathlib
import signal
import sys
import tempfile

import comparison_contestants as contestants
from arguments import add_number, make_parser, user_errors
from compared_bottlenecks import QUANTIZERS

SIZES = {
    "smoke": {
        "dataset": "shapes",
        "train": 2048,
        "test": 512,
        "steps": 400,
        "num_codes": 64,
        "dim": 16,
        "hidden": 64,
        "batch": 32,
        "rate": 0.003,
    },
    "small": {
        "dataset": "cifar10",
        "train": 20_000,
        "test": 5_000,
        "steps": 1_500,
        "num_codes": 256,
        "dim": 16,
        "hidden": 64,
        "batch": 32,
        "rate": 0.003,
    },
}
COLUMNS = {
    "mse": ("test error", "{:.5f}"),
    "psnr": ("PSNR, dB", "{:.2f}"),
    "perplexity": ("perplexity", "{:.1f}"),
    "usage": ("usage", "{:.2f}"),
    "bits_per_image": ("bits per image", "{:.1f}"),
    "step_ms": ("step, ms", "{:.2f}"),
}
NOTES = """\
Means ± standard deviations over seeds. *test error*: mean squared error of pixels from
0 to 1. *perplexity*, *usage*: of the codes of the test images. *bits per image*: of
these codes under their frequencies in the training images. With several codebooks,
perplexity and usage are means over them. *step*: time of a training step of the whole
network; ± is over turns."""
SECONDS_PER_RUN = 24 * 3600.0
TIMED_STEPS = 100


def parse(arguments):
    parser = make_parser(__doc__)
    add = parser.add_argument
    size_help = "smoke (shapes, minutes) or small (CIFAR-10; default: smoke)"
    add("--size", choices=list(SIZES), default="smoke", help=size_help)
    add("--data", metavar="DIR", help="folder of CIFAR-10, for --size small")
    add(
        "--only", nargs="+", metavar="NAME", help="quantizers to compare (default: all)"
    )
    add_number(parser, "--seeds", 3, "number of seeds")
    steps_help = "number of training steps (default: that of the size)"
    add("--steps", type=int, metavar="N", help=steps_help)
    add_number(parser, "--threads", 1, "number of threads of each run")
    times_help = "time steps as well, one turn of each row per seed; on a quiet machine"
    add("--times", action="store_true", help=times_help)
    peers_help = "Python interpreter that has the peers (default: peers are left out)"
    add("--peers", metavar="PYTHON", help=peers_help)
    out = pathlib.Path("out/bottleneck_comparison.json")
    json_help = "file of all results, from which a comparison goes on"
    add("--json", type=pathlib.Path, default=out, metavar="FILE", help=json_help)
    add("--markdown", type=pathlib.Path, metavar="FILE", help="file for the table")
    plot_help = "picture to write: .png, .pdf or .svg"
    add("--plot", type=pathlib.Path, metavar="FILE", help=plot_help)
    options = parser.parse_args(arguments)
    unknown = set(options.only or ()) - set(QUANTIZERS)
    if unknown:
        known = ", ".join(QUANTIZERS)
        parser.error(f"no quantizer is named {', '.join(sorted(unknown))}; use {known}")
    if options.steps is not None and options.steps < 1:
        parser.error("--steps must be at least 1")
    if options.size == "small" and not options.data:
        parser.error("--size small needs --data, the folder of CIFAR-10")
    if options.size == "smoke" and options.data:
        parser.error("--data is for --size small; smoke generates its images")
    if options.plot and options.plot.suffix not in (".png", ".pdf", ".svg"):
        parser.error(f"--plot writes .png, .pdf or .svg, received {options.plot}")
    return options


def images_of(options, settings):
    """Returns the training and test images."""
    from keras_vqem.images import ImageData

    data = ImageData(settings["dataset"], options.data)
    return [data.images(split)[: settings[split]] for split in ("train", "test")]


def spec_of(settings, name, seed):
    options = {"seed": seed, "steps": settings["steps"]}
    return {"contestant": name, "options": options, "sizes": settings}


def one_run(worker, settings, name, seed):
    """Trains and measures one quantizer with one seed."""
    import numpy as np

    from keras_vqem.evaluation import comparison

    versions = worker.ask(build=spec_of(settings, name, seed))["versions"]
    result = worker.ask(warm=settings["steps"])
    codes = result.pop("codes")
    train, test = (np.load(codes[split]) for split in ("train", "test"))
    result |= comparison.code_measures(train, test, result["num_codes"])
    result["psnr"] = float(-10 * np.log10(max(result["mse"], 1e-12)))
    return result | {"versions": versions}


def one_turn(worker, settings, name, seed):
    """Times the steps of one quantizer."""
    import numpy as np

    worker.ask(build=spec_of(settings, name, seed))
    worker.ask(run=TIMED_STEPS)  # The first ones trace the graph and fill caches.
    seconds = worker.ask(run=TIMED_STEPS)["seconds"]
    return {"step_ms": 1000 * float(np.median(seconds))}


def compare(options, settings, results, names, measure):
    """Runs what is missing, and returns the reasons of those that could not run.

    Args:
        options: Options of the command.
        settings: Settings of the size.
        results: Results to go on with.
        names: Names of the quantizers.
        measure: `one_run` for what the results lack, `one_turn` for the times of all.
    """
    from keras_vqem.evaluation.benchmark_processes import (
        Progress,
        Worker,
        WorkerFailed,
    )

    peers = {name for name in names if QUANTIZERS[name].peer}
    left_out = set() if options.peers else peers
    failed = {name: "left out: no --peers interpreter" for name in left_out}
    # Seeds outside: an interrupted comparison has all rows, and times come in turns.
    missing = [
        (name, seed)
        for seed in range(options.seeds)
        for name in names
        if name not in failed and results.has(name, seed) == (measure is one_turn)
    ]
    workers, progress = {}, Progress(len(missing))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if missing:
            contestants.make_data(folder, *images_of(options, settings))
        for name, seed in missing:
            progress.show(f"{name}, seed {seed}")
            if name in failed:
                continue
            peer = name in peers
            try:
                # One process for ours and one for theirs: torch never meets TensorFlow.
                if peer not in workers:
                    python = options.peers if peer else sys.executable
                    given = (contestants.__file__, folder, options.threads)
                    workers[peer] = Worker(python, *given, SECONDS_PER_RUN)
                    stack.callback(workers[peer].close)
                found = measure(workers[peer], settings, name, seed)
                results.add(name, seed, found)
            except WorkerFailed as error:
                failed[name] = str(error)
                workers.pop(peer, None)  # A worker that failed has ended.
    progress.close()
    return failed


def page(settings, rows, machine):
    """Returns the table with the settings that it was measured with."""
    from keras_vqem.evaluation.comparison import comparison_table

    said = "{steps:,} steps of {batch} images, {num_codes} codes of size {dim}"
    first = f"{settings['dataset']}: {settings['train']:,} images, "
    return "\n".join(
        [
            f"{first}{said.format(**settings)}; {machine}.",
            "",
            comparison_table(rows, COLUMNS),
            "",
            NOTES,
        ]
    )


@user_errors
def main(arguments=None):
    options = parse(arguments)
    # Exits like an interrupt from the keyboard, so that workers are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    from keras_vqem.evaluation import comparison, environment
    from keras_vqem.files import replacing

    settings = dict(SIZES[options.size])
    settings["steps"] = options.steps or settings["steps"]
    settings["threads"] = options.threads
    results = comparison.Results(options.json, settings)
    names = [n for n in QUANTIZERS if n in (options.only or [n])]
    failed = compare(options, settings, results, names, one_run)
    if options.times:
        print("timing steps", file=sys.stderr)
        others = environment.OtherProcesses()
        compare(options, settings, results, names, one_turn)
        if (others.share() or 0) > 0.05:
            print("OTHER PROCESSES ran meanwhile: times are too long.", file=sys.stderr)

    seeds = range(options.seeds)
    rows = {
        QUANTIZERS[name].label: results.of(name, seeds) or failed.get(name, "")
        for name in names
    }
    measured = {k: v for k, v in rows.items() if v and not isinstance(v, str)}
    threads = "1 thread" if options.threads == 1 else f"{options.threads} threads"
    machine = f"{environment.processor_name()}, {threads}"
    text = page(settings, rows, machine)
    print(text)
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        with replacing(options.markdown) as temporary:
            temporary.write_text(text + "\n")
    if options.plot:
        panels = {key: COLUMNS[key][0] for key in ("psnr", "bits_per_image", "usage")}
        peers = [row.label for row in QUANTIZERS.values() if row.peer]
        comparison.write_plot(options.plot, measured, panels, others=peers)
    print(f"all results are in {options.json}")


if __name__ == "__main__":
    main()
