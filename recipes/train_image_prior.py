"""Trains the prior over an autoencoder's codes: what makes them short to send.

    python recipes/train_image_prior.py --autoencoder runs/image_em \\
        --data-dir data --run runs/image_em_prior --steps-per-epoch 375

The codes of all training images, and of their mirror images, are computed first and
kept in the run folder; to go through them all takes about an hour of one core. The
paper's prior has --depth 6. Next:

    python recipes/evaluate_images.py --model runs/image_em \\
        --prior runs/image_em_prior --data-dir data
"""

import argparse
from pathlib import Path


def write_codes(autoencoder, data, path):
    """Writes the codes of training images, mirrored ones too, and validation images."""
    import numpy as np

    from keras_vqem.evaluation import image_bits
    from keras_vqem.files import replacing

    images = data.images("train")
    print(f"codes of {2 * len(images):,} images", flush=True)
    codes = [image_bits.encode(autoencoder, x) for x in (images, images[:, :, ::-1])]
    val = image_bits.encode(autoencoder, data.images("val"))
    with replacing(path) as file, file.open("wb") as stream:
        np.savez_compressed(stream, train=np.concatenate(codes), val=val)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    from keras_vqem.training import image_run, run

    image_run.add_arguments(parser, learning_rate=0.002, batch_size=16)
    add = parser.add_argument
    add("--autoencoder", required=True, metavar="RUN", help="whose codes to predict")
    image_run.add_grid_arguments(parser, width=128, depth=2, filter_width=256, block=40)
    arguments = parser.parse_args(arguments)

    import numpy as np

    from keras_vqem.evaluation.trained import load_model
    from keras_vqem.images import ArrayBatches
    from keras_vqem.models import GridTransformer, ImageVQVAE

    def make_task(replicas):
        autoencoder = load_model(arguments.autoencoder, ImageVQVAE)
        if not hasattr(autoencoder.bottleneck, "num_codes"):
            raise ValueError(
                f"{arguments.autoencoder} is a VAE: it has no codes to predict, and "
                f"its bits need no other prior."
            )
        # Kept in the run folder: with other threads or on another machine a few codes
        # would be others, and a resumed run is to see the same.
        kept = Path(arguments.run) / "codes.npz"
        if not (arguments.resume and kept.is_file()):
            write_codes(autoencoder, image_run.load(arguments), kept)
        with np.load(kept) as file:
            codes, symbols = file["train"], file["val"]
        val = image_run.validation_set({"symbols": symbols}, arguments.batch_size)

        def make_model(steps):
            bottleneck = autoencoder.bottleneck
            grid, sizes = codes.shape[1:], image_run.grid_sizes(arguments)
            if not hasattr(bottleneck, "codebook"):
                return GridTransformer(grid, bottleneck.num_codes, **sizes)
            codebook = np.asarray(bottleneck.codebook)
            number, size = codebook.shape[-2:]
            model = GridTransformer(grid, number, vector_width=size, **sizes)
            model.start_from(codebook, codes[:10_000])
            return model

        return run.Task(
            ArrayBatches(
                {"symbols": codes},
                arguments.batch_size,
                arguments.seed,
                arguments.steps_per_epoch,
            ),
            make_model,
            lambda model: model.evaluate(val, verbose=0, return_dict=True),
            validation=val,
        )

    print(f"saved {run.train(arguments, make_task)}")


if __name__ == "__main__":
    main()
