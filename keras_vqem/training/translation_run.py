"""What the trainers of translators share: their arguments, and the run itself."""

from functools import partial

import keras

from keras_vqem.evaluation.translation_scores import bleu
from keras_vqem.models.schedules import WarmupExponentialDecay, WarmupInverseSquareRoot
from keras_vqem.text import TranslationData
from keras_vqem.training.callbacks import MetricsLog, Progress, ValidationBLEU
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
# on other replicas dropout draws other noise.)
MAY_DIFFER = ("resume", "run", "validate_every")


def add_arguments(parser):
    """Adds to an `argparse` parser what every trainer takes."""
    add = parser.add_argument
    add("--data", required=True, help="folder made by prepare_translation.py")
    add("--run", required=True, help="folder for config, log, metrics, checkpoints")
    add("--resume", action="store_true", help="go on with the run in that folder")
    add("--epochs", type=int, default=20, help="(%(default)s)")
    add("--seed", type=int, default=1, help="of weights, batches, noise (%(default)s)")
    add("--strategy", default="none", help="none, mirrored or mirrored:N (%(default)s)")
    add("--jit", action="store_true", help="compile with XLA; not with a strategy")
    add("--validate-every", type=int, default=1, metavar="EPOCHS")
    add("--average", type=int, default=5, help="last checkpoints to average")

    model = parser.add_argument_group("model")
    add = model.add_argument
    add("--width", type=int, default=128, help="of hidden states (%(default)s)")
    add("--heads", type=int, default=4, help="(%(default)s)")
    add("--filter-width", type=int, default=256, help="(%(default)s)")
    add("--encoder-layers", type=int, default=4, help="(%(default)s)")
    add("--decoder-layers", type=int, default=4, help="(%(default)s)")
    add("--dropout", type=float, default=0.2, help="(%(default)s)")

    learning = parser.add_argument_group("learning")
    add = learning.add_argument
    add("--tokens-per-batch", type=int, default=2048, help="a side (%(default)s)")
    add("--shapes", type=int, default=8, help="of batches, at most (%(default)s)")
    add("--learning-rate", type=float, default=0.003, help="peak (%(default)s)")
    add("--warmup", type=int, default=800, help="steps to the peak (%(default)s)")
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
    add("--label-smoothing", type=float, default=0.1, help="(%(default)s)")


def train(arguments, make_model, length_multiple=1, translators=None):
    """Trains a translator into a run folder, and saves the mean of its last weights.

    Args:
        arguments: Parsed, from a parser with `add_arguments`.
        make_model: Function that takes the `keras_vqem.text.TranslationData` and
            returns a new model.
        length_multiple: Of the lengths of targets in a batch.
        translators: Dict from names to functions that take the model and the
            validation corpus and return translations of its sources; `bleu`, with
            those of `model.translate`, is always measured.

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
    data = TranslationData(arguments.data)
    batches = data.batches(
        "train",
        arguments.tokens_per_batch,
        max_shapes=arguments.shapes,
        length_multiple=length_multiple,
        batch_multiple=2 * strategy.num_replicas_in_sync,
        seed=arguments.seed,
    )
    run.log("batches\n" + batches.summary())
    print(batches.summary())
    with strategy.scope():
        model = make_model(data)
        model.compile(
            _optimizer(arguments, arguments.epochs * batches.steps_per_epoch),
            label_smoothing=arguments.label_smoothing,
            jit_compile=arguments.jit,
        )
    first = resume_run(model, run) if arguments.resume else 0
    val = data.corpus("val")
    measured = {"bleu": lambda model, corpus: model.translate(corpus.sources)}
    measured |= translators or {}
    model.fit(
        batches.dataset(first_epoch=first),
        steps_per_epoch=batches.steps_per_epoch,
        initial_epoch=first,
        epochs=arguments.epochs,
        shuffle=False,
        verbose=0,
        callbacks=[
            ValidationBLEU(
                val.targets,
                {name: partial(f, corpus=val) for name, f in measured.items()},
                every=arguments.validate_every,
            ),
            keras.callbacks.TensorBoard(run.path / "tensorboard"),
            Progress(arguments.epochs, batches.steps_per_epoch, log=run.log),
            MetricsLog(run),
            Checkpoints(run.checkpoints, keep=max(arguments.average, 2)),
        ],
    )
    average_weights(model, list_checkpoints(run.checkpoints)[-arguments.average :])
    score = bleu(model.translate(val.sources), val.targets)
    message = f"mean of the last {arguments.average} checkpoints: val_bleu {score:.2f}"
    print(message)
    run.log(message)
    path = run.path / "model.keras"
    save_model(model, path)
    run.log(f"saved {path.name}")
    return path


def _optimizer(arguments, steps):
    if arguments.schedule == "exponential":
        rate = WarmupExponentialDecay(
            arguments.learning_rate,
            arguments.warmup,
            max(steps - arguments.warmup, 1),
            arguments.final,
        )
    else:
        rate = WarmupInverseSquareRoot(arguments.learning_rate, arguments.warmup)
    return keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9)
