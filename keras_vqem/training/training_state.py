"""The state of training in one file, and means of the weights in several files."""

import os
import pathlib
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_vqem.checks import nonfinite_weight
from keras_vqem.files import replacing
from keras_vqem.layers import DiscreteBottleneck
from keras_vqem.training.guards import DivergedError

# Errors that zipfile and NumPy raise for damaged files.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, ValueError)
_MOST = 1e18  # The square of a larger weight is no float32.
_REMEDY = (
    "Build and compile the model with the arguments that the checkpoint was written "
    "with, or start a new run in another folder."
)


class Position(NamedTuple):
    """Place in a run at which a state was saved.

    Attributes:
        epoch: Number of complete epochs.
        batch: Number of batches that were trained on in the epoch after them.
        step: Number of steps of the optimizer so far.
        seconds: Time spent in the epoch that is not complete.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0


def save_state(
    model: keras.Model,
    path: str | os.PathLike,
    epoch: int,
    batch: int = 0,
    seconds: float = 0.0,
) -> None:
    """Writes the state of training to one file, completely or not at all.

    The state consists of all weights, the states of all seed generators, all variables
    of the optimizer, and the sums behind the metrics of the epoch. Under a
    `tf.distribute` strategy the values are those of the first replica, except for
    metrics, where each replica has its own.

    Args:
        model: A built model, with or without an optimizer.
        path: File to write, ending in `.npz`.
        epoch: Number of complete epochs.
        batch: Number of batches that were trained on in the epoch after them.
        seconds: Time spent in the epoch that is not complete.

    Raises:
        DivergedError: If a value is NaN or infinite, or a weight so large that the
            next step would be.
        OSError: If the file cannot be written, for example because the disk is full.
            The file that was there before is unchanged.
    """
    step = 0
    if getattr(model, "optimizer", None) is not None:
        # With gradient accumulation it is a tensor, else a variable.
        iterations = model.optimizer.iterations
        step = tf.convert_to_tensor(getattr(iterations, "value", iterations)).numpy()
    arrays = {
        "epoch": np.int64(epoch),
        "batch": np.int64(batch),
        "step": np.int64(step),
        "seconds": np.float64(seconds),
    }
    for group, variables in _state(model).items():
        for position, variable in enumerate(variables):
            value = _value(variable)
            if not _finite(value, _MOST if group == "weights" else np.inf):
                raise DivergedError(
                    f"Training diverged: {variable.path} has values that are NaN, "
                    f"infinite or beyond {_MOST:g} after step {step}. {path} was not "
                    f"written, checkpoints before it are good. Start a new run with a "
                    f"lower learning rate or a longer warm-up."
                )
            arrays[f"{group}/{position:05d}/{variable.path}"] = value
    for position, (name, value) in enumerate(metric_values(model)):
        arrays[f"metrics/{position:05d}/{name}"] = value
    try:
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, **arrays)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{path} could not be written ({error.strerror or error}). Checkpoints "
            f"before it are intact: make room, and resume the run",
        ) from error


def load_state(model: keras.Model, path: str | os.PathLike) -> Position:
    """Restores the state that `save_state` wrote, on every replica.

    Args:
        model: A built model of the same architecture, compiled with the same kind of
            optimizer. Names may differ in the number that Keras adds (`dense_1`).
        path: File to read.

    Returns:
        The `Position` of the state. If its `batch` is 0, continue with
        `model.fit(..., initial_epoch=position.epoch)`; `keras_vqem.training.Run` also
        continues within an epoch.

    Raises:
        ValueError: If the file does not fit the model, which is then unchanged.
    """
    with np.load(path) as file:
        # All values are read and checked before the first one is assigned.
        pairs = [
            (variable, _read(file, key, variable, path))
            for group, variables in _state(model).items()
            for key, variable in _matched(file, group, variables, path)
        ]
        # Files of earlier versions have no values within an epoch.
        found = {n: file[n].item() for n in Position._fields if n in file.files}
        keys = sorted(key for key in file.files if key.startswith("metrics/"))
        metrics = [(key.split("/", 2)[2], file[key]) for key in keys]
    for variable, value in pairs:
        variable.assign(value)
    position = Position(**found)
    known = [_plain(name) for name, _ in metric_values(model)]
    if known == [_plain(name) for name, _ in metrics]:
        set_metric_values(model, [value for _, value in metrics])
    elif position.batch:
        warnings.warn(
            f"The metrics in {path} are not those of the model, which may create them "
            f"in its first step. The next epoch's metrics are about its rest only.",
            stacklevel=2,
        )
    return position


def metric_values(model: keras.Model) -> list[tuple[str, np.ndarray]]:
    """Returns the variables of all metrics: path, and values with an axis of replicas.

    Args:
        model: A Keras model.

    Returns:
        A list of tuples of a path and an array `[replicas, ...]`.
    """
    return [
        (variable.path, np.stack([copy.numpy() for copy in copies]))
        for variable, copies in _metric_copies(model)
    ]


def set_metric_values(model: keras.Model, values: Iterable[np.ndarray]) -> None:
    """Sets the variables of all metrics to the values that `metric_values` returned.

    Args:
        model: A Keras model.
        values: Arrays `[replicas, ...]`. If there were other replicas, their sum goes
            to the first.
    """
    for (_, copies), value in zip(_metric_copies(model), values, strict=True):
        if len(copies) != len(value):
            others = np.zeros_like(value, shape=(len(copies) - 1, *value.shape[1:]))
            value = np.concatenate([value.sum(axis=0, keepdims=True), others])
        for copy, of_replica in zip(copies, value, strict=True):
            copy.assign(of_replica)


def problem_of(path: str | os.PathLike) -> str | None:
    """Returns what is wrong with a file of `save_state`, or None if it is good.

    Args:
        path: File to read completely.
    """
    try:
        with np.load(path) as file:
            for key in file.files:
                if not key.startswith("metrics/") and not _finite(file[key]):
                    return f"{key} has values that are NaN or infinite"
    except _DAMAGE as error:
        return f"{type(error).__name__}: {error}"
    return None


def average_weights(
    model: keras.Model,
    paths: Iterable[str | os.PathLike],
    last_only: Callable[[str], bool] | None = None,
) -> None:
    """Sets the weights of a model to their mean over several checkpoints.

    Only floating-point weights are averaged. Seeds and optimizer of the model do not
    change; the model need not be compiled.

    Args:
        model: A built model with the architecture of the checkpoints.
        paths: Files, oldest first, such as `list_checkpoints(folder)[-10:]`.
        last_only: Function that takes the path of a weight, such as
            `"bottleneck/ema/vectors"`, and returns whether to take its value from the
            last checkpoint alone. None does so for the `codebook_weights` of all
            bottlenecks in the model, at any depth.

    Raises:
        ValueError: If there are no paths, or a file is damaged, has values that are
            not finite, or does not fit the model.
    """
    paths = list(paths)
    if not paths:
        raise ValueError(
            "`paths` is empty: there is no checkpoint to average. Pass files that "
            "`Checkpoints` wrote, for example list_checkpoints(folder)[-10:]."
        )
    weights = model.weights
    if last_only is None:
        kept = _codebook_ids(model)
    else:
        kept = {id(weight) for weight in weights if last_only(weight.path)}
    averaged = [
        keras.backend.is_float_dtype(weight.dtype) and id(weight) not in kept
        for weight in weights
    ]
    # Only one checkpoint is in memory at a time. In float64 the order hardly matters.
    totals = [0.0] * len(weights)
    for path in paths:
        if problem := problem_of(path):
            raise ValueError(
                f"{path} cannot be averaged ({problem}). Leave it out, or restore it."
            )
        with np.load(path) as file:
            matched = _matched(file, "weights", weights, path)
            for i, (key, weight) in enumerate(matched):
                if averaged[i]:
                    value = _read(file, key, weight, path)
                    totals[i] = totals[i] + value.astype("float64") / len(paths)
                elif path is paths[-1]:
                    totals[i] = _read(file, key, weight, path)
    for weight, value in zip(weights, totals, strict=True):
        weight.assign(value)


def save_model(model: keras.Model, path: str | os.PathLike) -> None:
    """Saves a model to a file, completely or not at all.

    Args:
        model: A Keras model.
        path: File to write, ending in `.keras`.

    Raises:
        DivergedError: If a weight is NaN or infinite.
    """
    if pathlib.Path(path).suffix != ".keras":
        raise ValueError(
            f"The file name of a saved model must end in .keras, received "
            f"{str(path)!r}."
        )
    if name := nonfinite_weight(model):
        raise DivergedError(
            f"{name} has values that are NaN or infinite, so {path} was not written."
        )
    with replacing(path) as temporary:
        model.save(temporary)


def _state(model):
    """Returns all variables of a model by group."""
    if not model.built:
        raise ValueError(
            f"The model {model.name!r} has no weights yet. Build it first: call it on "
            f"one batch, or use model.build(...)."
        )
    weights = model.weights
    ids = {id(weight) for weight in weights}
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        # Otherwise only `fit` would create its variables.
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
    return {
        "weights": weights,
        "seeds": [v for v in model.variables if id(v) not in ids],
        "optimizer": [] if optimizer is None else optimizer.variables,
    }


def _codebook_ids(model):
    return {
        id(weight)
        for layer in model._flatten_layers()
        if isinstance(layer, DiscreteBottleneck)
        for weight in layer.codebook_weights
    }


def _metric_copies(model):
    """Returns all variables of metrics, each with the list of its replicas' copies."""
    variables = {id(v): v for metric in model.metrics for v in metric.variables}
    return [
        # Reading the variable itself would sum over replicas.
        (variable, list(getattr(variable.value, "values", [variable.value])))
        for variable in variables.values()
    ]


