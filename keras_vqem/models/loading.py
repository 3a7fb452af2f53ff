"""Loading of trained models from run folders, `.keras` files and presets."""

import os
import pathlib
from collections.abc import Sequence

import keras

from keras_vqem import models
from keras_vqem.checks import nonfinite_weight
from keras_vqem.models import preset
from keras_vqem.models.translator import Translator


def model_file(path: str | os.PathLike) -> pathlib.Path:
    """Finds the file that identifies a model.

    Two models with the same content of this file are the same model.

    Args:
        path: Folder of a finished run, a `.keras` file, folder of a preset, or name of
            a preset that comes with the package.

    Returns:
        The `.keras` file, or the preset's `config.json`, which has the hashes of its
        other files.

    Raises:
        FileNotFoundError: If there is no such model.
        ValueError: If `path` is a file of another kind.
    """
    path = pathlib.Path(path)
    if path.is_file() and path.name == preset.CONFIG:
        return path
    run = path / "model.keras"
    if path.suffix == ".keras" or run.is_file():
        file = run if path.is_dir() else path
        if file.is_file():
            return file
    elif path.is_file():
        raise ValueError(
            f"{path} does not end in .keras. Pass the folder of a finished run, a file "
            f"that model.save(...) wrote, or a preset."
        )
    # A run that has not ended has a config.json too. Other folders hide no preset.
    elif (path / preset.WEIGHTS).is_file() or not (path / preset.CONFIG).is_file():
        try:
            return preset.preset_folder(path) / preset.CONFIG
        except FileNotFoundError:
            pass  # The message below also names the other kinds of models.
    hint = ""
    if path.is_dir():
        hint = "The folder is not a run, or its training has not ended. "
    raise FileNotFoundError(
        f"There is no model {path}. {hint}Pass the folder of a finished run, a file "
        f"that ends in .keras, the folder of a preset, or the name of a preset that "
        f"comes with the package ({', '.join(preset.shipped()) or 'none'})."
    )


def short_names(paths: Sequence[pathlib.Path]) -> list[str]:
    """Returns short names of models, or their paths if two names are the same.

    Args:
        paths: List of files, as `model_file` returns them.
    """
    ordinary = ("model", "config")  # Files whose folders have the names.
    names = [
        p.stem if p.stem not in ordinary else p.resolve().parent.name for p in paths
    ]
    clash = len(set(names)) < len(names)
    return [str(path) for path in paths] if clash else names


def load_model(path: str | os.PathLike, *classes: type) -> keras.Model:
    """Loads a trained model.

    Args:
        path: Folder of a finished run, a `.keras` file, folder of a preset, or name of
            a preset that comes with the package.
        *classes: Classes that the model may have. Without any, every class is
            accepted.

    Returns:
        The model, not compiled.

    Raises:
        FileNotFoundError: If there is no such model.
        ValueError: If the file cannot be read, the model has another class, or a weight
            is NaN or infinite.
    """
    file = model_file(path)
    if file.name == preset.CONFIG:
        model = preset.Presets.from_preset(file.parent)
    else:
        try:
            model = keras.saving.load_model(file, compile=False)
        except Exception as error:
            raise ValueError(
                f"{file} could not be loaded ({type(error).__name__}: {error}). It may "
                f"be incomplete, or written by another version of keras_vqem."
            ) from error
        if name := nonfinite_weight(model):
            raise ValueError(
                f"{file} cannot be used: {name} has values that are NaN or infinite, "
                f"because its training diverged. Train again with a lower learning "
                f"rate or a longer warm-up."
            )
    if classes and not isinstance(model, classes):
        names = " or ".join(cls.__name__ for cls in classes)
        raise ValueError(
            f"{file} holds a model of class {type(model).__name__}, and {names} is "
            f"needed here."
        )
    return model


def load_with_prior(
    path: str | os.PathLike, prior: str | os.PathLike | None = None, *classes: type
) -> keras.Model:
    """Loads a trained model, and the prior over its codes if one is given.

    Args:
        path: Trained model, as in `load_model`.
        prior: Trained `GridTransformer` over the model's codes, as in `load_model`.
            None keeps the prior that the model has, if any.
        *classes: Classes that the model may have. Without any, every class is
            accepted.

    Returns:
        The model, not compiled.
    """
    model = load_model(path, *classes)
    if prior is None:
        return model
    if not isinstance(model, models.ImageVQVAE):
        raise ValueError(
            f"{path} holds a model of class {type(model).__name__}, which takes no "
            f"prior. Leave the prior out."
        )
    return model.with_prior(load_model(prior, models.GridTransformer))


def load_translator(path: str | os.PathLike) -> Translator:
    """Loads a trained translator, as `load_model` does.

    Set random seeds before this call. Setting them afterwards clears the resources
    that TensorFlow keeps for the tokenizer.

    Args:
        path: Trained model, as in `load_model`.

    Returns:
        The model, not compiled.
    """
    return load_model(
        path,
        models.Transformer,
        models.LatentNMT,
        models.CTCTranslator,
        models.FertilityNAT,
        models.RefinementNAT,
    )
