"""Presets: a trained model as a folder of plain files that nothing can run from.

config.json      class and arguments of the model, what it is about, SHA-256 of files
weights.npz      arrays, float32 or float16
tokenizer.model  of translators
README.md        the model card
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import zipfile

import keras
import numpy as np

from keras_vqem.files import replacing, write_json

FORMAT = 2
CONFIG, WEIGHTS, CARD = "config.json", "weights.npz", "README.md"
TOKENIZER = "tokenizer.model"
# Where presets that come with the package lie: in a checkout, and installed.
PACKAGE = pathlib.Path(__file__).parents[1]
SHIPPED = (PACKAGE.parent / "saved_models", PACKAGE / "saved_models")
# Objects of Keras itself that a config may name. Ours are known by their package.
KERAS_CLASSES = {
    "DTypePolicy",
    "Constant",
    "GlorotUniform",
    "RandomNormal",
    "RandomUniform",
    "VarianceScaling",
    "Zeros",
    # Temperatures and rates of bottlenecks may follow these.
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
}


REMEDY = "Get the preset anew, or load another one."


class PresetError(ValueError):
    """A preset that is damaged, foreign, or of another version."""


@contextlib.contextmanager
def _blaming(path):
    """Whatever goes wrong inside is the fault of a preset's file."""
    try:
        yield
    except PresetError:
        raise
    except Exception as error:
        raise PresetError(
            f"{path} does not make a model ({type(error).__name__}: {error}). It is "
            f"damaged, foreign, or of another version: update keras_vqem, or get the "
            f"preset anew."
        ) from error


class Presets:
    """Mixin of the models that can be saved to a preset and loaded from one."""

    tokenizer = None  # of a translator; its file is part of the preset

    def save_to_preset(self, folder, card="", half=False, about=None):
        """Writes the model to a folder: config, weights, tokenizer, model card.

        Args:
            folder: A new folder, or one that holds a preset to replace. That one is
                replaced as a whole, when all of the new one is written.
            card: Text of the model card: data and their terms, command, metrics,
                limits.
            half: Whether weights are stored in half precision, in half the space.
                They are float32 again when loaded, rounded to about three digits.
            about: A dict of what `keras_vqem.zoo` shows: `task`, `data`, `metrics`.
        """
        if not self.built:
            self.build()
        dtype = "float16" if half else "float32"
        arrays = {}
        for name, weight in _named_weights(self).items():
            value = keras.ops.convert_to_numpy(weight)
            if not _finite(value):
                raise ValueError(
                    f"Weight {weight.path} holds NaN or infinity: training diverged. "
                    f"Save an earlier checkpoint."
                )
            if value.dtype == np.float32:
                value = value.astype(dtype)
                if not _finite(value):
                    raise ValueError(
                        f"Weight {weight.path} holds numbers that half precision "
                        f"cannot. Save with half=False."
                    )
            arrays[name] = value
        with _replacing_folder(folder) as new:
            np.savez_compressed(new / WEIGHTS, **arrays)
            names = [WEIGHTS]
            if self.tokenizer is not None:
                self.tokenizer.save_assets(new)
                names.append(TOKENIZER)
            (new / CARD).write_text(card, encoding="utf-8")
            write_json(
                new / CONFIG,
                {
                    "format": FORMAT,
                    "about": about or {},
                    "model": _uncompiled(keras.saving.serialize_keras_object(self)),
                    "files": {name: _sha256(new / name) for name in names},
                },
            )

    @classmethod
    def from_preset(cls, name):
        """Loads a model from a preset.

        Nothing of the preset is executed: it is JSON, arrays and a vocabulary.

        Args:
            name: Of a preset that comes with the package, or a preset's folder.

        Returns:
            The model, of this class or a subclass; not compiled.

        Raises:
            FileNotFoundError: If there is no such preset.
            PresetError: If a file of it is missing, damaged or foreign.
        """
        folder = preset_folder(name)
        record = read_config(folder)
        for name, digest in record["files"].items():
            _check_file(folder, name, digest)
        with _blaming(folder / CONFIG):
            model = keras.saving.deserialize_keras_object(
                record["model"], safe_mode=True
            )
        if not isinstance(model, cls):
            raise PresetError(
                f"{folder} holds a {type(model).__name__}, not a {cls.__name__}. Load "
                f"it with {type(model).__name__}.from_preset."
            )
        if model.tokenizer is not None:
            if TOKENIZER not in record["files"]:
                raise PresetError(f"{folder / CONFIG} names no {TOKENIZER}. {REMEDY}")
            with _blaming(folder / TOKENIZER):
                model.tokenizer.load_assets(folder)
        with _blaming(folder / CONFIG):
            if not model.built:
                model.build()
        with _blaming(folder / WEIGHTS):
            _load_weights(model, folder / WEIGHTS)
        return model


def shipped():
    """Names of the presets that come with the package."""
    return sorted({p.parent.name for s in SHIPPED for p in s.glob(f"*/{CONFIG}")})


def preset_folder(name):
    """The folder of a preset, by its name or its path."""
    for folder in (pathlib.Path(name), *(place / name for place in SHIPPED)):
        if (folder / CONFIG).is_file():
            return folder
        if (folder / WEIGHTS).is_file():
            raise PresetError(f"{folder / CONFIG} is missing. {REMEDY}")
    raise FileNotFoundError(
        f"There is no preset {str(name)!r}. The package has "
        f"{', '.join(shipped()) or 'none'}; or pass a folder that save_to_preset wrote."
    )


