"""Flags that recipes share, objects made from them, and error messages.

Only recipes import this module. It imports the library inside functions, so that
--help is fast.
"""

import argparse
import functools
import os
import pathlib
import signal
import sys

# Flags that may change when a run is resumed. A finished run that is resumed with
# another --average only saves its model again; what other --epochs change is told.
# Batches do not depend on replicas or parts, so a run may go on with more of them.
MAY_DIFFER = (
    "accumulation_steps",
    "average",
    "checkpoint_minutes",
    "checkpoint_steps",
    "epochs",
    "keep_best",
    "run",
    "strategy",
    "validate_every",
)


class Parser(argparse.ArgumentParser):
    def parse_args(self, args=None, namespace=None):
        options = super().parse_args(args, namespace)
        if getattr(options, "jit", False):
            # Also read by keras_vqem, which sets TensorFlow up for it.
            os.environ.setdefault("KERAS_VQEM_COMPILE_CACHE", "1")
        # Before the recipe imports TensorFlow: keras_vqem starts it quietly.
        import keras_vqem  # noqa: F401

        return options


def make_parser(doc):
    """Makes the parser of a recipe, before anything imports TensorFlow.

    Unless --verbose is given, TensorFlow starts quietly.

    Args:
        doc: Docstring of the recipe, which --help shows.
    """
    if "--verbose" not in sys.argv and "keras_vqem" not in sys.modules:
        os.environ["KERAS_VQEM_QUIET"] = "1"
    raw = argparse.RawDescriptionHelpFormatter
    parser = Parser(description=doc, formatter_class=raw)
    verbose_help = "print the log messages of TensorFlow, and tracebacks of errors"
    parser.add_argument("--verbose", action="store_true", help=verbose_help)
    return parser


def user_errors(main):
    """Decorates `main(arguments=None)` to print errors as one sentence and exit with 2.

    With --verbose, errors keep their traceback. After Ctrl-C and SIGTERM the status is
    that of shells, 130 and 143.
    """

    @functools.wraps(main)
    def wrapped(arguments=None):
        given = sys.argv[1:] if arguments is None else arguments
        name = pathlib.Path(main.__globals__["__file__"]).name
        try:
            return main(arguments)
        except KeyboardInterrupt as error:
            # Interrupted, which is raised in training, has a message and a signal.
            print(f"{name}: {str(error) or 'interrupted'}", file=sys.stderr)
            number = getattr(error, "signal_number", signal.SIGINT)
            raise SystemExit(128 + number) from None
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            if "--verbose" in given:
                raise
            print(f"{name}: error: {error}", file=sys.stderr)
            raise SystemExit(2) from None

    return wrapped


def positive(text):
    """Type of flags that take an integer of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


positive.__name__ = "integer"  # argparse shows it: "invalid integer value: 'x'"


def above_zero(text):
    """Type of flags that take a number above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number