def _finite(value, most=np.inf):
    if value.dtype.name == "bfloat16":
        value = value.astype("float32")
    # Integers are finite. NumPy's format stores bfloat16 as bytes, checked before.
    if value.dtype.kind != "f":
        return True
    return bool(np.isfinite(value).all() and (np.abs(value) <= most).all())


def _value(variable):
    # The tensor of a mirrored variable is that of the first replica.
    return tf.convert_to_tensor(variable.value).numpy()


def _matched(file, group, variables, path):
    """Pairs the keys of a file with variables, or raises if they do not match."""
    keys = sorted(key for key in file.files if key.startswith(f"{group}/"))
    for position, (key, variable) in enumerate(zip(keys, variables, strict=False)):
        saved = key.split("/", 2)[2]
        if _plain(saved) != _plain(variable.path):
            raise ValueError(
                f"{path} does not fit the model: number {position} of its {group} is "
                f"{saved!r}, but the model has {variable.path!r}. {_REMEDY}"
            )
    if len(keys) != len(variables):
        raise ValueError(
            f"{path} does not fit the model: it has {len(keys)} {group}, but the "
            f"model has {len(variables)}. {_REMEDY}"
        )
    return list(zip(keys, variables, strict=True))


def _plain(path):
    """Returns a variable's path without parts that depend on earlier variables."""
    # Keras numbers equal names. It puts the name of a loss-scaling optimizer before
    # that of its inner optimizer only if a first step builds both.
    path = re.sub(r"_\d+(?=[_/]|$)", "", path)
    return path.removeprefix("loss_scale_optimizer/")


def _read(file, key, variable, path):
    value = file[key]
    if value.dtype.kind == "V":  # NumPy's format stores bfloat16 as bytes.
        value = value.view(_value(variable).dtype)
    if value.shape != tuple(variable.shape):
        raise ValueError(
            f"{path} does not fit the model: {variable.path!r} has shape "
            f"{value.shape} in the file, but {tuple(variable.shape)} in the model. "
            f"{_REMEDY}"
        )
    return value
