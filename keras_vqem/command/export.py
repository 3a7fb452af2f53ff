"""Writes a model as a SavedModel that TensorFlow Serving loads as it is."""

import os
import pathlib
import shutil

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
    add("--num-beams", default=1, **number, help="of a translator: 1")
    add("--max-tokens", default=256, **number, help="texts are cut there: 256")


def run(parser, options):
    if min(options.version, options.num_beams) < 1:
        parser.error("--version and --num-beams must be at least 1")

    import numpy as np

    from keras_vqem.models import ImageVQVAE
    from keras_vqem.models.loading import load_model
    from keras_vqem.models.translator import Translator
    from keras_vqem.serving import write_warmup
    from keras_vqem.serving.api import serving_api

    target = options.folder / str(options.version)
    if target.exists():
        parser.error(
            f"{target} exists already; a server may be using it. Give the new model a "
            f"new --version."
        )
    # A server looks at folders named by numbers only: it sees the whole or nothing.
    partial = options.folder / f".{options.version}.{os.getpid()}.partial"
    try:
        serving_api("apis.prediction_log_pb2")
        partial.mkdir(parents=True)  # fails if it may not be written
        model = load_model(options.model, Translator, ImageVQVAE)
        if isinstance(model, Translator):
            model.export(partial, options.max_tokens, num_beams=options.num_beams)
            write_warmup(partial, WARMUP)
        else:
            model.export(partial)
            write_warmup(partial, np.zeros((1, *model.image_size, 3), "uint8"))
        partial.rename(target)
    except (ImportError, OSError, ValueError) as error:
        parser.error(str(error))
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"{target}: see docs/serving.md for what to do with it")
