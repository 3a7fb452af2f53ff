"""Measures bits per dimension of an image model on test images, and their parts.

    python recipes/evaluate_images.py --model runs/image_em \\
        --prior runs/image_em_prior --data data --json out/image_em.json

The table has one row per prior: uniform (every code costs the same), unigram (the
frequencies of codes in the training set, of each slot or of each slot and cell) and the
trained one. Totals are valid bounds, computed with the codes that would be sent. Below
the table is the accounting of the paper, which is not a bound. A prior with classes is
told the labels of the images: its bits, and their total, are conditional on the class.
For a VAE the table has the ELBO and the importance-weighted bound, for an
ImageTransformer its exact bits.
"""

import dataclasses
from pathlib import Path

from arguments import add_number, make_parser, positive, user_errors
from image_arguments import add_image_model_arguments, image_data


def evaluate_codes(options, model, train, images, labels):
    """Returns the rows of the table, one `ImageBits` per prior, and notes below it."""
    import math

    from keras_vqem.evaluation import image_bits
    from keras_vqem.layers import VQEMBottleneck

    num_codes = model.bottleneck.num_codes
    priors = {"uniform prior": image_bits.UniformPrior(num_codes)}
    if train is not None:
        codes = image_bits.encode(model, train)
        priors["unigram prior"] = image_bits.UnigramPrior(codes, num_codes)
        by_cell = image_bits.UnigramPrior(codes, num_codes, per_cell=True)
        priors["unigram prior per cell"] = by_cell
    notes = []
    em = isinstance(model.bottleneck, VQEMBottleneck)
    samples = model.bottleneck.num_samples if em else None
    if model.prior is not None:
        priors["predictor"] = image_bits.PredictorPrior(model.prior)
    if labels is not None:
        number = model.prior.num_classes
        sent = math.log2(number) / math.prod(images.shape[1:])
        notes.append(
            f"the predictor is told which of {number} classes an image has: its bits "
            f"and the total are conditional on the class. A bound without that has to "
            f"send the class too, for at most {sent:.4f} more."
        )
    if model.prior is not None and samples and not options.bound_only:
        total, reconstruction, prior = image_bits.paper_accounting(
            model,
            images,
            model.prior,
            samples,
            batch_size=options.batch_size,
            labels=labels,
        )
        notes.append(
            f"the paper's accounting ({samples} draws, not a bound): {total:.3f} = "
            f"{reconstruction:.3f} + {prior:.3f}"
        )
    size = options.batch_size
    rows = image_bits.evaluate_priors(model, images, priors, size, labels)
    return rows, notes


def evaluate(options, model, train, images, labels):
    from keras_vqem.evaluation import image_bits
    from keras_vqem.models import ImageTransformer, ImageVQVAE

    if isinstance(model, ImageTransformer):
        dataset = {"images": images}
        model.compile()
        size = min(options.batch_size, 8)  # There are 256 logits per number.
        bits = model.evaluate(dataset, batch_size=size, verbose=0, return_dict=True)
        bits = bits["bits_per_dim"]
        nan = float("nan")
        found = image_bits.ImageBits(bits, bits, 0.0, nan, nan, nan, len(images))
        return {"exact": found}, []
    if isinstance(model, ImageVQVAE):
        return evaluate_codes(options, model, train, images, labels)
    number, size = options.importance_samples, {"batch_size": options.batch_size}
    return {
        "ELBO": image_bits.gaussian_bound(model, images, **size),
        f"{number} importance samples": image_bits.gaussian_bound(
            model, images, number, **size
        ),
    }, []


def cell(value):
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value != value else f"{value:.3f}"


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    add_image_model_arguments(parser)
    add("--split", default="test", help="split to measure (default: test)")
    help = "number of images of the split (default: all)"
    add("--images", type=positive, metavar="N", help=help)
    add_number(parser, "--batch-size", 100, "number of images per batch")
    help = "number of training images for the unigram prior; 0 leaves it out"
    add_number(parser, "--unigram-images", 10_000, help, int)
    help = "leave out the accounting of the paper"
    add("--bound-only", action="store_true", help=help)
    help = "number of samples per image in the importance-weighted bound"
    add_number(parser, "--importance-samples", 20, help)
    add("--json", type=Path, metavar="FILE", help="file for all numbers, as JSON")
    options = parser.parse_args(arguments)
    if options.unigram_images < 0:
        parser.error("--unigram-images must not be negative")

    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json
    from keras_vqem.models import ImageTransformer, ImageVAE, ImageVQVAE
    from keras_vqem.models.loading import load_with_prior

    model = load_with_prior(
        options.model, options.prior, ImageVQVAE, ImageTransformer, ImageVAE
    )
    data = image_data(options)
    images = data.images(options.split)[: options.images]
    counted = options.unigram_images if isinstance(model, ImageVQVAE) else 0
    train = data.images("train")[:counted] if counted else None
    labels, prior = None, getattr(model, "prior", None)
    if prior is not None and prior.num_classes is not None:
        labels = data.labels(options.split)[: options.images]
    rows, notes = evaluate(options, model, train, images, labels)

    fields = [field.name for field in dataclasses.fields(next(iter(rows.values())))]
    print(f"{options.model}: {model.count_params():,} parameters\n")
    print(f"| | {' | '.join(fields)} |")
    print(f"| --- |{' ---: |' * len(fields)}")
    for name, row in rows.items():
        cells = " | ".join(cell(value) for value in dataclasses.astuple(row))
        print(f"| {name} | {cells} |")
    print("", *notes, sep="\n")
    if options.json:
        report = {
            "settings": {k: str(v) for k, v in vars(options).items()},
            "parameters": model.count_params(),
            "rows": {
                name: {k: v for k, v in dataclasses.asdict(row).items() if v == v}
                for name, row in rows.items()
            },
            "notes": notes,
            **environment(),
        }
        write_json(options.json, report)


if __name__ == "__main__":
    main()
