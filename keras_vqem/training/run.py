"""What all trainers share: the arguments of a run, and the run itself."""

import dataclasses
import hashlib
from collections.abc import Callable

import keras
import numpy as np

from keras_vqem.models.schedules import WarmupExponentialDecay, WarmupInverseSquareRoot
from keras_vqem.training.callbacks import MetricsLog, Progress
from keras_vqem.training.checkpoints import (
    Checkpoints,
    average_weights,
    list_checkpoints,
    save_model,
)
from keras_vqem.training.checkpoints import resume as resume_run
from keras_vqem.training.run_folder import RunFolder
from keras_vqem.training.strategies import strategy_scope

# What may change when a run is resumed without making it another run. (Under XLA and
# on other replicas dropout draws other noise.) A finished run that is resumed with
# another number of checkpoints to average just saves its model anew.
MAY_DIFFER = ("average", "resume", "run", "validate_every")


def add_arguments(parser):
    """Adds to an `argparse` parser what every trainer takes."""
    add = parser.add_argument
    add("--run", required=True, help="folder for config, log, metrics, checkpoints")
    add("--resume", action="store_true", help="go on with the run in that folder")
    add("--epochs", type=int, default=20, help="(%(default)s)")
    add("--seed", type=int, default=1, help="of weights, batches, noise (%(default)s)")
    add("--strategy", default="none", help="none, mirrored or mirrored:N (%(default)s)")
    add("--jit", action="store_true", help="compile with XLA; not with a strategy")
    add("--average", type=int, default=5, help="last checkpoints (%(default)s)")


def add_learning_arguments(parser, learning_rate, warmup):
    """Adds the learning rate and its schedule.

    Args:
        parser: An `argparse` parser or group.
        learning_rate: Default of the peak.
        warmup: Default number of steps to the peak.

    Returns:
        The group, for more arguments about learning.
    """
    group = parser.add_argument_group("learning")
    add = group.add_argument
    add("--learning-rate", type=float, default=learning_rate, help="peak (%(default)s)")
    add(
        "--warmup-steps",
        type=int,
        default=warmup,
        help="steps to the peak (%(default)s)",
    )
    add(
        "--schedule",
        choices=["exponential", "inverse-square-root"],
        default="exponential",
        help="after the warm-up (%(default)s, as in the paper)",
    )
    add(
        "--final",
        type=float,
        default=0.05,
        help="of the peak, at the end of an exponential decay (%(default)s)",
    )
    return group


@dataclasses.dataclass
class Task:
    """What a run trains, and on what.

    Attributes:
        batches: Has `dataset(first_epoch)`, `steps_per_epoch` and `summary()`.
        make_model: Function from the number of steps of the run to a new model.
        measure: Function from the trained model to a dict of numbers to log.
        validation: A dataset to evaluate on after each epoch, or None.
        callbacks: More of them, to go first: those that add to the logs.
        compile_options: Of `model.compile`.
    """

    batches: object
    make_model: Callable
    measure: Callable
    validation: object = None
    callbacks: list = dataclasses.field(default_factory=list)
    compile_options: dict = dataclasses.field(default_factory=dict)


def train(arguments, make_task):
    """Trains a model into a run folder, and saves the mean of its last weights.

    Args:
        arguments: Parsed, from a parser with `add_arguments` and
            `add_learning_arguments`.
        make_task: Function from the number of replicas to a `Task`. It is called when
            devices are set up and seeds are set, which have to come first.

    Returns:
        The path of the saved model, `model.keras` in the run folder.
    """
    if arguments.average < 1:
        raise ValueError(f"--average must be at least 1, not {arguments.average}.")
    if arguments.jit and arguments.strategy != "none":
        raise ValueError(
            "--jit does not work with a strategy: Keras compiles steps with XLA on one "
            "device only. Leave one of them out."
        )
    # In this order: devices are set up once, and seeding resets TensorFlow's kernels.
    strategy = strategy_scope(arguments.strategy)
    keras.utils.set_random_seed(arguments.seed)
    run = RunFolder(arguments.run)
    run.start(vars(arguments), resume=arguments.resume, may_differ=MAY_DIFFER)
    try:
        task = make_task(strategy.num_replicas_in_sync)
        batches = task.batches
        with strategy.scope():
            steps = arguments.epochs * batches.steps_per_epoch
            model = task.make_model(steps)
            model.compile(
                _optimizer(arguments, steps),
                jit_compile=arguments.jit,
                **task.compile_options,
            )
    except Exception:
        run.take_back()
        raise
    run.remember(
        "data",
        fingerprint(batches),
        "Restore the data that it was started with, or begin a new run.",
    )
    run.log("batches\n" + batches.summary())
    print(batches.summary())
    first = resume_run(model, run) if arguments.resume else 0
    model.fit(
        batches.dataset(first_epoch=first),
        steps_per_epoch=batches.steps_per_epoch,
        initial_epoch=first,
        epochs=arguments.epochs,
        validation_data=task.validation,
        shuffle=False,
        verbose=0,
        callbacks=[
            *task.callbacks,
            keras.callbacks.TensorBoard(run.path / "tensorboard"),
            Progress(arguments.epochs, batches.steps_per_epoch, log=run.log),
            MetricsLog(run),
            Checkpoints(run.checkpoints, keep=max(arguments.average, 2)),
        ],
    )
    average_weights(model, list_checkpoints(run.checkpoints)[-arguments.average :])
    measured = "  ".join(f"{k} {v:.4g}" for k, v in task.measure(model).items())
    message = f"mean of the last {arguments.average} checkpoints: {measured}"
    print(message)
    run.log(message)
    path = run.path / "model.keras"
    save_model(model, path)
    run.log(f"saved {path.name}")
    return path


def fingerprint(batches):
    """A hash of all that the first epoch holds."""
    found = hashlib.sha256()
    for batch in batches.epoch(0):
        for name in sorted(batch):
            array = np.ascontiguousarray(batch[name])
            found.update(f"{name} {array.dtype} {array.shape}".encode())
            found.update(array)
    return found.hexdigest()


def _optimizer(arguments, steps):
    if arguments.schedule == "exponential":
        rate = WarmupExponentialDecay(
            arguments.learning_rate,
            arguments.warmup_steps,
            max(steps - arguments.warmup_steps, 1),
            arguments.final,
        )
    else:
        rate = WarmupInverseSquareRoot(arguments.learning_rate, arguments.warmup_steps)
    return keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9)
