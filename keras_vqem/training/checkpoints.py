"""Checkpoints from which training goes on bit for bit, and averages of them."""

import pathlib
import re
import warnings
import zipfile
import zlib

import keras
import numpy as np
import tensorflow as tf

from keras_vqem.files import replacing
from keras_vqem.layers import DiscreteBottleneck

_FILE_NAME = "epoch-{:04d}.npz"
# What zipfile raises for files that are cut off or have flipped bytes.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
_REMEDY = (
    "Build and compile the model with the arguments that the checkpoint was written "
    "with, or start a new run in another folder."
)


def save_state(model, path, epoch, step=None):
    """Write all that training goes on from into one file, complete or not at all.

    That is every weight, every seed generator's state and every variable of the
    optimizer. Metrics are left out: `fit` resets them when an epoch begins. Under a
    `tf.distribute` strategy the values are those of the first replica.

    Args:
        model: A built model. One without an optimizer is saved without.
        path: The file, ending in `.npz`.
        epoch: Number of complete epochs.
        step: Number of optimizer steps so far; by default what the optimizer counted.
    """
    if step is None:
        step = 0
        if getattr(model, "optimizer", None) is not None:
            # Not int(iterations): a mirrored variable does not convert.
            step = _value(model.optimizer.iterations)
    arrays = {"epoch": np.int64(epoch), "step": np.int64(step)}
    for group, variables in _state(model).items():
        for position, variable in enumerate(variables):
            arrays[f"{group}/{position:05d}/{variable.path}"] = _value(variable)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def load_state(model, path):
    """Give a model the state that `save_state` wrote, on every replica.

    Args:
        model: A built model of the same architecture, compiled with the same kind of
            optimizer. Names may differ in the number that Keras adds (`dense_1`).
        path: The file.

    Returns:
        A tuple `(epoch, step)`, as given to `save_state`. Go on with
        `model.fit(..., initial_epoch=epoch)`.

    Raises:
        ValueError: If the file does not fit the model. The model is then unchanged.
    """
    with np.load(path) as file:
        # All is read and checked before the first is assigned.
        pairs = [
            (variable, _read(file, key, variable, path))
            for group, variables in _state(model).items()
            for key, variable in _matched(file, group, variables, path)
        ]
        epoch, step = int(file["epoch"]), int(file["step"])
    for variable, value in pairs:
        variable.assign(value)
    return epoch, step


