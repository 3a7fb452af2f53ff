"""Trains an autoencoder of images through ten codes per 4 x 4 pixels, or a VAE.

    python recipes/train_image_autoencoder.py --data data --run runs/image_em

Options give the other rows of docs/results/cifar10.md: --num-samples 0 is hard EM;
--bottleneck vq is a codebook trained by gradient, gaussian a VAE; --likelihood
categorical is the paper's softmax over 256 values; --network paper has the paper's
convolutions and one codebook for all codes of a cell; --grouped lets pixels depend on
each other; --num-codes and --num-slots divide the bits otherwise; --variants turns
parts of EM into what the paper or its authors' code does, to the letter.

The run folder has the files that train_transformer.py lists. Next, train the prior over
the codes:

    python recipes/train_image_prior.py --autoencoder runs/image_em ...
"""

from arguments import (
    adam,
    add_em_arguments,
    add_number,
    em_bottleneck,
    fit_options,
    make_parser,
    run_options,
    user_errors,
)
from image_arguments import (
    add_grouped_arguments,
    add_image_run_arguments,
    grouped_pixels,
    image_data,
)
from variants import EM, add_variants, check

WARMUP_STEPS = 200  # If the run is long enough.


def parse(arguments):
    parser = make_parser(__doc__)
    add_image_run_arguments(parser, 0.003, WARMUP_STEPS, batch_size=64)
    network = parser.add_argument_group("network")
    add = network.add_argument
    add(
        "--network",
        choices=["patch", "paper"],
        default="patch",
        help="patch: layers that start from principal components of patches; paper: "
        "the paper's convolutions (default: %(default)s)",
    )
    add(
        "--likelihood",
        choices=["mixture", "categorical"],
        default="mixture",
        help="distribution of pixels: a mixture of logistics, or a softmax over 256 "
        "values (default: %(default)s)",
    )
    add_number(network, "--num-mixtures", 5, "number of logistics per mixture")
    add_number(network, "--channels", 128, "number of channels on cells")
    add_number(network, "--num-blocks", 2, "number of residual blocks on cells")
    add_number(network, "--pixel-channels", 32, "number of channels on pixels")
    add_number(network, "--num-pixel-blocks", 2, "number of residual blocks on pixels")
    help = "let pixels depend on each other, group by group (GroupedPixels)"
    add("--grouped", action="store_true", help=help)
    add_grouped_arguments(parser)
    codes = parser.add_argument_group("codes")
    add = codes.add_argument
    add(
        "--bottleneck",
        choices=["em", "vq", "gaussian"],
        default="em",
        help="bottleneck: codebook trained by EM, codebook trained by gradient, or "
        "Gaussian latents (default: %(default)s)",
    )
    add_number(codes, "--num-codes", 256, "number of codes per codebook")
    add_number(codes, "--num-slots", 10, "number of codes per cell of 4 x 4 pixels")
    add_number(codes, "--code-dim", 16, "size of a code's vector")
    add_number(codes, "--latent-dim", 64, "number of Gaussian latents per cell")
    add_em_arguments(codes, num_samples=5, temperature=0.1, dead_code_threshold=0.01)
    add_variants(codes, EM)
    return parser.parse_args(arguments)


def make_bottleneck(arguments, pixels, steps):
    from keras_vqem import layers

    slices = layers.SharedSlices if arguments.network == "paper" else layers.Slices
    num_codes, groups = arguments.num_codes, slices(arguments.num_slots)
    if arguments.bottleneck == "em":
        return em_bottleneck(arguments, num_codes, steps, groups)
    if arguments.bottleneck == "vq":
        return layers.VQBottleneck(
            num_codes, commitment_weight=arguments.commitment_weight, groups=groups
        )
    # The loss is in nats per dimension, so the KL divergence is divided by these.
    cells = pixels // 16
    return layers.GaussianBottleneck(
        arguments.latent_dim, kl_weight=cells / (3 * pixels), seed=arguments.seed
    )


def make_network(arguments):
    """Returns compressor and decompressor."""
    from keras_vqem import layers

    code_dim = arguments.num_slots * arguments.code_dim
    channels = arguments.channels
    if arguments.network == "paper":
        compressor = layers.ImageCompressor(code_dim, channels)
        return compressor, layers.ImageDecompressor(channels)
    compressor = layers.PatchCompressor(
        code_dim, channels=channels, num_blocks=arguments.num_blocks
    )
    decompressor = layers.PatchDecompressor(
        channels=channels,
        num_blocks=arguments.num_blocks,
        pixel_channels=arguments.pixel_channels,
        num_pixel_blocks=arguments.num_pixel_blocks,
        # The latents of a VAE have variance 1, independent of the pixels.
        unit=1.0 if arguments.bottleneck == "gaussian" else 1 / 32,
    )
    return compressor, decompressor


def make_likelihood(arguments):
    from keras_vqem import layers

    # With patches, the first guess is off by only a few of 256 levels at the start.
    spread = 4.0 if arguments.network == "patch" else None
    if arguments.likelihood == "mixture":
        likelihood = layers.LogisticMixture(arguments.num_mixtures, spread=spread)
    else:
        likelihood = layers.CategoricalPixels(spread=spread)
    return grouped_pixels(arguments, likelihood) if arguments.grouped else likelihood


@user_errors
def main(arguments=None):
    arguments = parse(arguments)
    check(arguments)

    from keras_vqem.images import ImageBatches
    from keras_vqem.models import ImageVAE, ImageVQVAE
    from keras_vqem.training import LossInBits, Run, loss_in_bits, validation_set

    with Run(arguments.run, **run_options(arguments)) as run:
        data = image_data(arguments)
        images = data.images("train")
        height, width = images.shape[1:3]
        val = validation_set({"images": data.images("val")}, arguments.batch_size)
        batches = ImageBatches(
            images,
            arguments.batch_size,
            arguments.seed,
            flip=True,
            steps_per_epoch=arguments.steps_per_epoch,
        )
        steps = arguments.epochs * batches.steps_per_epoch

        compressor, decompressor = make_network(arguments)
        model_class = ImageVAE if arguments.bottleneck == "gaussian" else ImageVQVAE
        model = model_class(
            compressor,
            make_bottleneck(arguments, height * width, steps),
            decompressor,
            make_likelihood(arguments),
            image_size=(height, width),
        )
        if arguments.network == "patch":
            model.init_from_patches(images[:20_000], arguments.seed)
        model.compile(
            adam(run, arguments, steps, WARMUP_STEPS),
            accumulation_steps=arguments.accumulation_steps,
            jit_compile=arguments.jit,
        )
        run.fit(
            model,
            batches,
            arguments.epochs,
            validation_data=val,
            callbacks=[LossInBits()],
            **fit_options(arguments),
        )
        run.report(loss_in_bits(model.evaluate(val, verbose=0, return_dict=True)))


if __name__ == "__main__":
    main()
