"""The arguments of `VQEMBottleneck` that trainers take, and the layer they make."""

import keras

from keras_vqem.layers import VQEMBottleneck


def add_em_arguments(group, num_samples, temperature, dead_code_threshold):
    """Adds them to an `argparse` group, with these defaults."""
    add = group.add_argument
    add(
        "--num-samples",
        type=int,
        default=num_samples,
        help="of soft EM; 0: hard EM (%(default)s)",
    )
    add(
        "--temperature",
        type=float,
        default=temperature,
        help="of soft EM (%(default)s)",
    )
    add(
        "--final-temperature",
        type=float,
        metavar="T",
        help="at the end of an exponential fall over the run (no fall)",
    )
    add("--decay", type=float, default=0.99, help="of the codebook (%(default)s)")
    add(
        "--dead-code-threshold",
        type=float,
        default=dead_code_threshold,
        help="of dead codes (%(default)s)",
    )
    add("--commitment-weight", type=float, default=0.25, help="weight (%(default)s)")


def em_bottleneck(arguments, num_codes, steps, groups=None):
    """The `VQEMBottleneck` of parsed arguments, for a run of so many steps."""
    temperature = arguments.temperature
    if arguments.final_temperature is not None:
        if not arguments.num_samples:
            raise ValueError(
                "--final-temperature belongs to soft EM, and --num-samples 0 is hard "
                "EM. Leave out one of them."
            )
        if not 0 < arguments.final_temperature <= temperature:
            raise ValueError(
                f"--final-temperature must be above 0 and at most --temperature, "
                f"{temperature}; received {arguments.final_temperature}."
            )
        temperature = keras.optimizers.schedules.ExponentialDecay(
            temperature, steps, arguments.final_temperature / temperature
        )
    return VQEMBottleneck(
        num_codes,
        num_samples=arguments.num_samples or None,
        temperature=temperature,
        groups=groups,
        decay=arguments.decay,
        commitment_weight=arguments.commitment_weight,
        dead_code_threshold=arguments.dead_code_threshold,
        seed=arguments.seed,
    )
