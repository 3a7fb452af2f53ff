"""Trained models from their run folders or their files."""

import pathlib

import keras

import keras_vqem


def model_file(path):
    """The `.keras` file that a path of a run folder or of such a file means."""
    path = pathlib.Path(path)
    file = path / "model.keras" if path.is_dir() else path
    if not file.is_file():
        hint = "Its training has not ended, or it is no run." if path.is_dir() else ""
        raise FileNotFoundError(
            f"There is no model {file}. {hint} Pass the folder of a finished run or a "
            f"file that ends in .keras.".replace("  ", " ")
        )
    if file.suffix != ".keras":
        raise ValueError(
            f"{file} does not end in .keras. Pass the folder of a finished run or a "
            f"file that model.save(...) wrote."
        )
    return file


def load_model(path, *classes):
    """Loads a trained model.

    Args:
        path: The folder of a run, which holds `model.keras`, or a `.keras` file.
        *classes: What it may be an instance of; anything, if none is given.

    Returns:
        The model, not compiled.

    Raises:
        FileNotFoundError: If there is no such model.
        ValueError: If the file cannot be read, or holds something else.
    """
    file = model_file(path)
    try:
        model = keras.saving.load_model(file, compile=False)
    except Exception as error:
        raise ValueError(
            f"{file} could not be loaded ({type(error).__name__}: {error}). It may be "
            f"incomplete, or written by another version of keras_vqem."
        ) from error
    if classes and not isinstance(model, classes):
        names = " or ".join(cls.__name__ for cls in classes)
        raise ValueError(
            f"{file} holds a {type(model).__name__}, and a {names} is needed here."
        )
    return model


def load_translator(path):
    """Loads a trained translator; see `load_model`.

    Set random seeds before, not after it: to set them clears what TensorFlow keeps
    for tokenizers.
    """
    return load_model(path, keras_vqem.models.Transformer, keras_vqem.models.LatentNMT)