@contextlib.contextmanager
def _replacing_folder(folder):
    """A new folder to write to, which takes the place of `folder` when complete."""
    folder = pathlib.Path(folder).absolute()
    if folder.exists() and any(folder.iterdir()) and not (folder / CONFIG).is_file():
        raise FileExistsError(
            f"{folder} holds something that is no preset, which would be lost. Choose "
            f"another folder."
        )
    new, old = (
        folder.with_name(f".{folder.name}.{os.getpid()}.{part}")
        for part in ("partial", "old")
    )
    new.mkdir(parents=True)
    try:
        yield new
        # A folder cannot be renamed onto a full one.
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_config(folder):
    """The checked content of a preset's config.json: `about`, `files`, `model`."""
    path = folder / CONFIG
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found = record["format"]
        if found != FORMAT:
            remedy = (
                "Save the preset anew with this version, from its run or .keras file."
                if found in range(FORMAT)
                else "Update keras_vqem."
            )
            raise PresetError(
                f"{path} has format {found!r}, and this version of keras_vqem reads "
                f"format {FORMAT}. {remedy}"
            )
        files, model = dict(record["files"]), record["model"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        if isinstance(error, PresetError):
            raise
        raise PresetError(f"{path} is damaged ({error!r}). {REMEDY}") from error
    if WEIGHTS not in files:
        raise PresetError(f"{path} names no {WEIGHTS}. {REMEDY}")
    model = _uncompiled(model)
    with _blaming(path):
        _check_objects(model, path)
    about = record.get("about")
    about = about if isinstance(about, dict) else {}
    return {"about": about, "files": files, "model": model}


def describe(folder, card, about):
    """Gives a preset another model card and other facts; weights stay as they are."""
    folder = preset_folder(folder)
    read_config(folder)
    record = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    with replacing(folder / CARD) as file:
        file.write_text(card, encoding="utf-8")
    write_json(folder / CONFIG, {**record, "about": about})


def _uncompiled(value):
    """A config without optimizers and losses, which are no part of a trained model."""
    if isinstance(value, dict):
        return {k: _uncompiled(v) for k, v in value.items() if k != "compile_config"}
    return [_uncompiled(v) for v in value] if isinstance(value, list) else value


def _check_objects(value, path):
    """Raises unless all objects that a config names are ours or harmless."""
    if isinstance(value, dict):
        if "class_name" in value:
            registered = value.get("registered_name") or ""
            ours = (
                registered == f"keras_vqem>{value['class_name']}"
                and keras.saving.get_registered_object(registered) is not None
            )
            module = str(value.get("module"))
            # Keras looks at the registered name first.
            known = (
                value["class_name"] in KERAS_CLASSES
                and re.fullmatch(r"keras(\.\w+)*", module)
                and registered in ("", value["class_name"])
            )
            if not (ours or known):
                raise PresetError(
                    f"{path} names an object that presets cannot hold: "
                    f"{module}.{value['class_name']} ({registered or 'not registered'})"
                    f". It is foreign, or needs a newer keras_vqem."
                )
        for inner in value.values():
            _check_objects(inner, path)
    elif isinstance(value, list):
        for inner in value:
            _check_objects(inner, path)


def _check_file(folder, name, digest):
    if pathlib.PurePath(name).name != name:
        raise PresetError(
            f"{folder / CONFIG} names a file outside its folder: {name!r}. Do not use "
            f"this preset."
        )
    path = folder / name
    if not path.is_file():
        raise PresetError(f"{path} is missing. {REMEDY}")
    if _sha256(path) != digest:
        raise PresetError(
            f"{path} is not the file that {CONFIG} was written with: its SHA-256 "
            f"differs. {REMEDY}"
        )


def _named_weights(layer):
    """Weights by the names of the layers that hold them, from the outermost inward.

    Not by `weight.path`, which depends on who built a layer: the model or its user.
    """
    named = {}
    for inner in layer._flatten_layers(include_self=False, recursive=False):
        named |= {
            f"{inner.name}/{name}": weight
            for name, weight in _named_weights(inner).items()
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


def _finite(value):
    return value.dtype.kind != "f" or bool(np.isfinite(value).all())


def _load_weights(model, path):
    try:
        with np.load(path, allow_pickle=False) as file:
            values = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise PresetError(f"{path} is damaged ({error!r}). {REMEDY}") from error
    weights = _named_weights(model)
    if values.keys() != weights.keys():
        missing = sorted(weights.keys() - values.keys())
        foreign = sorted(values.keys() - weights.keys())
        raise PresetError(
            f"{path} does not fit the model: it lacks {missing[:3] or 'nothing'}, and "
            f"the model has no {foreign[:3] or 'less'}. {REMEDY}"
        )
    for name, weight in weights.items():
        value, wanted = values[name], keras.backend.standardize_dtype(weight.dtype)
        if value.shape != tuple(weight.shape):
            raise PresetError(
                f"{path}: {name} has shape {value.shape}, and the model wants "
                f"{tuple(weight.shape)}. {REMEDY}"
            )
        floats = ("float32", "float16")
        if str(value.dtype) not in (floats if wanted in floats else (wanted,)):
            raise PresetError(
                f"{path}: {name} is of type {value.dtype}, and the model wants "
                f"{wanted}. {REMEDY}"
            )
        if not _finite(value):
            raise PresetError(f"{path}: {name} holds NaN or infinity. {REMEDY}")
    for name, weight in weights.items():
        weight.assign(values[name])
