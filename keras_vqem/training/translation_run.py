"""What the trainers of translators share: their arguments, and the run itself."""

from functools import partial

from keras_vqem.evaluation.translation_scores import bleu
from keras_vqem.text import TranslationData
from keras_vqem.training import run
from keras_vqem.training.callbacks import ValidationBLEU


def add_arguments(parser):
    """Adds to an `argparse` parser what every trainer of translators takes."""
    add = parser.add_argument
    add("--data", required=True, help="folder made by prepare_translation.py")
    run.add_arguments(parser)
    add("--validate-every", type=int, default=1, metavar="EPOCHS")

    model = parser.add_argument_group("model")
    add = model.add_argument
    add("--hidden-dim", type=int, default=128, help="of hidden states (%(default)s)")
    add("--num-heads", type=int, default=4, help="(%(default)s)")
    add("--intermediate-dim", type=int, default=256, help="(%(default)s)")
    add("--num-encoder-layers", type=int, default=4, help="(%(default)s)")
    add("--num-decoder-layers", type=int, default=4, help="(%(default)s)")
    add("--dropout", type=float, default=0.2, help="(%(default)s)")

    add = run.add_learning_arguments(parser, 0.003, warmup=800).add_argument
    add("--tokens-per-batch", type=int, default=2048, help="a side (%(default)s)")
    add("--max-shapes", type=int, default=16, help="of batches, at most (%(default)s)")
    add("--label-smoothing", type=float, default=0.1, help="(%(default)s)")


def train(arguments, make_model, length_multiple=1, translators=None):
    """Trains a translator into a run folder, and saves the mean of its last weights.

    Args:
        arguments: Parsed, from a parser with `add_arguments`.
        make_model: Function from the `keras_vqem.text.TranslationData`, and the steps
            of the run, to a new model.
        length_multiple: Of the lengths of targets in a batch.
        translators: Dict from names to functions that take the model and the
            validation corpus and return translations of its sources; `bleu`, with
            those of `model.translate`, is always measured.

    Returns:
        The path of the saved model, `model.keras` in the run folder.
    """

    def make_task(replicas):
        data = TranslationData(arguments.data)
        val = data.corpus("val")
        measured = {"bleu": lambda model, corpus: model.translate(corpus.sources)}
        measured |= translators or {}
        return run.Task(
            data.batches(
                "train",
                arguments.tokens_per_batch,
                max_shapes=arguments.max_shapes,
                length_multiple=length_multiple,
                batch_multiple=2 * replicas,
                seed=arguments.seed,
            ),
            lambda steps: make_model(data, steps),
            lambda model: {"val_bleu": bleu(model.translate(val.sources), val.targets)},
            callbacks=[
                ValidationBLEU(
                    val.targets,
                    {name: partial(f, corpus=val) for name, f in measured.items()},
                    every=arguments.validate_every,
                )
            ],
            compile_options={"label_smoothing": arguments.label_smoothing},
        )

    return run.train(arguments, make_task)
