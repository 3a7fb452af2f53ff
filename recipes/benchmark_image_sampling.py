"""Measures how long it takes to draw an image: codes and pixels, or pixel by pixel.

    python recipes/benchmark_image_sampling.py --model runs/image_em_pixels \\
        --pixels runs/pixels --json out/sampling.json

In turns, in one process: an autoencoder with its prior, whose pixels are drawn group by
group (GroupedPixels); the same without groups, where pixels are the expected ones; the
prior alone; and an ImageTransformer, which draws every number of an image after the
other. Without --pixels that is a new one of the size that train_image_transformer.py
trains, as speed does not depend on weights.
"""

from pathlib import Path

from arguments import add_number, make_parser, positive, user_errors

# The defaults of train_image_transformer.py.
SIZES = {
    "hidden_dim": 96,
    "num_layers": 2,
    "num_heads": 4,
    "intermediate_dim": 192,
    "block_length": 96,
}


def samplers(model, pixels):
    """Returns functions from a number of images and a seed to an array, by name."""
    from keras_vqem.layers import GroupedPixels

    found = {}
    if isinstance(model.likelihood, GroupedPixels):
        found["codes, then pixels group by group"] = model.sample
    found |= {
        "codes, then expected pixels of a likelihood without groups": without(
            model
        ).sample,
        "codes alone": model.prior.sample,
        "Image Transformer, number by number": pixels.sample,
    }
    return found


def without(model):
    """Returns the model without groups, not trained."""
    inner = getattr(model.likelihood, "likelihood", None)
    return model if inner is None else model.with_likelihood(inner)


def drawing(sample, count):
    """Returns a function that draws other images in each call, in one graph."""
    import itertools

    import tensorflow as tf

    graph = tf.function(lambda seed: sample(count, seed), autograph=False)
    numbers = itertools.count()
    return lambda: graph(tf.constant([next(numbers), 0])).numpy()


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    help = "image model with a prior: run, .keras file or preset"
    add("--model", required=True, metavar="RUN", help=help)
    help = "run of train_image_prior.py (default: the prior of the model)"
    add("--prior", metavar="RUN", help=help)
    add("--pixels", metavar="RUN", help="run of train_image_transformer.py")
    help = "numbers of images to draw at once (default: 1 16)"
    add("--images", type=positive, nargs="+", default=[1, 16], metavar="N", help=help)
    add_number(parser, "--rounds", 5, "number of timed calls per way")
    add("--json", type=Path, metavar="FILE", help="file for all numbers, as JSON")
    options = parser.parse_args(arguments)

    from keras_vqem.evaluation import latency
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json
    from keras_vqem.models import ImageTransformer, ImageVQVAE
    from keras_vqem.models.loading import load_model, load_with_prior

    model = load_with_prior(options.model, options.prior, ImageVQVAE)
    if model.prior is None:
        raise ValueError(
            f"{options.model} has no prior to draw codes from. Pass --prior."
        )
    if options.pixels:
        pixels = load_model(options.pixels, ImageTransformer)
    else:
        pixels = ImageTransformer(*model.image_size, **SIZES)
    ways, report = samplers(model, pixels), {}
    for count in options.images:
        functions = {name: drawing(sample, count) for name, sample in ways.items()}
        found = latency.measure(functions, options.rounds, warmup=1)
        report[count] = {name: time._asdict() for name, time in found.items()}
        slowest = list(found.values())[-1].median_ms
        print(f"{count} at once\n\n| | seconds per image | times as fast |")
        print("| --- | ---: | ---: |")
        for name, time in found.items():
            seconds = time.median_ms / 1000 / count
            print(f"| {name} | {seconds:.4f} | {slowest / time.median_ms:.1f} |")
        print(flush=True)
    if options.json:
        settings = {k: str(v) for k, v in vars(options).items()}
        write_json(
            options.json, {"settings": settings, "images": report, **environment()}
        )


if __name__ == "__main__":
    main()
