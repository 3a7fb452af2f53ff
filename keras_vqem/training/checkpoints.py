"""Checkpoints from which training resumes bit for bit, and averages of them."""

import os
import pathlib
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vqem.files import replacing
from keras_vqem.layers import DiscreteBottleneck
from keras_vqem.training.run_folder import RunFolder

_FILE_NAME = "epoch-{:04d}.npz"
# Errors that zipfile raises for damaged files.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
_REMEDY = (
    "Build and compile the model with the arguments that the checkpoint was written "
    "with, or start a new run in another folder."
)


def save_state(
    model: keras.Model,
    path: str | os.PathLike,
    epoch: int,
    step: int | None = None,
) -> None:
    """Writes the state of training to one file, completely or not at all.

    The state consists of all weights, the states of all seed generators and all
    variables of the optimizer. Metrics are left out, because `fit` resets them at the
    start of an epoch. Under a `tf.distribute` strategy the values are those of the
    first replica.

    Args:
        model: A built model, with or without an optimizer.
        path: File to write, ending in `.npz`.
        epoch: Number of complete epochs.
        step: Number of optimizer steps so far. None takes the optimizer's count.
    """
    if step is None:
        step = 0
        if getattr(model, "optimizer", None) is not None:
            # A mirrored variable cannot be converted with int(iterations).
            step = _value(model.optimizer.iterations)
    arrays = {"epoch": np.int64(epoch), "step": np.int64(step)}
    for group, variables in _state(model).items():
        for position, variable in enumerate(variables):
            arrays[f"{group}/{position:05d}/{variable.path}"] = _value(variable)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def load_state(model: keras.Model, path: str | os.PathLike) -> tuple[int, int]:
    """Restores the state that `save_state` wrote, on every replica.

    Args:
        model: A built model of the same architecture, compiled with the same kind of
            optimizer. Names may differ in the number that Keras adds (`dense_1`).
        path: File to read.

    Returns:
        A tuple `(epoch, step)`, as passed to `save_state`. Continue with
        `model.fit(..., initial_epoch=epoch)`.

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
        epoch, step = int(file["epoch"]), int(file["step"])
    for variable, value in pairs:
        variable.assign(value)
    return epoch, step


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
        ValueError: If there are no paths, or a file does not fit the model.
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


def list_checkpoints(folder: str | os.PathLike) -> list[pathlib.Path]:
    """Returns the files that `Checkpoints` wrote to a folder, oldest first."""
    epochs = {}
    for path in pathlib.Path(folder).glob("epoch-*.npz"):
        if match := re.fullmatch(r"epoch-(\d+)", path.stem):
            epochs[path] = int(match[1])
    return sorted(epochs, key=epochs.get)


def latest(folder: str | os.PathLike) -> pathlib.Path | None:
    """Finds the newest checkpoint in a folder that is not damaged.

    Args:
        folder: Folder of `Checkpoints`. Damaged files are skipped with a warning.

    Returns:
        Path of the file, or None if there is none.
    """
    for path in reversed(list_checkpoints(folder)):
        try:
            with zipfile.ZipFile(path) as file:
                damaged = file.testzip()
        except _DAMAGE as error:
            damaged = error
        if damaged is None:
            return path
        warnings.warn(
            f"{path} is damaged ({damaged}). The checkpoint before it is used instead.",
            stacklevel=2,
        )
    return None


def resume(model: keras.Model, run_folder: RunFolder) -> int:
    """Restores the last checkpoint of a run that is not damaged.

    Args:
        model: A built and compiled model.
        run_folder: A `keras_vqem.training.RunFolder` that was started. The metrics of
            epochs after the checkpoint are removed from it.

    Returns:
        Number of complete epochs, for `fit(initial_epoch=...)`, or 0 if there is no
        checkpoint.
    """
    path = latest(run_folder.checkpoints)
    epoch, step = (0, 0) if path is None else load_state(model, path)
    run_folder.rewind(epoch)
    if path is not None:
        run_folder.log(f"restored {path.name}: {epoch} epochs, {step} steps")
    return epoch


def save_model(model: keras.Model, path: str | os.PathLike) -> None:
    """Saves a model to a file, completely or not at all.

    Args:
        model: A Keras model.
        path: File to write, ending in `.keras`.
    """
    if pathlib.Path(path).suffix != ".keras":
        raise ValueError(
            f"The file name of a saved model must end in .keras, received "
            f"{str(path)!r}."
        )
    with replacing(path) as temporary:
        model.save(temporary)


class Checkpoints(keras.callbacks.Callback):
    """Saves the state of training after each epoch.

    `epoch-0012.npz` is the state after 12 complete epochs. List this callback last, so
    that other callbacks write their results of an epoch before its checkpoint exists.
    A run that is killed in between then repeats the epoch.

    Args:
        folder: Folder to write to, created if missing.
        keep: Number of checkpoints to keep. Older ones are removed once the new one is
            complete.

    Example:

    >>> import tempfile
    >>> from keras_vqem.training import Checkpoints, latest, load_state
    >>> folder = tempfile.mkdtemp()
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("adam", "mse")
    >>> x, y = np.zeros((4, 2)), np.zeros((4, 1))
    >>> history = model.fit(
    ...     x, y, epochs=3, verbose=0, callbacks=[Checkpoints(folder, keep=2)]
    ... )
    >>> latest(folder).name
    'epoch-0003.npz'
    >>> load_state(model, latest(folder))
    (3, 3)
    """

    def __init__(self, folder: str | os.PathLike, keep: int = 10):
        super().__init__()
        if keep < 1:
            raise ValueError(f"`keep` must be at least 1, received {keep!r}.")
        self.folder = pathlib.Path(folder)
        self.keep = keep

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        done = epoch + 1
        path = self.folder / _FILE_NAME.format(done)
        save_state(self.model, path, done)
        for old in list_checkpoints(self.folder)[: -self.keep]:
            old.unlink()


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
