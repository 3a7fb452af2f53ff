"""Presets: a trained model as a folder of plain data files, without any code.

config.json      class and arguments of the model, facts about it, SHA-256 of the files
weights.npz      weights by name, float32 or float16
tokenizer.model  vocabulary, if the model is a translator
README.md        model card
"""

import contextlib
import hashlib
import os
import pathlib
import re
from typing import Any

import keras
import numpy as np

from keras_vqem.files import (
    read_json,
    replacing,
    replacing_folder,
    restored,
    write_json,
)
from keras_vqem.models.preset_weights import (
    REMEDY,
    PresetError,
    StoredWeights,
    finite,
    named_weights,
)

FORMAT = 2
CONFIG, WEIGHTS, CARD = "config.json", "weights.npz", "README.md"
TOKENIZER = "tokenizer.model"
# Folders of the presets that come with the package: in a checkout, and installed.
PACKAGE = pathlib.Path(__file__).parents[1]
SHIPPED = (PACKAGE.parent / "saved_models", PACKAGE / "saved_models")
# Classes of Keras that a config may name. Those of keras_vqem are registered.
KERAS_CLASSES = {
    "DTypePolicy",
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "RandomNormal",
    "RandomUniform",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    # Schedules of a bottleneck's temperature or rate.
    "CosineDecay",
    "CosineDecayRestarts",
    "ExponentialDecay",
    "InverseTimeDecay",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
}


@contextlib.contextmanager
def _blaming(path):
    """Turns every error inside into a `PresetError` that names a preset's file."""
    try:
        yield
    except PresetError:
        raise
    except Exception as error:
        # Keras quotes the whole config, and then what was wrong with it.
        reason = str(error).rsplit("Exception encountered: ", 1)[-1]
        raise PresetError(
            f"No model can be made from {path} ({type(error).__name__}: {reason}). It "
            f"is damaged, foreign, or of another version: update keras_vqem, or "
            f"download the preset again."
        ) from error


class Presets:
    """Mixin class of models that can be saved to a preset and loaded from one."""

    tokenizer = None  # A translator has one; its file is part of the preset.

    def save_to_preset(
        self,
        folder: str | os.PathLike,
        card: str = "",
        half: bool = False,
        about: dict[str, Any] | None = None,
    ) -> None:
        """Writes the model to a folder: config, weights, tokenizer, model card.

        Args:
            folder: New folder, or folder of a preset to replace. The old preset is
                replaced as a whole, once the new one is complete.
            card: Text of the model card: data and their terms of use, command,
                metrics, limits.
            half: Whether to store weights in half precision, which takes half the
                space. Loaded weights are float32 again, rounded to about three
                digits.
            about: Dict of facts that `keras_vqem.zoo` shows: `task`, `data`, `terms`
                and `metrics`.
        """
        if not self.built:
            self.build()
        config = _uncompiled(keras.saving.serialize_keras_object(self))
        # What could not be loaded is told now, while the model is still there.
        _check_objects(config, folder)
        dtype = "float16" if half else "float32"
        arrays = {}
        for name, weight in named_weights(self).items():
            value = keras.ops.convert_to_numpy(weight)
            if not finite(value):
                raise ValueError(
                    f"Weight {weight.path} has NaN or infinite values: training "
                    f"diverged. Save an earlier checkpoint."
                )
            if value.dtype == np.float32:
                value = value.astype(dtype)
                if not finite(value):
                    raise ValueError(
                        f"Weight {weight.path} has values that are too large for "
                        f"half precision. Save with half=False."
                    )
            arrays[name] = value
        _refuse_to_replace(folder)
        with replacing_folder(folder) as new:
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
                    "model": config,
                    "files": {name: _sha256(new / name) for name in names},
                },
            )

    @classmethod
    def from_preset(cls, name: str | os.PathLike) -> "Presets":
        """Loads a model from a preset.

        A preset consists of JSON, arrays and a vocabulary. Loading it does not run any
        code from it.

        Args:
            name: Name of a preset that comes with the package, or folder of a preset.

        Returns:
            The model, an instance of this class, not compiled.

        Raises:
            FileNotFoundError: If there is no such preset.
            PresetError: If a file of the preset is missing, damaged or foreign.
        """
        folder = preset_folder(name)
        record = read_config(folder)
        for name, digest in record["files"].items():
            _check_file(folder, name, digest)
        stored = StoredWeights(folder / WEIGHTS)
        with _blaming(folder / CONFIG), stored.limiting(record["model"]):
            model = keras.saving.deserialize_keras_object(
                record["model"], safe_mode=True
            )
        if not isinstance(model, cls):
            raise PresetError(
                f"{folder} holds a {type(model).__name__}, not a {cls.__name__}. Load "
                f"it with {type(model).__name__}.from_preset(...)."
            )
        if model.tokenizer is not None:
            if TOKENIZER not in record["files"]:
                raise PresetError(
                    f"{folder / CONFIG} does not list {TOKENIZER}. {REMEDY}"
                )
            with _blaming(folder / TOKENIZER):
                model.tokenizer.load_assets(folder)
        with _blaming(folder / CONFIG), stored.limiting(record["model"]):
            if not model.built:
                model.build()
        with _blaming(folder / WEIGHTS):
            stored.load_into(model)
        return model