def average_weights(model, paths, last_only=None):
    """Set the weights of a model to their mean over several checkpoints.

    Only floating-point weights are averaged. Seeds and the optimizer stay as they are
    in the model, which need not be compiled.

    Args:
        model: A built model of the checkpoints' architecture.
        paths: The files, oldest first, such as `list_checkpoints(folder)[-10:]`.
        last_only: Function from a weight's path, such as `"bottleneck/ema/vectors"`,
            to whether its value is taken from the last checkpoint alone. By default
            that is so for the `codebook_weights` of all bottlenecks, however deep
            they lie in the model.

    Raises:
        ValueError: If there are no paths, or a file does not fit the model.
    """
    paths = list(paths)
    if not paths:
        raise ValueError(
            "`paths` is empty: there is no checkpoint to average. Give the files that "
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
    # One checkpoint in memory at a time; float64 so that the order hardly matters.
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


def list_checkpoints(folder):
    """The files that `Checkpoints` wrote into a folder, oldest first."""
    epochs = {}
    for path in pathlib.Path(folder).glob("epoch-*.npz"):
        if match := re.fullmatch(r"epoch-(\d+)", path.stem):
            epochs[path] = int(match[1])
    return sorted(epochs, key=epochs.get)


def latest(folder):
    """The newest checkpoint in a folder that is whole, or None.

    Args:
        folder: Where `Checkpoints` writes. Damaged files in it are skipped with a
            warning.

    Returns:
        A path, or None where there is no whole checkpoint.
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
            f"{path} is damaged ({damaged}) and skipped in favour of the checkpoint "
            f"before it.",
            stacklevel=2,
        )
    return None


def resume(model, run_folder):
    """Take up a run where its last whole checkpoint left it.

    Args:
        model: The built and compiled model.
        run_folder: A `keras_vqem.training.RunFolder`, started. Metrics of epochs
            after the checkpoint are removed from it.

    Returns:
        The number of complete epochs, for `fit(initial_epoch=...)`; 0 where there is
        no checkpoint.
    """
    path = latest(run_folder.checkpoints)
    epoch, step = (0, 0) if path is None else load_state(model, path)
    run_folder.rewind(epoch)
    if path is not None:
        run_folder.log(f"restored {path.name}: {epoch} epochs, {step} steps")
    return epoch


def save_model(model, path):
    """Write `model.save(path)`, complete or not at all.

    Args:
        model: A Keras model.
        path: The file, ending in `.keras`.
    """
    if pathlib.Path(path).suffix != ".keras":
        raise ValueError(
            f"A saved model's name must end in .keras, received {str(path)!r}."
        )
    with replacing(path) as temporary:
        model.save(temporary)


class Checkpoints(keras.callbacks.Callback):
    """Saves the whole state of training after each epoch.

    `epoch-0012.npz` is the state after 12 complete epochs. List this callback last:
    what others write about an epoch is then there before its checkpoint is, and a run
    that is killed between the two does the epoch again.

    Args:
        folder: Where to write, created if missing.
        keep: How many checkpoints to keep. The oldest beyond them are removed, after
            the new one is complete.

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

    def __init__(self, folder, keep=10):
        super().__init__()
        if keep < 1:
            raise ValueError(f"`keep` must be at least 1, received {keep!r}.")
        self.folder = pathlib.Path(folder)
        self.keep = keep

    def on_train_begin(self, logs=None):
        self.folder.mkdir(parents=True, exist_ok=True)

    def on_epoch_end(self, epoch, logs=None):
        done = epoch + 1
        path = self.folder / _FILE_NAME.format(done)
        save_state(self.model, path, done)
        for old in list_checkpoints(self.folder)[: -self.keep]:
            old.unlink()


def _state(model):
    """All variables of a model by group; the weights can be read on their own."""
    if not model.built:
        raise ValueError(
            f"The model {model.name!r} has no weights yet. Build it first: call it on "
            f"one batch, or use model.build(...)."
        )
    weights = model.weights
    ids = {id(weight) for weight in weights}
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        # Else only `fit` would make its variables.
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
    # By way of a tensor, which for a mirrored variable is that of the first replica.
    return tf.convert_to_tensor(variable.value).numpy()


def _matched(file, group, variables, path):
    """Pair the keys of a file with variables; fail at the first that differ."""
    keys = sorted(key for key in file.files if key.startswith(f"{group}/"))
    for position, (key, variable) in enumerate(zip(keys, variables, strict=False)):
        saved = key.split("/", 2)[2]
        if _plain(saved) != _plain(variable.path):
            raise ValueError(
                f"{path} does not fit the model: number {position} of its {group} is "
                f"{saved!r}, the model has {variable.path!r} there. {_REMEDY}"
            )
    if len(keys) != len(variables):
        raise ValueError(
            f"{path} does not fit the model: it has {len(keys)} {group}, the model "
            f"has {len(variables)}. {_REMEDY}"
        )
    return list(zip(keys, variables, strict=True))


def _plain(path):
    """A variable's path without what Keras adds depending on what was made before."""
    # Numbers tell equal names apart; a loss-scaling optimizer's name goes before its
    # inner optimizer's only if a first step builds both.
    path = re.sub(r"_\d+(?=[_/]|$)", "", path)
    return path.removeprefix("loss_scale_optimizer/")


def _read(file, key, variable, path):
    value = file[key]
    if value.dtype.kind == "V":  # bfloat16, which NumPy's format stores as bytes
        value = value.view(_value(variable).dtype)
    if value.shape != tuple(variable.shape):
        raise ValueError(
            f"{path} does not fit the model: {variable.path!r} has shape "
            f"{value.shape} in it, {tuple(variable.shape)} in the model. {_REMEDY}"
        )
    return value
