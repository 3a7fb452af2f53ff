"""Trains the prior over an autoencoder's codes: what makes them short to send.

    python recipes/train_image_prior.py --autoencoder runs/image_em \\
        --data data --run runs/image_em_prior --steps-per-epoch 375

The codes of all training images, and of their mirror images, are computed first and
kept in the run folder; to go through them all takes about an hour of one core. The
paper's prior has --num-layers 6. Next:

    python recipes/evaluate_images.py --model runs/image_em \\
        --prior runs/image_em_prior --data data
"""

import argparse
import hashlib
from pathlib import Path


def codes_of(autoencoder, images, path, made_of):
    """The codes of training images, mirrored ones too, and of validation images.

    They are kept in a file: with other threads or on another machine a few codes would
    be others, and a resumed run is to see the same.

    Args:
        autoencoder: The model.
        images: Of training and of validation.
        path: The file.
        made_of: A str that is another one for other codes.
    """
    import numpy as np

    from keras_vqem.evaluation import image_bits
    from keras_vqem.files import replacing

    if path.is_file():
        with np.load(path) as file:
            if file["made_of"] == made_of:
                return file["train"], file["val"]
    train, val = images
    print(f"codes of {2 * len(train):,} images", flush=True)
    codes = [image_bits.encode(autoencoder, x) for x in (train, train[:, :, ::-1])]
    codes, val = np.concatenate(codes), image_bits.encode(autoencoder, val)
    with replacing(path) as temporary:
        np.savez_compressed(temporary, train=codes, val=val, made_of=made_of)
    return codes, val


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    from keras_vqem.training import image_run, run

    image_run.add_arguments(parser, learning_rate=0.002, batch_size=16)
    add = parser.add_argument
    add("--autoencoder", required=True, metavar="RUN", help="whose codes to predict")
    image_run.add_grid_arguments(
        parser, hidden_dim=128, num_layers=2, intermediate_dim=256, block_length=40
    )
    arguments = parser.parse_args(arguments)

    import numpy as np

    from keras_vqem.array_batches import ArrayBatches
    from keras_vqem.models import GridTransformer, ImageVQVAE
    from keras_vqem.models.loading import load_model, model_file

    def make_task(replicas):
        autoencoder = load_model(arguments.autoencoder, ImageVQVAE)
        data = image_run.load(arguments)
        images = [data.images(split) for split in ("train", "val")]
        height, width = autoencoder.image_size
        if images[0].shape[1:3] != (height, width):
            raise ValueError(
                f"The images are {' x '.join(map(str, images[0].shape[1:3]))}, and the "
                f"autoencoder was trained on {height} x {width}. Give --dataset, "
                f"--data and --size {height} as there."
            )
        found = hashlib.sha256(model_file(arguments.autoencoder).read_bytes())
        for array in images:
            found.update(np.ascontiguousarray(array))
        path = Path(arguments.run) / "codes.npz"
        codes, symbols = codes_of(autoencoder, images, path, found.hexdigest())
        val = image_run.validation_set({"symbols": symbols}, arguments.batch_size)

        def make_model(steps):
            bottleneck = autoencoder.bottleneck
            grid, sizes = codes.shape[1:], image_run.grid_sizes(arguments)
            if bottleneck.codebook is None:
                return GridTransformer(grid, bottleneck.num_codes, **sizes)
            codebook = np.asarray(bottleneck.codebook)
            number, size = codebook.shape[-2:]
            model = GridTransformer(grid, number, vector_dim=size, **sizes)
            model.init_from_codebook(codebook, codes[:10_000])
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
