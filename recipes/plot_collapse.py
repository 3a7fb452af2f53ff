"""Draws the pictures of docs/guides/collapse.md: codebooks that collapse, and cures.

    python recipes/plot_collapse.py --output docs/pictures

A small autoencoder of generated images (shapes) is trained a few times, each time with
other settings of the bottleneck. collapse_perplexity.png shows the perplexity after
each epoch, collapse_worth.png what the codes are worth to the decoder: the error of
images rebuilt from their own codes beside that from random ones, the codes of other
patches. The numbers are printed. A run takes a few seconds.
"""

from pathlib import Path

from arguments import add_number, make_parser, user_errors
from comparison_contestants import scaled, to_patches

NUM_CODES = 128
DIM = 8
# Distinguishable with any kind of colour vision, and in print.
COLORS = ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"]


def settings(seed):
    """Returns the arguments of `VQEMBottleneck` of each run, by label."""
    import keras

    far = keras.initializers.RandomNormal(stddev=3.0, seed=seed)
    soft = {"num_samples": 10, "decay": 0.95}
    return {
        "codes from data, decay=0.95": {"decay": 0.95},
        "codes far from data": {"decay": 0.95, "initializer": far},
        "codes far from data, dead_code_threshold=0.05": {
            "decay": 0.95,
            "initializer": far,
            "dead_code_threshold": 0.05,
        },
        "codes from data, decay=0.999": {"decay": 0.999},
        "soft EM, temperature=0.03": {"temperature": 0.03, **soft},
        "soft EM, temperature=100": {"temperature": 100.0, **soft},
    }


def train(options, images, test, arguments):
    """Trains an autoencoder, and returns perplexities and errors."""
    import keras
    import numpy as np

    from keras_vqem.layers import VQEMBottleneck

    keras.utils.set_random_seed(options.seed)
    bottleneck = VQEMBottleneck(NUM_CODES, seed=options.seed, **arguments)
    encoder = keras.Sequential(
        [
            keras.Input(images.shape[1:]),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(DIM),
        ]
    )
    decoder = keras.Sequential(
        [
            keras.Input((*images.shape[1:3], DIM)),
            keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
            keras.layers.Dense(images.shape[-1]),
        ]
    )
    inputs = encoder.inputs[0]
    outputs = decoder(bottleneck(encoder(inputs))["quantized"])
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(0.003), "mse")
    fit = {"batch_size": 32, "epochs": options.epochs, "verbose": 0}
    history = model.fit(images, images, **fit).history
    codes = np.asarray(bottleneck.encode(encoder(test)))
    # Codes of other patches: codes that are not in use would say nothing about use.
    shuffled = np.random.default_rng(options.seed).permutation(codes.ravel())
    own, other = (
        float(np.mean((np.asarray(decoder(bottleneck.decode(found))) - test) ** 2))
        for found in (codes, shuffled.reshape(codes.shape))
    )
    return {"perplexity": history["perplexity"], "own": own, "random": other}


def plot_perplexity(path, runs):
    from matplotlib import pyplot as plt

    figure, panel = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    for color, (label, run) in zip(COLORS, runs.items(), strict=False):
        epochs = range(1, len(run["perplexity"]) + 1)
        panel.plot(epochs, run["perplexity"], ".-", color=color, label=label)
    panel.axhline(NUM_CODES, color="0.6", linestyle=":")
    panel.set(xlabel="epoch", ylabel=f"perplexity, at most {NUM_CODES}", ylim=0)
    panel.set_title("Effective number of codes in use")
    panel.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    finish(figure, panel, path)


def plot_worth(path, runs, baseline):
    from matplotlib import pyplot as plt

    figure, panel = plt.subplots(figsize=(8.5, 3.4), layout="constrained")
    for place, run in enumerate(runs.values()):
        own = panel.barh(place - 0.2, run["own"], 0.38, color="#0072b2")
        random = panel.barh(place + 0.2, run["random"], 0.38, color="#e69f00")
    mean = panel.axvline(baseline, color="0.4", linestyle=":")
    labels = ["true codes", "random codes", "the mean image"]
    panel.legend(
        [own, random, mean], labels, loc="center left", bbox_to_anchor=(1, 0.5)
    )
    panel.set(yticks=range(len(runs)), yticklabels=list(runs))
    panel.set_xlabel("test error of images rebuilt from codes")
    panel.invert_yaxis()
    finish(figure, panel, path)


def finish(figure, panel, path):
    from matplotlib import pyplot as plt

    from keras_vqem.files import replacing

    panel.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=100)
    plt.close(figure)


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    folder_help = "folder for the two pictures (default: out)"
    folder = Path("out")
    add("--output", type=Path, default=folder, metavar="DIR", help=folder_help)
    add_number(parser, "--epochs", 10, "number of epochs of each run")
    add_number(parser, "--images", 1024, "number of training images")
    add_number(parser, "--seed", 0, "seed of weights, batches and codes", type=int)
    options = parser.parse_args(arguments)

    import matplotlib

    from keras_vqem.evaluation.markdown import markdown_table
    from keras_vqem.images import shapes

    matplotlib.use("Agg")
    images, test = (
        scaled(to_patches(shapes.images(count, split=split)[0]))
        for count, split in ((options.images, "train"), (256, "test"))
    )
    runs, rows = {}, []
    chosen = settings(options.seed)
    for number, (label, given) in enumerate(chosen.items(), 1):
        print(f"run {number} of {len(chosen)}: {label}", flush=True)
        run = runs[label] = train(options, images, test, given)
        worth = 1 - run["own"] / run["random"]
        rows.append([label, f"{run['perplexity'][-1]:.1f}", f"{run['own']:.4f}"])
        rows[-1] += [f"{run['random']:.4f}", f"{worth:.0%}"]
    baseline = float(test.var(axis=0).mean())
    plot_perplexity(options.output / "collapse_perplexity.png", runs)
    plot_worth(options.output / "collapse_worth.png", runs, baseline)
    names = ["", "perplexity", "error, true codes", "error, random codes", "worth"]
    print(markdown_table(names, rows))
    print(f"the mean image has an error of {baseline:.4f}")


if __name__ == "__main__":
    main()
