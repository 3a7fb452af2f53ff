"""The files that `tensorflow_model_server` is started with."""

import os
import pathlib
import re
from collections.abc import Mapping, Sequence

from keras_vqem.files import replacing
from keras_vqem.serving.api import serving_api


def write_configuration(
    folder: str | os.PathLike,
    models: Mapping[str, str | os.PathLike],
    max_batch_size: int = 64,
    batch_timeout_micros: int = 2000,
    num_batch_threads: int = 4,
    max_enqueued_batches: int = 100,
    allowed_batch_sizes: Sequence[int] = (),
) -> list[pathlib.Path]:
    """Writes `models.config` and `batching.config` for TensorFlow Serving.

    The server takes the first with `--model_config_file`, the second with
    `--enable_batching --batching_parameters_file`.

    Args:
        folder: Folder to write the two files to.
        models: Dict from the names of models to their base paths: the folders that
            hold the versions, as the server sees them, such as
            `{"en_de": "/models/en_de"}`.
        max_batch_size: Largest number of rows in a batch. The server refuses a
            request with more.
        batch_timeout_micros: Longest time, in microseconds, that a request waits for
            others to join its batch.
        num_batch_threads: Number of batches computed at a time, usually the number of
            the server's cores.
        max_enqueued_batches: Largest number of batches that wait for a thread. Beyond
            it requests fail at once, and clients should try again later.
        allowed_batch_sizes: Increasing numbers that end with `max_batch_size`, or
            empty for any size. A batch is padded to the next of them: useful on
            hardware that compiles once per size, a waste elsewhere.

    Returns:
        List of the paths of the two files.

    Example:

    >>> import tempfile
    >>> from keras_vqem.serving import write_configuration
    >>> models = {"en_de": "/models/en_de"}
    >>> paths = write_configuration(tempfile.mkdtemp(), models, max_batch_size=32)
    >>> print(paths[1].read_text().splitlines()[0])
    max_batch_size { value: 32 }

    Reference:
        https://www.tensorflow.org/tfx/serving/serving_config
    """
    numbers = {
        "max_batch_size": max_batch_size,
        "batch_timeout_micros": batch_timeout_micros,
        "num_batch_threads": num_batch_threads,
        "max_enqueued_batches": max_enqueued_batches,
    }
    texts = {
        "models.config": _models_text(models),
        "batching.config": _batching_text(numbers, list(allowed_batch_sizes)),
    }
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _models_text(models):
    from google.protobuf import text_format

    if not models:
        raise ValueError(
            "There is no model to serve. Pass names and base paths, such as "
            '{"en_de": "/models/en_de"}.'
        )
    config = serving_api("config.model_server_config_pb2").ModelServerConfig()
    for name, path in models.items():
        # Names are part of addresses: /v1/models/en_de:predict.
        if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
            raise ValueError(
                f"The name of a model is part of addresses, received {name!r}. Use "
                "letters, digits, '_', '-' and '.'."
            )
        path = str(path)
        if not path.startswith("/") and "://" not in path:
            raise ValueError(
                f"The base path of {name!r} must be absolute, as the server sees it; "
                f"received {path!r}. In a container that is usually /models/{name}."
            )
        config.model_config_list.config.add(
            name=name, base_path=path, model_platform="tensorflow"
        )
    return text_format.MessageToString(config)


def _batching_text(numbers, sizes):
    # Its proto, BatchingParameters, is not part of tensorflow-serving-api.
    for name, number in numbers.items():
        least = 0 if name == "batch_timeout_micros" else 1
        if int(number) != number or number < least:
            raise ValueError(
                f"`{name}` must be a whole number from {least}, received {number!r}."
            )
    largest = numbers["max_batch_size"]
    if sizes and (sizes != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] != largest):
        raise ValueError(
            f"`allowed_batch_sizes` must increase and end with `max_batch_size`, "
            f"{largest}; received {sizes}. Leave it out to allow any."
        )
    # Not here, since codes have as many columns as the longest row of a batch:
    # `enable_large_batch_splitting`, which would have to join parts of different
    # widths, and `pad_variable_length_inputs`, which pads ids with the first of them.
    lines = [f"{name} {{ value: {int(number)} }}" for name, number in numbers.items()]
    lines += [f"allowed_batch_sizes: {int(size)}" for size in sizes]
    return "\n".join(lines) + "\n"
