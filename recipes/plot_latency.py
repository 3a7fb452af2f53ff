"""Plots BLEU against latency, a point per row of evaluate_translation.py.

    python recipes/evaluate_translation.py --data data/mine --split test \\
        --model runs/teacher --model runs/latent --num-beams 1 4 --json out/mine.json
    python recipes/plot_latency.py --evaluation out/mine.json --output out/latency.png

There is one panel for each size of batch that was measured, and one colour for each
model; its rows, such as numbers of beams, are joined by a line. Up and to the left is
better. --names gives models other names in the picture: runs/latent="codes, n_c = 3".
"""

from pathlib import Path

from arguments import make_parser, user_errors
from plot_runs import COLORS


def renaming(text):
    """Returns the name of a model and its new name, from "NAME=NEW NAME"."""
    return tuple(text.split("=", 1)) if "=" in text else (text, text)


def plot(entries, names, output):
    """Draws the picture and writes it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib import ticker

    sizes = list(entries[0]["latency"])
    models = list(dict.fromkeys(entry["translator"] for entry in entries))
    figure, axes = plt.subplots(
        1, len(sizes), figsize=(5.2 * len(sizes), 3.8), squeeze=False, sharey=True
    )
    for axis, size in zip(axes[0], sizes, strict=True):
        for number, model in enumerate(models):
            rows = [entry for entry in entries if entry["translator"] == model]
            times = [row["latency"][size]["median_ms"] for row in rows]
            scores = [row["bleu"] for row in rows]
            label = names.get(model, model)
            color = COLORS[number % len(COLORS)]
            axis.plot(times, scores, marker="o", color=color, label=label)
            for row, time, score in zip(rows, times, scores, strict=True):
                way = row["name"].removeprefix(model).strip(", ")
                # In turns below and above: two models may be close to each other.
                offset = (6, -11) if number % 2 == 0 else (-6, 7)
                place = {"xytext": offset, "textcoords": "offset points"}
                axis.annotate(way, (time, score), fontsize=8, color=color, **place)
        axis.set_xscale("log")
        unit = "sentence" if size == "1" else f"batch of {size}"
        axis.set_xlabel(f"median milliseconds per {unit}")
        axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(ticker.NullFormatter())
        axis.grid(alpha=0.3)
        axis.margins(x=0.2, y=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("BLEU")
    axes[0][0].legend(frameon=False, fontsize=9, loc="best")
    figure.tight_layout()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150)
    plt.close(figure)


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add, file = parser.add_argument, {"type": Path, "required": True}
    help = "JSON file of evaluate_translation.py"
    add("--evaluation", **file, metavar="FILE", help=help)
    add("--output", **file, metavar="PNG", help="PNG file to write")
    rename = {"type": renaming, "nargs": "+", "default": [], "metavar": "NAME=NEW"}
    add("--names", **rename, help="other names for models (default: their own)")
    options = parser.parse_args(arguments)

    from keras_vqem.files import read_json

    entries = read_json(options.evaluation).get("entries")
    if not entries or "bleu" not in entries[0]:
        raise ValueError(
            f"{options.evaluation} has no BLEU and latency; pass what "
            f"evaluate_translation.py --json wrote."
        )
    names, models = dict(options.names), {entry["translator"] for entry in entries}
    if unknown := sorted(set(names) - models):
        raise ValueError(
            f"--names has {', '.join(unknown)}, but the models are "
            f"{', '.join(sorted(models))}."
        )
    plot(entries, names, options.output)
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
