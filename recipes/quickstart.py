"""A codebook of moving averages learns by EM: the theory of the paper in a picture.

Roy et al. 2018 (arXiv:1805.11063, sections 2 and 3) interpret the bottleneck of a
VQ-VAE as EM for a mixture of Gaussians. Nearest codes and moving averages are hard EM,
that is k-means; draws from the posterior over codes make it Monte-Carlo soft EM. Here
both run on points in the plane, without an encoder: only the codebook learns. From the
same start, `VQEMBottleneck(K)` is compared with Lloyd's k-means, and
`VQEMBottleneck(K, num_samples=m)` with 1 and 10 draws with exact soft EM.

    python recipes/quickstart.py

It took 10 to 15 seconds on two cores, and both end where their exact counterparts end.
EM has many local optima, so batches sometimes lead elsewhere: of seeds 0 to 9, hard EM
came within 1 % of the inertia of k-means with 8, and soft EM within 1 % of exact soft
EM with 8 (one draw) and 9 (ten draws).
"""

import importlib.util
import json
import os
import time
from pathlib import Path

import numpy as np
from arguments import add_number, make_parser, user_errors

NUM_CODES = 16
TEMPERATURE = 1.0
BATCH_SIZE = 500
DECAY = 0.95  # Averages over about 20 batches; the paper's 0.999 is for long training.
TOLERANCE = 0.01  # Inertias that differ by less count as the same.


def make_points(count, rng):
    """Draws from 16 Gaussians around a 4 x 4 grid, with spreads of 0.25 to 0.9."""
    grid = np.array([(x, y) for y in range(4) for x in range(4)]) - 1.5
    centres = 3.0 * grid + rng.normal(scale=0.4, size=grid.shape)
    spreads = rng.permutation(np.geomspace(0.25, 0.9, len(grid)))
    which = rng.integers(len(grid), size=count)
    noise = rng.normal(size=(count, 2))
    return (centres[which] + spreads[which, None] * noise).astype("float32")


def squared_distances(points, codebook):
    return np.square(points[:, None] - codebook).sum(axis=-1)


def inertia(points, codebook):
    """Returns the mean squared distance from points to their nearest codes."""
    return squared_distances(points, codebook).min(axis=-1).mean()


def spread_start(points, rng):
    """Returns first codes by k-means++: points drawn by squared distance to others."""
    codes = rng.choice(points, 1)
    while len(codes) < NUM_CODES:
        weights = squared_distances(points, codes).min(axis=-1).astype("float64")
        new = rng.choice(points, 1, p=weights / weights.sum())
        codes = np.concatenate([codes, new])
    return codes


def posterior(points, codebook, temperature):
    """Returns the posterior [N, K] over codes; with T = 0 the nearest code gets 1."""
    distances = squared_distances(points, codebook)
    distances -= distances.min(axis=-1, keepdims=True)
    shares = np.exp(-distances / max(temperature, 1e-12))
    return shares / shares.sum(axis=-1, keepdims=True)


def exact_em(points, start, temperature, smallest_move=1e-5, most_steps=2000):
    """Runs EM over all points (T = 0: k-means); returns codebooks [steps + 1, K, 2]."""
    points, path = points.astype("float64"), [start.astype("float64")]
    for _ in range(most_steps):
        shares = posterior(points, path[-1], temperature)
        counts = shares.sum(axis=0)[:, None]
        means = shares.T @ points / np.maximum(counts, 1e-30)
        path.append(np.where(counts > 0, means, path[-1]))
        if np.abs(path[-1] - path[-2]).max() <= smallest_move:
            break
    return np.array(path)


