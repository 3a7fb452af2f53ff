"""Configuration files of `tensorflow_model_server`."""

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from keras_vqem.files import replacing
from keras_vqem.serving.api import serving_api

MODELS, BATCHING = "models.config", "batching.config"


def write_configuration(
    folder: str | os.PathLike,
    models: Mapping[str, str | os.PathLike],
    **batching: Any,
) -> list[pathlib.Path]:
    """Writes `models.config` and `batching.config` for TensorFlow Serving.

    The server takes the first with `--model_config_file`, the second with
    `--enable_batching --batching_parameters_file`.

    Args:
        folder: Folder to write to.
        models: Dict from names to base paths, the folders of the versions as the
            server sees them, such as `{"en_de": "/models/en_de"}`.
        **batching: Arguments of `write_batching`.

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
    if not models:
        raise ValueError(
            "There is no model to serve. Pass names and base paths, such as "
            '{"en_de": "/models/en_de"}.'
        )
    config = _server_config()
    for name, path in models.items():
        _add(config, name, path)
    written = write_batching(folder, **batching)  # First, since it may raise.
    return [_write_models(folder, config), written]


def add_model(
    folder: str | os.PathLike, name: str, base_path: str | os.PathLike
) -> list[pathlib.Path]:
    """Adds a model to the configuration files of a folder.

    Other models in `models.config` stay. `batching.config` is written only if there is
    none.

    Args:
        folder: Folder with the files of `write_configuration`, or without any.
        name: Name of the model.
        base_path: Folder of its versions, as the server sees it.

    Returns:
        List of the paths of the two files.
    """
    config = read_models(folder)
    models, batching = (pathlib.Path(folder) / file for file in (MODELS, BATCHING))
    # A file that needs no change keeps its comments.
    if name not in [model.name for model in config.model_config_list.config]:
        _add(config, name, base_path)
        _write_models(folder, config)
    if not batching.is_file():
        write_batching(folder)
    return [models, batching]


def read_models(folder: str | os.PathLike) -> Any:
    """Reads the `models.config` of a folder.

    Args:
        folder: Folder of the file.

    Returns:
        A `ModelServerConfig`, empty if there is no file.

    Raises:
        ValueError: If the file cannot be read.
    """
    from google.protobuf import text_format

    path, config = pathlib.Path(folder) / MODELS, _server_config()
    if path.is_file():
        try:
            text_format.Parse(path.read_text(encoding="utf-8"), config)
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise ValueError(
                f"{path} is not a configuration of TensorFlow Serving ({error}). "
                f"Correct it, or move it away."
            ) from error
    return config


def write_batching(
    folder: str | os.PathLike,
    max_batch_size: int = 64,
    batch_timeout_micros: int = 2000,
    num_batch_threads: int = 4,
    max_enqueued_batches: int = 100,
    allowed_batch_sizes: Sequence[int] = (),
) -> pathlib.Path:
    """Writes `batching.config`, for `--batching_parameters_file`.

    Args:
        folder: Folder to write to.
        max_batch_size: Maximum number of rows per batch. A request with more rows
            fails.
        batch_timeout_micros: Time in microseconds that a request waits for others.
        num_batch_threads: Number of batches computed in parallel, usually the number
            of cores of the server.
        max_enqueued_batches: Number of batches that may wait for a thread. Beyond it,
            requests fail at once, and clients should try again later.
        allowed_batch_sizes: Increasing sizes that end with `max_batch_size`, or empty
            for any size. Batches are padded to the next allowed size, which helps on
            hardware that compiles once per size and costs time elsewhere.

    Returns:
        The path of the file.
    """
    numbers = {
        "max_batch_size": max_batch_size,
        "batch_timeout_micros": batch_timeout_micros,
        "num_batch_threads": num_batch_threads,
        "max_enqueued_batches": max_enqueued_batches,
    }
    return _write(folder, BATCHING, _batching_text(numbers, list(allowed_batch_sizes)))


def _write(folder, name, text):
    path = pathlib.Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _write_models(folder, config):
    from google.protobuf import text_format

    return _write(folder, MODELS, text_format.MessageToString(config))


def _server_config():
    return serving_api("config.model_server_config_pb2").ModelServerConfig()


def _add(config, name, path):
    # Names are part of addresses: /v1/models/en_de:predict.
    if not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise ValueError(
            f"The name of a model is part of URLs, received {name!r}. Use only "
            "letters, digits, '_', '-' and '.'."
        )
    path = str(path)
    if not path.startswith("/") and "://" not in path:
        raise ValueError(
            f"The base path of {name!r} must be absolute, as the server sees it, "
            f"received {path!r}. In a container it is usually /models/{name}."
        )
    config.model_config_list.config.add(
        name=name, base_path=path, model_platform="tensorflow"
    )


def _batching_text(numbers, sizes):
    # Its proto, BatchingParameters, is not part of tensorflow-serving-api.
    for name, number in numbers.items():
        least = 0 if name == "batch_timeout_micros" else 1
        if int(number) != number or number < least:
            raise ValueError(
                f"`{name}` must be an integer of at least {least}, received {number!r}."
            )
    largest = numbers["max_batch_size"]
    if sizes and (sizes != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] != largest):
        raise ValueError(
            f"`allowed_batch_sizes` must increase and end with `max_batch_size`, "
            f"which is {largest}, received {sizes}. Leave it out to allow any size."
        )
    # Codes have as many columns as the longest row of a batch. So two options are left
    # out: `enable_large_batch_splitting` would have to join parts of different widths,
    # and `pad_variable_length_inputs` pads ids with the first of them.
    lines = [f"{name} {{ value: {int(number)} }}" for name, number in numbers.items()]
    lines += [f"allowed_batch_sizes: {int(size)}" for size in sizes]
    return "\n".join(lines) + "\n"
