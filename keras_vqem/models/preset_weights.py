"""Weights of presets: by name, and with sizes that are checked before they are used.

A preset may come from anybody. What its config asks for is compared with what its
weights hold before a model of that size is made, and what the weights claim to hold
with the size of their file before they are read.
"""

import contextlib
import math
import os
import pathlib
import re
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

REMEDY = "Download the preset again, or load another one."
# Arguments by which layers are counted: each layer has at least one weight.
COUNTS = re.compile(r"num_\w*(layers|blocks|steps)|convolutions")
MAX_PIXELS = 2**22  # An image model is built by encoding an image.
# Metrics and seeds, which presets do not keep.
MORE_WEIGHTS, MORE_NUMBERS = 1000, 10**6
# Weights that compress better than this by far were never trained, or are a trap.
MAX_RATIO, SMALL_FILE = 100, 2**28


class PresetError(ValueError):
    """Raised for a preset that is damaged, foreign, or of another version."""


class _Stored(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype


class StoredWeights:
    """The weights in a file of a preset. Only their names and sizes are read at first.

    Args:
        path: Path of the file, as `numpy.savez` writes it.

    Raises:
        PresetError: If the file is damaged, or claims to hold more than it does.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        try:
            self._stored = _headers(self.path)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise self._error(f"is damaged ({error!r})") from error

    def _error(self, words):
        return PresetError(f"{self.path} {words}. {REMEDY}")

    @contextlib.contextmanager
    def limiting(self, config: Any) -> Iterator[None]:
        """Context manager that refuses to make a model that is larger than the weights.

        Args:
            config: Config of the model that is made inside.
        """
        self._check_counts(config)
        weights = len(self._stored) + MORE_WEIGHTS
        numbers = MORE_NUMBERS + 2 * sum(
            math.prod(stored.shape) for stored in self._stored.values()
        )
        graph, refusal = tf.Graph(), None

        # TensorFlow calls this before it makes a variable.
        def create(next_creator, **kwargs):
            nonlocal weights, numbers, refusal
            value = kwargs["initial_value"]
            if callable(value):
                with graph.as_default():  # A graph computes no values, only shapes.
                    value = value()
            weights -= 1
            numbers -= math.prod(value.shape)
            if min(weights, numbers) < 0:
                refusal = self._error(
                    f"holds fewer weights than the config of the model asks for: "
                    f"there is no room for one of shape {tuple(value.shape)}"
                )
                raise refusal
            return next_creator(**kwargs)

        try:
            with tf.variable_creator_scope(create):
                yield
        finally:  # Keras turns some errors into others, and some into warnings.
            if refusal is not None:
                raise refusal

    def _check_counts(self, config, name=""):
        if isinstance(config, dict):
            for name, value in config.items():
                self._check_counts(value, name)
            return
        if name == "image_size":
            height, width = map(int, config)
            if height * width > MAX_PIXELS:
                raise PresetError(
                    f"{self.path.parent}: image_size is {config}, and presets are for "
                    f"images of at most {MAX_PIXELS} pixels. Load another one."
                )
        elif isinstance(config, list):
            for value in config:
                self._check_counts(value)
        elif isinstance(config, int) and COUNTS.fullmatch(name):
            if config > len(self._stored):
                raise self._error(
                    f"holds {len(self._stored)} arrays, too few for {name}={config} in "
                    f"the config of the model"
                )

    def load_into(self, model: keras.Model) -> None:
        """Checks names, shapes, types and values, then sets the weights of a model.

        Args:
            model: A built model.

        Raises:
            PresetError: If the weights do not fit the model. Then it stays as it was.
        """
        weights = named_weights(model)
        if self._stored.keys() != weights.keys():
            missing = sorted(weights.keys() - self._stored.keys())
            foreign = sorted(self._stored.keys() - weights.keys())
            raise self._error(
                f"does not fit the model. Missing in the file: "
                f"{missing[:3] or 'none'}. Not in the model: {foreign[:3] or 'none'}"
            )
        for name, weight in weights.items():
            stored = self._stored[name]
            wanted = keras.backend.standardize_dtype(weight.dtype)
            if stored.shape != tuple(weight.shape):
                raise self._error(
                    f"has {name} with shape {stored.shape}, but the model needs "
                    f"{tuple(weight.shape)}"
                )
            floats = ("float32", "float16")
            if str(stored.dtype) not in (floats if wanted in floats else (wanted,)):
                raise self._error(
                    f"has {name} with dtype {stored.dtype}, but the model needs "
                    f"{wanted}"
                )
        with np.load(self.path, allow_pickle=False) as file:
            values = {name: file[name] for name in weights}
        for name, value in values.items():
            if not finite(value):
                raise self._error(f"has NaN or infinite values in {name}")
        for name, weight in weights.items():
            weight.assign(values[name])


def _headers(path):
    """Returns names, shapes and types of the arrays in a file, and checks its size."""
    found, total = {}, 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name == member.filename or name in found:
                raise ValueError(f"{member.filename!r} is not an array, or is twice")
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                if version != (1, 0):
                    raise ValueError(f"{name} has version {version} of the format")
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                size = file.tell() + math.prod(shape) * dtype.itemsize
            if dtype.hasobject:
                raise ValueError(f"{name} holds objects, which only pickle can read")
            if size != member.file_size:
                raise ValueError(
                    f"{name} claims {size} bytes and has {member.file_size}"
                )
            found[name] = _Stored(shape, dtype)
            total += size
    if total > max(SMALL_FILE, MAX_RATIO * path.stat().st_size):
        raise ValueError(f"its {path.stat().st_size} bytes would become {total}")
    return found


def named_weights(layer: keras.layers.Layer) -> dict[str, keras.Variable]:
    """Returns weights by the names of the layers around them, outermost first.

    `weight.path` would not do: it depends on whether the model or its user built a
    layer.

    Args:
        layer: A built layer or model.

    Returns:
        Dict from names such as `encoder/block_0/norm/gamma` to variables.

    Raises:
        ValueError: If two weights have the same name.
    """
    named = {}
    for inner in layer._flatten_layers(include_self=False, recursive=False):
        named |= {
            f"{inner.name}/{name}": weight
            for name, weight in named_weights(inner).items()
        }
    known = {id(weight) for weight in named.values()}
    named |= {
        weight.name: weight for weight in layer.weights if id(weight) not in known
    }
    if len(named) != len(layer.weights):
        raise ValueError(
            f"Two layers or weights in {layer.name!r} have the same name. Give them "
            f"different names, so that a preset can tell their weights apart."
        )
    return named


def finite(value: np.ndarray) -> bool:
    """Returns whether an array has neither NaN nor infinite values."""
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())