def streamed_em(points, start, steps, seed, num_samples):
    """Runs EM with a `VQEMBottleneck` over batches; returns [steps + 1, K, 2]."""
    import keras
    import tensorflow as tf

    import keras_vqem

    layer = keras_vqem.layers.VQEMBottleneck(
        NUM_CODES,
        num_samples=num_samples,
        temperature=TEMPERATURE,
        decay=DECAY,
        initializer=keras.initializers.Constant(start[None]),
        seed=seed,
    )

    # In an autoencoder `model.fit` does this. Here only the codebook learns, which
    # needs no gradient: calling the layer is the whole training step.
    @tf.function
    def step(batch):
        layer(batch, training=True)
        return tf.convert_to_tensor(layer.codebook)[0]

    rng = np.random.default_rng(seed)
    passes = range(-(-steps * BATCH_SIZE // len(points)))
    order = np.concatenate([rng.permutation(len(points)) for _ in passes])
    batches = order[: steps * BATCH_SIZE].reshape(steps, BATCH_SIZE)
    return np.array([start, *(step(points[batch]).numpy() for batch in batches)])


def measure(method, points, temperature, train, exact=None):
    """Trains and returns a row of the table; `exact` is the exact counterpart's row."""
    from keras_vqem.layers.bottlenecks.code_metrics import perplexity

    began = time.perf_counter()
    path = train()
    seconds = time.perf_counter() - began
    codebook, target = path[-1], path[-1] if exact is None else exact["path"][-1]
    use = posterior(points, codebook, temperature).mean(axis=0)
    # At an optimum, exact EM does not move any further.
    onward = exact_em(points, codebook, temperature)[-1]
    return {
        "method": method,
        "steps": len(path) - 1,
        "inertia": inertia(points, codebook),
        "relative": inertia(points, codebook) / inertia(points, target),
        "off": np.sqrt(squared_distances(target, codebook).min(axis=-1)).mean(),
        "perplexity": float(perplexity(use)),
        "seconds": seconds,
        "onward": inertia(points, onward) / inertia(points, codebook),
        "path": path,
    }


def report(rows):
    """Prints the table and its interpretation."""
    print(f"\n{'':17}  steps  inertia  vs exact  codes off  perplexity  seconds")
    line = "{method:17}  {steps:5}  {inertia:7.4f}  {relative:8.4f}  {off:9.4f}  "
    line += "{perplexity:10.2f}  {seconds:7.2f}"
    print(*(line.format(**row) for row in rows), sep="\n")
    print("\ninertia: mean squared distance to the nearest code. codes off: mean")
    print("distance from an exact code to the nearest. seconds: with compilation.")
    print("\nWhat to see:")
    _, hard, _, few, many = rows
    for row, exact in [(hard, "k-means"), (few, "exact EM"), (many, "exact EM")]:
        verdict = f"the same within {TOLERANCE:.0%}."
        if abs(row["relative"] - 1) > TOLERANCE:
            verdict = f"not {verdict}\n  Exact EM from there changes inertia by "
            settled = abs(row["onward"] - 1) <= TOLERANCE
            where = "another local optimum" if settled else "it is still on its way"
            verdict += f"{row['onward'] - 1:+.2%}: {where}."
        gap = f"{row['relative']:.4f} times the inertia of {exact}"
        print(f"- {row['method']}: {gap}, {verdict}")
    nearer = "nearer" if many["off"] < few["off"] else "not nearer"
    ends = f"{few['off']:.4f} from exact ones with 1 draw, {many['off']:.4f} with 10"
    print(f"- Soft codes end {ends}:\n  {nearer} with more draws.")


def draw(points, rows):
    """Returns a figure of the paths of the codebooks and the inertia per method."""
    # Without pyplot, a bare Figure needs no window system.
    from matplotlib.figure import Figure

    blue, orange, pink, dark = "#0072b2", "#d55e00", "#cc79a7", "#222222"
    lloyd, hard, soft, _, many = rows
    figure = Figure(figsize=(16, 6.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    plain = {"frameon": False, "fontsize": 12}
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01), "ncols": 3, **plain}
    maps = [(left, hard, lloyd, blue), (middle, many, soft, orange)]
    for axes, row, exact, colour in maps:
        path, end = row["path"], exact["path"][-1]
        axes.scatter(*points.T, s=4, color="#c8c8c8", linewidths=0)
        axes.plot(*path.transpose(2, 0, 1), color=colour, linewidth=1.4)
        axes.plot(*path[0].T, "o", color=dark, mfc="white", ms=5, label="start")
        axes.plot(*path[-1].T, "o", color=colour, mec="white", ms=9, label="end")
        axes.plot(*end.T, "+", color=dark, ms=12, mew=1.5, label=exact["method"])
        axes.legend(**below)
        axes.set(box_aspect=1, xticks=[], yticks=[], title=row["method"])
        axes.set_aspect("equal", adjustable="datalim")
    batch = BATCH_SIZE / len(points)
    colours, styles = [blue, blue, orange, pink, orange], [":o", "-", ":o", "-", "-"]
    for row, colour, style in zip(rows, colours, styles, strict=True):
        steps = np.unique(np.geomspace(1, row["steps"] + 1, 80).astype(int) - 1)
        values = [inertia(points, row["path"][step]) for step in steps]
        passes = steps * (batch if style == "-" else 1)
        right.plot(passes, values, style, color=colour, ms=3.5, label=row["method"])
    right.set_xscale("symlog", linthresh=batch)
    right.set(box_aspect=1, title="Inertia", xlabel="passes over the points")
    right.legend(**plain)
    return figure


def write(path, fill):
    """Calls `fill` to write a file beside `path`, which then replaces `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        fill(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    help = "folder for the picture (default: out)"
    add("--output", type=Path, default="out", metavar="DIR", help=help)
    add("--json", type=Path, metavar="FILE", help="file for the table, as JSON")
    add_number(parser, "--points", 4000, "number of points")
    add_number(parser, "--steps", 2000, "number of batches per layer")
    add_number(parser, "--seed", 0, "seed of points, start, batches and draws", int)
    options = parser.parse_args(arguments)
    if options.points < NUM_CODES:
        parser.error(f"--points must be at least {NUM_CODES}")
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("matplotlib is missing: pip install '.[recipes]' in a checkout")

    import keras_vqem

    rng, t = np.random.default_rng(options.seed), TEMPERATURE
    points = make_points(options.points, rng)
    start = spread_start(points, rng)
    sizes = f"{len(points)} points, {NUM_CODES} codes, batches of {BATCH_SIZE}"
    print(f"keras_vqem {keras_vqem.__version__}: {sizes}, decay {DECAY}, T = {t}")
    args = (points, start, options.steps, options.seed)
    lloyd = measure("Lloyd's k-means", points, 0, lambda: exact_em(points, start, 0))
    hard = measure("Hard EM", points, 0, lambda: streamed_em(*args, None), lloyd)
    soft = measure("Exact soft EM", points, t, lambda: exact_em(points, start, t))
    few = measure("Soft EM, 1 draw", points, t, lambda: streamed_em(*args, 1), soft)
    many = measure("Soft EM, 10 draws", points, t, lambda: streamed_em(*args, 10), soft)
    rows = [lloyd, hard, soft, few, many]
    report(rows)

    picture = options.output / "quickstart.png"
    write(picture, draw(points, rows).savefig)
    if options.json:
        table = [{k: v for k, v in row.items() if k != "path"} for row in rows]
        text = json.dumps(table, indent=2, default=float) + "\n"
        write(options.json, lambda file: file.write_text(text))
    print(f"\nPaths of the codebooks: {picture}\n")
    print("Next: the first snippet of README.md puts the layer into an autoencoder;")
    print("`make test` checks the installation; `make bench` measures speed.")


if __name__ == "__main__":
    main()
