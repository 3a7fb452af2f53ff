"""Trains the autoregressive baseline: a Transformer that predicts pixel by pixel.

    python recipes/train_image_transformer.py --data-dir data --run runs/pixels

Its `bits` are bits a dimension. The run folder is that of train_transformer.py.
"""

import argparse


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    from keras_vqem.training import image_run

    image_run.add_arguments(parser, learning_rate=0.002, batch_size=8)
    network = parser.add_argument_group("network")
    add = network.add_argument
    add("--width", type=int, default=96, help="of hidden states (%(default)s)")
    add("--depth", type=int, default=4, help="Transformer blocks (%(default)s)")
    add("--heads", type=int, default=4, help="(%(default)s)")
    add("--filter-width", type=int, default=192, help="(%(default)s)")
    add("--block", type=int, default=96, help="of local attention (%(default)s)")
    add("--dropout", type=float, default=0.0, help="(%(default)s)")
    arguments = parser.parse_args(arguments)

    from keras_vqem.models import ImageTransformer

    def make_model(data):
        height, width = data.images("train").shape[1:3]
        return ImageTransformer(
            height,
            width,
            width=arguments.width,
            depth=arguments.depth,
            heads=arguments.heads,
            filter_width=arguments.filter_width,
            block=arguments.block,
            dropout=arguments.dropout,
        )

    print(f"saved {image_run.train_on_images(arguments, make_model)}")


if __name__ == "__main__":
    main()
