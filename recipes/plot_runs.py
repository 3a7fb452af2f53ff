"""Training runs as curves: the paper's stability figure from run folders.

    python recipes/plot_runs.py --output out/stability.png \\
        --run "hard EM=runs/hard_em" --run "soft EM=runs/soft_em"

By default the BLEU of real translations of the validation set, that of translations
written from the codes of the true ones, and the perplexity of the codebook; any other
metric in metrics.jsonl by --metrics. --against minutes sets what training bought
against what it took.
"""

import argparse
import pathlib

LABELS = {
    "val_bleu": "validation BLEU",
    "val_teacher_forced_bleu": "validation BLEU, true codes",
    "val_random_codes_bleu": "validation BLEU, random codes",
    "perplexity": "codebook perplexity",
    "code_nll": "predictor, nats per code",
    "token_nll": "decoder, nats per token",
    "val_reconstruction_bits_per_dim": "validation, bits/dim given the codes",
    "val_perplexity": "codebook perplexity, validation",
    "val_bits_per_symbol": "validation, bits per symbol",
    "val_bits_per_dim": "validation, bits/dim",
}
AXES = {
    "epoch": ("epoch", lambda line: line["epoch"]),
    "minutes": ("minutes of training", lambda line: line["training_seconds"] / 60),
}
# Distinguishable with any kind of colour vision, and in print.
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]


def named_run(text):
    name, equals, folder = text.partition("=")
    if not equals:
        name, folder = pathlib.Path(text).name, text
    if not (pathlib.Path(folder) / "metrics.jsonl").exists():
        raise argparse.ArgumentTypeError(
            f"{folder} has no metrics.jsonl: give the folder of a run"
        )
    return name, folder


def plot(runs, metrics, against, output):
    """Draws one panel a metric, one line a run, and writes the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from keras_vqem.training import RunFolder

    for _, folder in runs:
        names = {name for line in RunFolder(folder).metrics() for name in line}
        if not names & set(metrics):
            names = ", ".join(sorted(names)) or "nothing yet"
            raise ValueError(f"{folder} has none of the metrics. It has: {names}.")
    figure, axes = plt.subplots(
        1, len(metrics), figsize=(4.2 * len(metrics), 3.4), squeeze=False
    )
    label, position = AXES[against]
    for axis, metric in zip(axes[0], metrics, strict=True):
        for color, (name, folder) in zip(COLORS, runs, strict=False):
            lines = [m for m in RunFolder(folder).metrics() if metric in m]
            if not lines:  # an autoencoder has no bits of a prior
                continue
            axis.plot(
                [position(m) for m in lines],
                [m[metric] for m in lines],
                label=name,
                color=color,
                marker=".",
            )
        axis.set_title(LABELS.get(metric, metric), fontsize=10)
        axis.set_xlabel(label)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[0]:
        axis.legend(frameon=False, fontsize=9)
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150)
    plt.close(figure)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--run",
        type=named_run,
        action="append",
        required=True,
        metavar="NAME=FOLDER",
        help=f"up to {len(COLORS)}",
    )
    add(
        "--metrics",
        nargs="+",
        default=["val_bleu", "val_teacher_forced_bleu", "perplexity"],
    )
    add("--against", choices=list(AXES), default="epoch", help="(%(default)s)")
    add("--output", type=pathlib.Path, required=True, metavar="PNG")
    arguments = parser.parse_args(arguments)
    if len(arguments.run) > len(COLORS):
        parser.error(f"at most {len(COLORS)} runs in one picture")
    try:
        plot(arguments.run, arguments.metrics, arguments.against, arguments.output)
    except ValueError as error:
        parser.error(str(error))
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
