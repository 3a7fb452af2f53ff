"""Trained models from their run folders, their files or their presets."""

import pathlib

import keras

from keras_vqem import models
from keras_vqem.models import preset


def model_file(path):
    """The file that stands for a model: it is another file if the model is another.

    Args:
        path: The folder of a finished run, a `.keras` file, a preset's folder, or the
            name of a preset that comes with the package.

    Returns:
        The `.keras` file, or the preset's `config.json`, which holds the hashes of the
        others.

    Raises:
        FileNotFoundError: If there is no such model.
        ValueError: If it is some other file.
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
    elif (path / preset.WEIGHTS).is_file() or not path.exists():
        try:
            return preset.preset_folder(path) / preset.CONFIG
        except FileNotFoundError:
            pass  # The message below is the wider one.
    hint = "Its training has not ended, or it is no run. " if path.is_dir() else ""
    raise FileNotFoundError(
        f"There is no model {path}. {hint}Pass the folder of a finished run, a file "
        f"that ends in .keras, or a preset: its folder, or one of "
        f"{', '.join(preset.shipped()) or 'those that come with the package (none)'}."
    )


def load_model(path, *classes):
    """Loads a trained model.

    Args:
        path: As in `model_file`.
        *classes: What it may be an instance of; anything, if none is given.

    Returns:
        The model, not compiled.

    Raises:
        FileNotFoundError: If there is no such model.
        ValueError: If the file cannot be read, or holds something else.
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
    if classes and not isinstance(model, classes):
        names = " or ".join(cls.__name__ for cls in classes)
        raise ValueError(
            f"{file} holds a {type(model).__name__}, and a {names} is needed here."
        )
    return model


def load_with_prior(path, prior=None, *classes):
    """Loads a trained model, and the prior over its codes where there is one.

    Args:
        path: As in `model_file`.
        prior: The same for a `GridTransformer` over the model's codes, or None for
            the prior that the model has, if any.
        *classes: What the model may be an instance of; anything, if none is given.
    """
    model = load_model(path, *classes)
    if prior is None:
        return model
    if not isinstance(model, models.ImageVQVAE):
        raise ValueError(
            f"{path} is of class {type(model).__name__}, which takes no prior: leave "
            f"it out."
        )
    return model.with_prior(load_model(prior, models.GridTransformer))


def load_translator(path):
    """Loads a trained translator; see `load_model`.

    Set random seeds before, not after it: to set them clears what TensorFlow keeps
    for tokenizers.
    """
    return load_model(path, models.Transformer, models.LatentNMT, models.CTCTranslator)
