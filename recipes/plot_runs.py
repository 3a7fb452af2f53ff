"""Plots the metrics of training runs, as in the stability figure of the paper.

    python recipes/plot_runs.py --output out/stability.png \\
        --run "hard EM=runs/hard_em" --run "soft EM=runs/soft_em"

There is one panel per metric and one line per run. By default the metrics are, if a run
has them: for translators BLEU on the validation set, BLEU from the codes of the
references, and perplexity of the codebook; for images bits per dimension given the
codes, bits per symbol of a predictor, and perplexity. --metrics chooses others of
metrics.jsonl. --against minutes shows the metrics over training time.
"""

import argparse
from pathlib import Path

from arguments import make_parser, user_errors

LABELS = {
    "val_bleu": "BLEU, validation",
    "val_teacher_forced_bleu": "BLEU from codes of references, validation",
    "val_random_codes_bleu": "BLEU from random codes, validation",
    "val_reconstruction_bits_per_dim": "bits per dimension given codes, validation",
    "val_bits_per_symbol": "bits per symbol, validation",
    "val_bits_per_dim": "bits per dimension, validation",
    "perplexity": "perplexity of the codebook",
    "val_perplexity": "perplexity of the codebook, validation",
    "code_nll": "predictor, nats per code",
    "token_nll": "decoder, nats per token",
}
DEFAULT = [
    "val_bleu",
    "val_teacher_forced_bleu",
    "val_reconstruction_bits_per_dim",
    "val_bits_per_symbol",
    "val_bits_per_dim",
    "perplexity",
]
AXES = {
    "epoch": ("epoch", lambda line: line["epoch"]),
    "minutes": ("minutes of training", lambda line: line["training_seconds"] / 60),
}
# Distinguishable with any kind of colour vision, and in print.
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]


def named_run(text):
    """Returns a name and the folder of a run, from "NAME=FOLDER" or "FOLDER"."""
    name, equals, folder = text.partition("=")
    if not equals:
        name, folder = Path(text).name, text
    if not (Path(folder) / "metrics.jsonl").exists():
        raise argparse.ArgumentTypeError(
            f"{folder} has no metrics.jsonl: pass the folder of a run"
        )
    return name, folder


def metrics_to_draw(runs, wanted):
    """Returns the wanted metrics, or the default ones that a run has."""
    found = {name: set().union(*lines) for name, lines in runs.items()}
    known = ", ".join(sorted(set().union(*found.values()))) or "no metrics yet"
    absent = [
        m for m in wanted or () if not any(m in names for names in found.values())
    ]
    if absent:
        raise ValueError(f"no run has {', '.join(absent)}; the runs have: {known}")
    metrics = [
        metric
        for metric in wanted or DEFAULT
        if any(metric in names for names in found.values())
    ]
    for name, names in found.items():
        if not names & set(metrics):
            raise ValueError(
                f"run {name} has none of the metrics {', '.join(metrics or DEFAULT)}: "
                f"choose others by --metrics; the runs have: {known}"
            )
    return metrics


def plot(runs, metrics, against, output):
    """Draws one panel per metric, one line per run, and writes the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, len(metrics), figsize=(4.2 * len(metrics), 3.4), squeeze=False
    )
    label, position = AXES[against]
    for axis, metric in zip(axes[0], metrics, strict=True):
        for color, (name, lines) in zip(COLORS, runs.items(), strict=False):
            points = [(position(m), m[metric]) for m in lines if metric in m]
            if points:  # An autoencoder has no bits of a predictor.
                places, values = zip(*points, strict=True)
                axis.plot(places, values, label=name, color=color, marker=".")
        axis.set_title(LABELS.get(metric, metric), fontsize=10)
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=9)
    if against == "epoch":
        for axis in axes[0]:
            axis.xaxis.get_major_locator().set_params(integer=True)
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150)
    plt.close(figure)


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    run = {"type": named_run, "action": "append", "required": True}
    run_help = f"name and folder of a run; may be repeated, up to {len(COLORS)} times"
    add("--run", **run, metavar="NAME=FOLDER", help=run_help)
    metrics_help = "metrics to plot (default: see above)"
    add("--metrics", nargs="+", metavar="METRIC", help=metrics_help)
    against_help = "unit of the horizontal axis (default: epoch)"
    add("--against", choices=list(AXES), default="epoch", help=against_help)
    output_help = "PNG file to write"
    add("--output", type=Path, required=True, metavar="PNG", help=output_help)
    options = parser.parse_args(arguments)
    if len(options.run) > len(COLORS):
        parser.error(f"at most {len(COLORS)} runs in one picture")
    if len(dict(options.run)) < len(options.run):
        parser.error("two runs have one name: name them with NAME=FOLDER")

    from keras_vqem.files import read_json_lines

    runs = {
        name: read_json_lines(Path(folder) / "metrics.jsonl")
        for name, folder in options.run
    }
    metrics = metrics_to_draw(runs, options.metrics)
    plot(runs, metrics, options.against, options.output)
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