def at_least_zero(text):
    """Type of flags that take a number of at least 0."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return number


def share(text):
    """Type of flags that take a number from 0 to 1."""
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1")
    return number


above_zero.__name__ = at_least_zero.__name__ = share.__name__ = "number"


def add_number(group, flag, default, help, type=None):
    """Adds a flag that takes a number.

    Args:
        group: Parser or group of a parser.
        flag: Name of the flag.
        default: Default value. Without `type`, a flag with an integer as default takes
            integers of at least 1.
        help: Help text, without the default, which is added.
        type: Function from a string to a number, or None.
    """
    kind = type or (float if isinstance(default, float) else positive)
    help = f"{help} (default: %(default)s)"
    metavar = "X" if kind in (above_zero, at_least_zero, float, share) else "N"
    group.add_argument(flag, type=kind, default=default, metavar=metavar, help=help)


# Runs.


def add_run_arguments(parser, epochs, average):
    """Adds the flags of every trainer, with the given defaults."""
    add = parser.add_argument
    add(
        "--run",
        required=True,
        metavar="DIR",
        help="folder of the run: config, log, metrics, checkpoints, model",
    )
    add(
        "--resume",
        action="store_true",
        help="continue the run in that folder from its last checkpoint",
    )
    add_number(parser, "--epochs", epochs, "number of epochs of the whole run")
    add_number(parser, "--seed", 1, "seed of weights, batches and noise", type=int)
    add(
        "--strategy",
        default="auto",
        metavar="NAME",
        help="auto (mirrored if there are several GPUs), none, mirrored (all GPUs), "
        "mirrored:N replicas or multi_worker, see docs/scaling.md "
        "(default: %(default)s, none with --jit)",
    )
    add(
        "--precision",
        choices=["float32", "mixed_bfloat16", "mixed_float16"],
        help="dtype policy of the layers (default: float32)",
    )
    add(
        "--jit",
        action="store_true",
        help="compile the training step with XLA, on one device. Compiled steps are "
        "kept in ~/.cache/keras_vqem, or in the folder that the environment variable "
        "KERAS_VQEM_COMPILE_CACHE names; 0 keeps none",
    )
    add_number(
        parser,
        "--accumulation-steps",
        1,
        "number of parts into which each batch is divided, to save memory",
    )
    add_number(parser, "--average", average, "number of last checkpoints to average")
    add(
        "--keep-best",
        metavar="METRIC",
        help="save the epoch with the best METRIC, such as val_bleu or val_loss, "
        "instead of the average (default: the average)",
    )
    help = "minutes from one checkpoint to the next within an epoch"
    add_number(parser, "--checkpoint-minutes", 30.0, help, above_zero)
    add(
        "--checkpoint-steps",
        type=positive,
        metavar="N",
        help="number of steps from one checkpoint to the next within an epoch "
        "(default: by time only)",
    )


def fit_options(arguments):
    """Returns the arguments of `Run.fit` about checkpoints and the saved model."""
    names = ("average", "keep_best", "checkpoint_minutes", "checkpoint_steps")
    return {name: getattr(arguments, name) for name in names}


def run_options(arguments):
    """Returns the arguments of `keras_vqem.training.Run` after its path."""
    strategy = arguments.strategy
    if arguments.jit and strategy == "auto":
        strategy = "none"
    if arguments.jit and strategy != "none":
        raise ValueError(
            "--jit does not work with --strategy, because Keras compiles steps with "
            "XLA on one device only. Leave one of them out."
        )
    recorded = dict(vars(arguments))
    for name in ("resume", "verbose"):  # These belong to the process, not the run.
        del recorded[name]
    return {
        "seed": arguments.seed,
        "strategy": strategy,
        "precision": arguments.precision,
        "resume": arguments.resume,
        "arguments": recorded,
        "may_differ": MAY_DIFFER,
    }


# Learning.


def add_learning_arguments(parser, learning_rate, warmup_steps):
    """Adds the learning rate and its schedule.

    Args:
        parser: Parser of the recipe.
        learning_rate: Default of the highest learning rate.
        warmup_steps: Default number of warm-up steps, if the run is long enough.

    Returns:
        The group, for more flags about learning.
    """
    group = parser.add_argument_group("learning")
    add = group.add_argument
    help = "highest learning rate"
    add_number(group, "--learning-rate", learning_rate, help, above_zero)
    add(
        "--warmup-steps",
        type=positive,
        metavar="N",
        help="number of steps in which the learning rate rises "
        f"(default: {warmup_steps}, at most a quarter of the run)",
    )
    add(
        "--schedule",
        choices=["exponential", "inverse-square-root"],
        default="exponential",
        help="decay of the learning rate after that (default: %(default)s, as in the "
        "paper)",
    )
    help = "share of the learning rate left at the end, above 0"
    add_number(group, "--final", 0.05, help, share)
    return group


def steps_for(run, arguments, name, usual, most):
    """Returns a number of first steps: as given, or else `usual`, but at most `most`.

    Args:
        run: The `Run`, which logs the number if it is less than `usual`.
        arguments: Parsed arguments.
        name: Name of the argument, whose value is None if it was not given.
        usual: Number of steps in a run that is long enough.
        most: Maximum number of steps in this run.
    """
    given = getattr(arguments, name)
    if given is not None:
        return given
    if most >= usual:
        return usual
    chosen = max(most, 1)
    run.log(
        f"--{name.replace('_', '-')} {chosen}: the run is too short for the usual "
        f"{usual} steps; pass the flag to choose another number"
    )
    return chosen


def adam(run, arguments, steps, warmup_steps):
    """Returns the optimizer of a run.

    Args:
        run: The `Run`.
        arguments: Parsed arguments with those of `add_learning_arguments`.
        steps: Number of steps of the run.
        warmup_steps: Default number of warm-up steps, if the run is long enough.
    """
    import keras

    from keras_vqem.models import schedules

    warmup = steps_for(run, arguments, "warmup_steps", warmup_steps, most=steps // 4)
    if arguments.schedule == "exponential":
        rate = schedules.WarmupExponentialDecay(
            arguments.learning_rate, warmup, max(steps - warmup, 1), arguments.final
        )
    else:
        rate = schedules.WarmupInverseSquareRoot(arguments.learning_rate, warmup)
    return keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9)


# EM.


def add_em_arguments(group, num_samples, temperature, dead_code_threshold):
    """Adds the arguments of `VQEMBottleneck`, with the given defaults."""
    add = group.add_argument
    add_number(
        group,
        "--num-samples",
        num_samples,
        "number of draws of soft EM; 0 is hard EM",
        type=int,
    )
    add_number(group, "--temperature", temperature, "temperature of soft EM")
    add(
        "--final-temperature",
        type=float,
        metavar="T",
        help="temperature at the end of an exponential decay over the run "
        "(default: no decay)",
    )
    add_number(
        group, "--decay", 0.99, "decay of the codebook's moving averages per step"
    )
    add_number(
        group,
        "--dead-code-threshold",
        dead_code_threshold,
        "fraction of the average count below which a code is replaced; 0 replaces none",
    )
    add_number(group, "--commitment-weight", 0.25, "weight of the commitment loss")


def em_bottleneck(arguments, num_codes, steps, groups=None):
    """Returns the `VQEMBottleneck` of parsed arguments, for a run of `steps` steps."""
    import keras
    import variants

    temperature = arguments.temperature
    if arguments.final_temperature is not None:
        if not arguments.num_samples:
            raise ValueError(
                "--final-temperature is for soft EM, but --num-samples 0 is hard EM. "
                "Leave out one of them."
            )
        if not 0 < arguments.final_temperature <= temperature:
            raise ValueError(
                f"--final-temperature must be above 0 and at most --temperature, "
                f"{temperature}, received {arguments.final_temperature}."
            )
        temperature = keras.optimizers.schedules.ExponentialDecay(
            temperature, steps, arguments.final_temperature / temperature
        )
    return variants.em_bottleneck(
        arguments.variants,
        num_codes,
        num_samples=arguments.num_samples or None,
        temperature=temperature,
        groups=groups,
        decay=arguments.decay,
        commitment_weight=arguments.commitment_weight,
        dead_code_threshold=arguments.dead_code_threshold,
        seed=arguments.seed,
    )


# Sizes of networks.

SIZES = {
    "hidden_dim": "size of embeddings and hidden states",
    "num_encoder_layers": "number of Transformer blocks that read the source",
    "num_decoder_layers": "number of Transformer blocks that write the target",
    "num_layers": "number of Transformer blocks",
    "num_heads": "number of attention heads",
    "intermediate_dim": "size of the hidden layer of feed-forward networks",
    "block_length": "number of positions per block of local attention",
    "dropout": "dropout rate",
}


def add_sizes(parser, **defaults):
    """Adds flags for some of `SIZES`, with the given defaults."""
    group = parser.add_argument_group("network")
    for name, default in defaults.items():
        add_number(group, f"--{name.replace('_', '-')}", default, SIZES[name])


def sizes(arguments):
    """Returns the sizes among parsed arguments, as arguments of the model."""
    return {name: value for name, value in vars(arguments).items() if name in SIZES}


# Translators.


def add_translation_arguments(parser, warmup_steps, average):
    """Adds the flags of every trainer of translators."""
    parser.add_argument(
        "--data",
        required=True,
        metavar="DIR",
        help="folder made by prepare_translation.py or distill.py",
    )
    add_run_arguments(parser, epochs=20, average=average)
    add_number(
        parser,
        "--validate-every",
        1,
        "number of epochs from one validation to the next",
    )
    add_sizes(
        parser,
        hidden_dim=128,
        num_heads=4,
        intermediate_dim=256,
        num_encoder_layers=4,
        num_decoder_layers=4,
        dropout=0.2,
    )
    learning = add_learning_arguments(parser, 0.003, warmup_steps)
    add_batch_arguments(learning, max_shapes=16)
    help = "share of each label spread over all ids"
    add_number(learning, "--label-smoothing", 0.1, help, share)


def add_batch_arguments(group, max_shapes):
    """Adds the sizes of batches of sentences."""
    help = "maximum number of tokens per side of a batch"
    add_number(group, "--tokens-per-batch", 2048, help)
    help = "maximum number of shapes of batches, each of which XLA compiles"
    add_number(group, "--max-shapes", max_shapes, help)


# Options of `generate` that training tries on val.
BLANK_BIASES = (0.0, -0.5, -1.0, -1.5, -2.0, -2.5)
LENGTH_PENALTIES = (0.6, 1.0, 1.5)


def options_to_try(model):
    """Returns the options of decoding to try on val after training, plainest first.

    Args:
        model: A `Transformer`, `CTCTranslator` or `LatentNMT`.
    """
    from keras_vqem.models import CTCOutput, LatentNMT, Transformer

    if isinstance(model, Transformer):
        beams = [{"num_beams": 4, "length_penalty": p} for p in LENGTH_PENALTIES]
        return [{"num_beams": 1}, *beams]
    biases = [{"blank_bias": bias} for bias in BLANK_BIASES]
    if not isinstance(model, LatentNMT):
        return biases
    ends = [{"end_threshold": None}, {"end_threshold": 0.5}]
    by_ctc = isinstance(model.word_output, CTCOutput)
    return [b | end for b in (biases if by_ctc else [{}]) for end in ends]
