"""Writes a model as a SavedModel that TensorFlow Serving can load.

The model and its warm-up requests are written to FOLDER/VERSION, the settings of the
server, models.config and batching.config, to the folder above FOLDER.
"""

import argparse
import contextlib
import pathlib
from typing import TYPE_CHECKING, Any

from keras_vqem.command import decoding, problems
from keras_vqem.files import replacing_folder

if TYPE_CHECKING:
    from keras_vqem.models.task_model import TaskModel

# A short and two longer texts, which the server runs before it offers the model.
WARMUP = [
    "A dog runs.",
    "Two men in blue shirts are talking to each other on a street corner.",
    "A young girl with long brown hair and a red dress sits on a wooden bench in a "
    "park, eating an ice cream, while her brother is riding his bicycle behind her.",
]
LOAD = """
Load it in Python:
    import tensorflow as tf{text}
    served = tf.saved_model.load("{target}")
    served.signatures["serving_default"]({call})
Start a server, with Docker:
    docker run --rm -p 8500:8500 -p 8501:8501 -v "{mount}:/models" \\
        tensorflow/serving:{tensorflow} --model_config_file=/models/models.config \\
        --enable_batching --batching_parameters_file=/models/batching.config
Send it a request:
    {ask}"""
TEXT = "\n    import tensorflow_text  # provides the operations of the tokenizer"
CLIENT = (
    'python recipes/serving_client.py --grpc localhost:8500 --model {name} "{example}"'
)
STATUS = "curl http://localhost:8501/v1/models/{name}  # AVAILABLE?"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `keras-vqem export`."""
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    help = "name of a preset, folder of a preset or a finished run, or .keras file"
    add("model", help=help)
    help = "folder of the model's versions, such as models/en_de; its name becomes the "
    help += "name of the model on the server"
    add("folder", type=pathlib.Path, help=help)
    help = "number of the version (default: the next free one)"
    add("--version", **number, help=help)
    help = "number of tokens after which a translator cuts texts (default: 256)"
    add("--max-tokens", default=256, **number, help=help)
    help = "type in which a translator stores its weights: float32; bfloat16, half the "
    help += "size; or int8, a quarter, computed in float32 (default: as the model is)"
    add("--precision", metavar="TYPE", help=help)
    help = (
        "let XLA compile the parts of a translator: faster, after a slow first request "
    )
    help += "of each number of texts and length"
    add("--jit", action="store_true", help=help)
    decoding.add_arguments(parser)


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Runs `keras-vqem export`."""
    if options.version is not None and options.version < 1:
        parser.error("--version must be at least 1")

    from keras_vqem.models import ImageVAE, ImageVQVAE
    from keras_vqem.models.loading import load_model
    from keras_vqem.models.translator import Translator
    from keras_vqem.serving import add_model
    from keras_vqem.serving.configuration import read_models

    # The server sees the resolved folder, which is mounted.
    folder = options.folder.resolve()
    with problems.told_by(parser, options.verbose):
        version = options.version or next_version(folder)
        if (folder / str(version)).exists():
            raise FileExistsError(
                f"{options.folder / str(version)} exists already, and a server may be "
                f"using it. Leave --version out to write version "
                f"{next_version(folder)}."
            )
        given = decoding.given(options)
        read_models(folder.parent)  # An unreadable file fails before the work.
        model = load_model(options.model, Translator, ImageVQVAE, ImageVAE)
        chosen = decoding.chosen(given, model)
        extra = {"precision": options.precision, "jit": options.jit}
        for name, value in extra.items():
            if value and not isinstance(model, Translator):
                raise ValueError(
                    f"--{name} is for translators, and {options.model} is an "
                    f"{type(model).__name__}. Leave it out."
                )
        if options.precision:
            chosen["precision"] = options.precision
        if options.jit:
            chosen["jit_compile"] = True
        write(model, folder, version, options.max_tokens, chosen)
        settings = add_model(folder.parent, folder.name, f"/models/{folder.name}")
        print(f"{options.folder / str(version)}: {options.model}")
        for path in settings:
            print(f"{options.folder.parent / path.name}: settings of the server")
        print(usage(model, options.folder, version))


def next_version(folder: pathlib.Path) -> int:
    """Returns the highest version in a folder plus 1. Servers load the highest."""
    names = [path.name for path in folder.glob("*")]
    return max((int(name) for name in names if name.isdecimal()), default=0) + 1


def write(
    model: "TaskModel",
    folder: pathlib.Path,
    version: int,
    max_tokens: int,
    options: dict[str, Any],
) -> None:
    """Writes a version and its warm-up requests, completely or not at all."""
    import numpy as np

    from keras_vqem.models.translator import Translator
    from keras_vqem.serving import write_warmup

    target = folder / str(version)
    try:
        # A server ignores folders whose names are not numbers.
        with replacing_folder(target) as partial:
            if isinstance(model, Translator):
                model.export(partial, max_tokens, **options)
                write_warmup(partial, WARMUP)
            else:
                model.export(partial)
                write_warmup(partial, np.zeros((1, *model.image_size, 3), "uint8"))
            if target.exists():
                raise FileExistsError(f"{target} was written by another process.")
    finally:
        with contextlib.suppress(OSError):  # It stays unless it is empty.
            folder.rmdir()


def usage(model: "TaskModel", folder: pathlib.Path, version: int) -> str:
    """Returns instructions to load and serve a version."""
    import tensorflow as tf

    from keras_vqem.models.translator import Translator

    name = folder.resolve().name
    if isinstance(model, Translator):
        text, call = TEXT, f'texts=tf.constant(["{WARMUP[0]}"])'
        ask = CLIENT.format(name=name, example=WARMUP[0])
    else:
        height, width = model.image_size
        text, call = "", f'images=tf.zeros((1, {height}, {width}, 3), "uint8")'
        ask = STATUS.format(name=name)
    return LOAD.format(
        text=text,
        target=folder / str(version),
        call=call,
        mount=folder.resolve().parent,
        tensorflow=tf.__version__,
        ask=ask,
    )
