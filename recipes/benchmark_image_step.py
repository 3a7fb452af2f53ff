"""Measures the time of each part of a training step of an image autoencoder.

    python recipes/benchmark_image_step.py --model runs/image_em --data data

Compressor, bottleneck (E and M step), decompressor and likelihood are timed
separately, forward and backward, in turns with the whole step. Shares are relative to
the sum of the parts.
"""

from pathlib import Path

from arguments import add_number, make_parser, user_errors
from image_arguments import add_image_data_arguments, image_data


def parts(model, images):
    """Returns functions to time: the whole step, then its parts with gradients."""
    import tensorflow as tf

    def graph(layers, forward, *wanted):
        """Computes `forward(*wanted)` and its gradients.

        These are with respect to `wanted` and to the weights of the layers.
        """
        weights = [w.value for layer in layers for w in layer.trainable_weights]

        @tf.function(autograph=False)
        def run():
            with tf.GradientTape() as tape:
                for x in wanted:
                    tape.watch(x)
                found = [forward(*wanted), [layer.losses for layer in layers]]
                loss = sum(tf.reduce_sum(x) for x in tf.nest.flatten(found))
            gradients = tape.gradient(loss, [*wanted, *weights])
            return [g for g in gradients if g is not None]

        return lambda: [x.numpy() for x in run()]

    images = tf.constant(images)
    scaled = tf.cast(images, tf.float32) / 127.5 - 1.0
    vectors = tf.constant(model.compressed(images))
    found = model({"images": images})
    outputs, base = (tf.constant(found[name]) for name in ("outputs", "base"))
    quantized = tf.constant(found["quantized"])
    iterator = iter(tf.data.Dataset.from_tensors({"images": images}).repeat())
    model.compile()
    model.make_train_function()
    return {
        "whole step": lambda: {
            k: v.numpy() for k, v in model.train_function(iterator).items()
        },
        # A training step computes no gradient with respect to the images.
        "compressor": graph([model.compressor], lambda: model.compressor(scaled)),
        "bottleneck": graph(
            [model.bottleneck],
            lambda x: model.bottleneck(x, training=True)["quantized"],
            vectors,
        ),
        "decompressor": graph(
            [model.decompressor, model.head],
            lambda x: model.head(model.decompressor(x)[0]),
            quantized,
        ),
        "likelihood": graph(*likelihood(model, images), outputs, base),
    }


def likelihood(model, images):
    """Returns layers of the likelihood, and what a training step computes with it."""
    from keras_vqem.layers import GroupedPixels

    pixels = model.likelihood
    if not isinstance(pixels, GroupedPixels):
        return [], lambda outputs, base: pixels.log_prob(outputs, images, base)

    def estimate(outputs, base):
        groups = pixels.draw_groups(len(images))
        return pixels.estimate(outputs, images, groups, base)

    return [pixels], estimate


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add = parser.add_argument
    model_help = "run of train_image_autoencoder.py, .keras file or preset"
    add("--model", required=True, metavar="RUN", help=model_help)
    add_image_data_arguments(parser)
    add_number(parser, "--batch-size", 64, "number of images per step")
    add_number(parser, "--rounds", 20, "number of timed calls per part")
    add("--json", type=Path, metavar="FILE", help="file for all numbers, as JSON")
    options = parser.parse_args(arguments)

    from keras_vqem.evaluation import latency
    from keras_vqem.evaluation.environment import environment
    from keras_vqem.files import write_json
    from keras_vqem.models import ImageVAE, ImageVQVAE
    from keras_vqem.models.loading import load_model

    model = load_model(options.model, ImageVQVAE, ImageVAE)
    images = image_data(options).images("val")[: options.batch_size]
    whole, *times = latency.measure(parts(model, images), options.rounds).items()
    total = sum(time.median_ms for _, time in times)
    shares = {name: time.median_ms / total for name, time in times}
    print(f"{len(images)} images per step\n")
    print("| | median ms | share |\n| --- | ---: | ---: |")
    for name, time in times:
        print(f"| {name} | {time.median_ms:.1f} | {shares[name]:.1%} |")
    print(f"| sum of these | {total:.1f} | |")
    speed = 1000 * len(images) / whole[1].median_ms
    print(f"| whole step | {whole[1].median_ms:.1f} | {speed:.0f} images/s |")
    if options.json:
        report = {
            "settings": {k: str(v) for k, v in vars(options).items()},
            "milliseconds": {k: v._asdict() for k, v in dict([whole, *times]).items()},
            "shares": shares,
            **environment(),
        }
        write_json(options.json, report)


if __name__ == "__main__":
    main()
