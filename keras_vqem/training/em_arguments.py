"""The arguments of `VQEMBottleneck` that trainers take, and the layer they make."""

from keras_vqem.layers import VQEMBottleneck


def add_em_arguments(group, samples, temperature, revival):
    """Adds them to an `argparse` group, with these defaults."""
    add = group.add_argument
    add(
        "--samples",
        type=int,
        default=samples,
        help="of soft EM; 0: hard EM (%(default)s)",
    )
    add(
        "--temperature",
        type=float,
        default=temperature,
        help="of soft EM (%(default)s)",
    )
    add("--decay", type=float, default=0.99, help="of the codebook (%(default)s)")
    add("--revival", type=float, default=revival, help="of dead codes (%(default)s)")
    add("--commitment", type=float, default=0.25, help="weight (%(default)s)")


def em_bottleneck(arguments, num_codes, groups=None):
    """The `VQEMBottleneck` of parsed arguments."""
    return VQEMBottleneck(
        num_codes,
        num_samples=arguments.samples or None,
        temperature=arguments.temperature,
        groups=groups,
        decay=arguments.decay,
        commitment_weight=arguments.commitment,
        revival=arguments.revival,
        seed=arguments.seed,
    )