def shipped() -> list[str]:
    """Returns the names of the presets that come with the package."""
    found = {p.parent.name for s in SHIPPED for p in s.glob(f"*/{CONFIG}")}
    # Hidden are those that a killed process has not finished.
    return sorted(name for name in found if not name.startswith("."))


def preset_folder(name: str | os.PathLike) -> pathlib.Path:
    """Returns the folder of a preset, given its name or its folder."""
    for folder in (restored(name), *(place / name for place in SHIPPED)):
        if (folder / CONFIG).is_file():
            return folder
        if (folder / WEIGHTS).is_file():
            raise PresetError(f"{folder / CONFIG} is missing. {REMEDY}")
    raise FileNotFoundError(
        f"There is no preset {str(name)!r}. Pass one that comes with the package "
        f"({', '.join(shipped()) or 'none'}), or a folder that save_to_preset wrote."
    )


def _refuse_to_replace(folder):
    """Raises if a folder holds anything else than a preset."""
    folder = restored(folder)
    if folder.exists() and any(folder.iterdir()) and not (folder / CONFIG).is_file():
        raise FileExistsError(
            f"{folder} is not empty and not a preset, and its content would be lost. "
            f"Choose another folder."
        )


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """Reads and checks the config.json of a preset.

    Args:
        folder: Folder of the preset.

    Returns:
        A dict with `about`, facts about the model, `files`, SHA-256 hashes by file
        name, and `model`, the serialized model.

    Raises:
        PresetError: If the file is damaged, foreign, or of another format.
    """
    path = folder / CONFIG
    try:
        record = read_json(path)
        found = record["format"]
        if found != FORMAT:
            remedy = (
                "Save the preset again with this version, from its run or .keras file."
                if found in range(FORMAT)
                else "Update keras_vqem."
            )
            raise PresetError(
                f"{path} has format {found!r}, and this version of keras_vqem reads "
                f"format {FORMAT}. {remedy}"
            )
        files, model = dict(record["files"]), record["model"]
    except PresetError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise PresetError(f"{path} is damaged ({error!r}). {REMEDY}") from error
    if WEIGHTS not in files:
        raise PresetError(f"{path} does not list {WEIGHTS}. {REMEDY}")
    with _blaming(path):
        model = _uncompiled(model)
        if not isinstance(model, dict) or not isinstance(model.get("config"), dict):
            raise TypeError("`model` must be an object with a class_name and a config")
        _check_objects(model, path)
    about = record.get("about")
    about = about if isinstance(about, dict) else {}
    return {"about": about, "files": files, "model": model}


def describe(folder: str | os.PathLike, card: str, about: dict[str, Any]) -> None:
    """Replaces the model card and the facts of a preset, but not its weights.

    Args:
        folder: Folder of the preset.
        card: New text of the model card.
        about: New dict of facts, as in `Presets.save_to_preset`.
    """
    folder = preset_folder(folder)
    read_config(folder)
    record = read_json(folder / CONFIG)
    with replacing(folder / CARD) as file:
        file.write_text(card, encoding="utf-8")
    write_json(folder / CONFIG, {**record, "about": about})


def _uncompiled(value):
    """Removes optimizers and losses, which presets do not keep, from a config."""
    if isinstance(value, dict):
        return {k: _uncompiled(v) for k, v in value.items() if k != "compile_config"}
    return [_uncompiled(v) for v in value] if isinstance(value, list) else value


def _check_objects(value, path):
    """Raises unless every object in a config is of keras_vqem or in `KERAS_CLASSES`."""
    if isinstance(value, dict):
        if "class_name" in value:
            registered = value.get("registered_name") or ""
            ours = (
                registered == f"keras_vqem>{value['class_name']}"
                and keras.saving.get_registered_object(registered) is not None
            )
            module = str(value.get("module"))
            # Keras looks up the registered name first.
            known = (
                value["class_name"] in KERAS_CLASSES
                and re.fullmatch(r"keras(\.\w+)*", module)
                and registered in ("", value["class_name"])
            )
            # The values of a Constant: Keras makes a plain array of them.
            array = value["class_name"] == "__numpy__" and not registered
            if not (ours or known or array):
                raise PresetError(
                    f"{path}: presets cannot hold objects of "
                    f"{module}.{value['class_name']} ({registered or 'not registered'})"
                    f". Save a model without them; to load this one, update keras_vqem."
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
            f"{path} was changed or damaged: its SHA-256 is not the one in {CONFIG}. "
            f"{REMEDY}"
        )
