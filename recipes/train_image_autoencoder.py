"""Trains an autoencoder of images through 8 x 8 x 10 codes, or a VAE.

    python recipes/train_image_autoencoder.py --data data --run runs/image_em

Each row of docs/results/cifar10.md is one more option: --num-samples 0 for hard EM;
--bottleneck vq for a codebook trained by gradient, gaussian for a VAE; --likelihood
categorical for the paper's softmax over 256 values; --network paper for the paper's
convolutions and one codebook for all ten codes of a cell.

The run folder is that of train_transformer.py. Next comes the prior over the codes:

    python recipes/train_image_prior.py --autoencoder runs/image_em ...
"""

import argparse

CODES, SLOTS = 256, 10


def make_bottleneck(arguments, pixels, steps):
    from keras_vqem import layers
    from keras_vqem.training.em_arguments import em_bottleneck

    shared = arguments.network == "paper"
    groups = layers.SharedSlices(SLOTS) if shared else layers.Slices(SLOTS)
    if arguments.bottleneck == "em":
        return em_bottleneck(arguments, CODES, steps, groups)
    if arguments.bottleneck == "vq":
        return layers.VQBottleneck(
            CODES, commitment_weight=arguments.commitment_weight, groups=groups
        )
    # The loss is nats a dimension: a cell's share of the image's dimensions.
    cells = pixels // 16
    return layers.GaussianBottleneck(
        arguments.latent_dim, kl_weight=cells / (3 * pixels), seed=arguments.seed
    )


def make_model(arguments, data, steps):
    from keras_vqem import layers, models

    images = data.images("train")
    height, width = images.shape[1:3]
    # Its first guess is within a few levels, of 128, from the first step on.
    from_patches = arguments.network == "patch"
    spread = 4.0 if from_patches else None
    # A VAE's latents have a variance of 1, whatever the pixels.
    unit = 1 / 32 if from_patches and arguments.bottleneck != "gaussian" else 1.0
    likelihood = (
        layers.LogisticMixture(arguments.num_mixtures, spread=spread)
        if arguments.likelihood == "mixture"
        else layers.CategoricalPixels(spread=spread)
    )
    code_dim = SLOTS * arguments.code_dim
    if arguments.network == "paper":
        compressor = layers.ImageCompressor(code_dim, arguments.channels)
        decompressor = layers.ImageDecompressor(arguments.channels)
    else:
        compressor = layers.PatchCompressor(
            code_dim, channels=arguments.channels, num_blocks=arguments.num_blocks
        )
        decompressor = layers.PatchDecompressor(
            channels=arguments.channels,
            num_blocks=arguments.num_blocks,
            pixel_channels=arguments.pixel_channels,
            num_pixel_blocks=arguments.num_pixel_blocks,
            unit=unit,
        )
    vae = arguments.bottleneck == "gaussian"
    model = (models.ImageVAE if vae else models.ImageVQVAE)(
        compressor,
        make_bottleneck(arguments, height * width, steps),
        decompressor,
        likelihood,
        image_size=(height, width),
    )
    if from_patches:
        model.init_from_patches(images[:20_000], arguments.seed)
    return model


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    from keras_vqem.training import image_run
    from keras_vqem.training.em_arguments import add_em_arguments

    image_run.add_arguments(parser, learning_rate=0.003, warmup=200)
    network = parser.add_argument_group("network")
    add = network.add_argument
    add("--network", choices=["patch", "paper"], default="patch", help="(%(default)s)")
    add(
        "--likelihood",
        choices=["mixture", "categorical"],
        default="mixture",
        help="of pixels (%(default)s)",
    )
    add("--num-mixtures", type=int, default=5, help="of logistics (%(default)s)")
    add("--channels", type=int, default=128, help="on cells (%(default)s)")
    add("--num-blocks", type=int, default=2, help="residual, on cells (%(default)s)")
    add("--pixel-channels", type=int, default=32, help="on pixels (%(default)s)")
    add("--num-pixel-blocks", type=int, default=2, help="on pixels (%(default)s)")

    codes = parser.add_argument_group("codes")
    add = codes.add_argument
    add(
        "--bottleneck",
        choices=["em", "vq", "gaussian"],
        default="em",
        help="(%(default)s)",
    )
    add("--code-dim", type=int, default=16, help="of a code's vector (%(default)s)")
    add("--latent-dim", type=int, default=64, help="of a VAE's cell (%(default)s)")
    add_em_arguments(codes, num_samples=5, temperature=0.1, dead_code_threshold=0.01)
    arguments = parser.parse_args(arguments)

    path = image_run.train_on_images(
        arguments, lambda data, steps: make_model(arguments, data, steps)
    )
    print(f"saved {path}")


if __name__ == "__main__":
    main()
