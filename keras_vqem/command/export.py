"""Writes a model as a SavedModel that TensorFlow Serving loads as it is."""

import pathlib

# Short and long: the server runs them before it offers the model to others.
WARMUP = [
    "A dog runs.",
    "Two men in blue shirts are talking to each other on a street corner.",
    "A young girl with long brown hair and a red dress sits on a wooden bench in a "
    "park, eating an ice cream, while her brother is riding his bicycle behind her.",
]


def add_arguments(parser):
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    add("model", help="preset, finished run or .keras file")
    add("folder", type=pathlib.Path, help="for the versions, such as models/en_de")
    add("--version", default=1, **number, help="of the model: 1")
    add("--beams", default=1, **number, help="of a translator: 1")
    add("--max-tokens", default=256, **number, help="texts are cut there: 256")


def run(parser, options):
    if min(options.version, options.beams) < 1:
        parser.error("--version and --beams must be at least 1")

    from keras_vqem.evaluation.trained import load_model
    from keras_vqem.models.translator import Translator
    from keras_vqem.serving import write_warmup

    target = options.folder / str(options.version)
    if target.exists():
        parser.error(
            f"{target} exists already; a server may be using it. Give the new model a "
            f"new --version."
        )
    try:
        model = load_model(options.model)
        if isinstance(model, Translator):
            model.export(target, options.max_tokens, beams=options.beams)
            write_warmup(target, WARMUP)
        else:
            model.export(target)
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{target}: see docs/serving.md for what to do with it")
