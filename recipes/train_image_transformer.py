"""Trains the autoregressive baseline: a Transformer that predicts pixel by pixel.

    python recipes/train_image_transformer.py --data data --run runs/pixels

It starts from the frequencies of values, with values that are close alike. The run
folder is that of train_transformer.py.
"""

import argparse


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    from keras_vqem.training import image_run

    image_run.add_arguments(parser, learning_rate=0.002, batch_size=8)
    image_run.add_grid_arguments(
        parser, hidden_dim=96, num_layers=2, intermediate_dim=192, block_length=96
    )
    arguments = parser.parse_args(arguments)

    from keras_vqem.models import ImageTransformer

    def make_model(data, steps):
        images = data.images("train")
        height, width = images.shape[1:3]
        model = ImageTransformer(height, width, **image_run.grid_sizes(arguments))
        model.build()
        model.init_from_codebook(model.vectors, images[:10_000])
        return model

    print(f"saved {image_run.train_on_images(arguments, make_model)}")


if __name__ == "__main__":
    main()
