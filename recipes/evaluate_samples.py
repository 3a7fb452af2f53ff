"""Measures how much the samples of an image model are like real images.

    python recipes/evaluate_samples.py --classifier runs/classifier \\
        --model cifar10_em_pixels --data data --num-samples 1000 --json out/samples.json

The classifier is one of train_feature_classifier.py. Each row of the table compares
images with the same training images: the Frechet distance of their features (lower is
better), precision (how many look like training images) and recall (how many training
images are like one of them). Real test images are the floor: no sample can be expected
to be closer. Where labels are known, accuracy is the share of images that the
classifier takes for what they should show. With --pixels, an ImageTransformer draws as
many images, which takes much longer.

The Frechet distance is not the published FID: the features are those of this
classifier, and it also depends on the numbers of images. It compares the rows of a
table.
"""

import functools
from pathlib import Path

from arguments import add_number, make_parser, user_errors
from image_arguments import (
    add_image_model_arguments,
    add_sampling_arguments,
    image_data,
    sampling_options,
)


def drawn(sample, count, batch_size, seed, labels=None):
    """Returns `count` samples, batch by batch.

    Args:
        sample: Function `sample(count, seed, **labels)` that returns images.
        count: Number of images.
        batch_size: Number of images that are drawn at once.
        seed: Integer.
        labels: Integers `[count]`, or None.
    """
    import numpy as np
    import tensorflow as tf

    size = min(batch_size, count)

    def draw(seed, **given):
        return sample(size, seed, **given)

    graph = tf.function(draw, autograph=False)
    parts = []
    for number, first in enumerate(range(0, count, size)):
        given = {}
        if labels is not None:
            # The last batch is filled with the first labels.
            own = np.take(labels, range(first, first + size), mode="wrap")
            given["labels"] = tf.constant(own, "int32")
        parts.append(np.asarray(graph(tf.constant([seed, number]), **given)))
        print(f"{min(first + size, count):,} of {count:,} drawn", flush=True)
    return np.concatenate(parts)[:count]


def rows_of(options, model, pixels, images, labels):
    """Returns images and labels, or None for these, of the rows of the table."""
    import numpy as np

    from keras_vqem.evaluation.image_bits import parts
    from keras_vqem.models import ImageVQVAE

    count = options.num_samples
    rows = {"test images": (images, labels)}
    found = [model.reconstruct(part) for part in parts(images, options.batch_size)]
    rows["their reconstructions"] = np.concatenate(found), labels
    chosen, wanted = sampling_options(options), None
    by_codes = isinstance(model, ImageVQVAE)
    if "top_p" in chosen and not by_codes:
        raise ValueError(
            f"--top-p is for codes, and {options.model} has none. Leave it out."
        )
    if by_codes and model.prior is not None and model.prior.num_classes is not None:
        wanted = np.arange(count) % model.prior.num_classes

    settings = (count, options.batch_size, options.seed)
    if not by_codes or model.prior is not None:
        sample = functools.partial(model.sample, **chosen)
        rows["samples"] = drawn(sample, *settings, wanted), wanted
    if pixels is not None:
        sample = functools.partial(pixels.sample, **chosen)
        rows["samples of the ImageTransformer"] = drawn(sample, *settings), None
    return rows


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    help = "run of train_feature_classifier.py, .keras file or preset"
    add("--classifier", required=True, metavar="RUN", help=help)
    add_image_model_arguments(parser)
    add("--pixels", metavar="RUN", help="run of train_image_transformer.py")
    help = "number of images per row of the table"
    add_number(parser, "--num-samples", 1000, help)
    help = "number of training images that they are compared with"
    add_number(parser, "--reference-images", 10_000, help)
    add_sampling_arguments(parser)
    add_number(parser, "--seed", 0, "seed of samples", int)
    add_number(parser, "--batch-size", 100, "number of images per batch")
    add("--json", type=Path, metavar="FILE", help="file for all numbers, as JSON")
    options = parser.parse_args(arguments)

    from keras_vqem.evaluation import sample_quality
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json
    from keras_vqem.models import (
        ImageClassifier,
        ImageTransformer,
        ImageVAE,
        ImageVQVAE,
    )
    from keras_vqem.models.loading import load_model, load_with_prior

    classifier = load_model(options.classifier, ImageClassifier)
    model = load_with_prior(options.model, options.prior, ImageVQVAE, ImageVAE)
    pixels = options.pixels and load_model(options.pixels, ImageTransformer)
    data, count = image_data(options), options.num_samples
    images = data.images("test")[:count]
    reference = data.images("train")[: options.reference_images]
    if len(images) < count:
        raise ValueError(
            f"There are {len(images)} test images, and rows of the table must have "
            f"as many each. Pass --num-samples {len(images)} or less."
        )
    labels = data.labels("test")[:count] if data.class_names else None
    rows = rows_of(options, model, pixels, images, labels)

    features, _ = sample_quality.features_and_classes(classifier, reference)
    report = {}
    for name, (images, labels) in rows.items():
        own, classes = sample_quality.features_and_classes(classifier, images)
        precision, recall = sample_quality.precision_recall(features, own)
        report[name] = {
            "frechet": sample_quality.frechet_distance(features, own),
            "precision": precision,
            "recall": recall,
        }
        if labels is not None:
            report[name]["accuracy"] = float((classes == labels).mean())
    print(
        f"\n{count:,} images per row, compared with {len(reference):,} training images "
        f"by features of {options.classifier} (not the published FID)\n"
    )
    print("| | Frechet distance | precision | recall | accuracy |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, found in report.items():
        accuracy = f"{found['accuracy']:.3f}" if "accuracy" in found else ""
        print(
            f"| {name} | {found['frechet']:.2f} | {found['precision']:.3f} | "
            f"{found['recall']:.3f} | {accuracy} |"
        )
    if options.json:
        settings = {k: str(v) for k, v in vars(options).items()}
        write_json(
            options.json, {"settings": settings, "rows": report, **environment()}
        )


if __name__ == "__main__":
    main()
