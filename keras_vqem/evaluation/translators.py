"""load_translator: a trained translator from its run folder or its file."""

import pathlib

import keras

import keras_vqem  # noqa: F401  (registers the classes that files name)


def translator_file(path):
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


def load_translator(path):
    """Loads a trained translator.

    Set random seeds before, not after it: to set them clears what TensorFlow keeps
    for tokenizers.

    Args:
        path: The folder of a run, which holds `model.keras`, or a `.keras` file.

    Returns:
        A model with `translate`.

    Raises:
        FileNotFoundError: If there is no such model.
        ValueError: If the file is not a translator's.
    """
    file = translator_file(path)
    try:
        model = keras.saving.load_model(file, compile=False)
    except Exception as error:
        raise ValueError(
            f"{file} could not be loaded ({type(error).__name__}: {error}). It may be "
            f"incomplete, or written by another version of keras_vqem."
        ) from error
    if not hasattr(model, "translate"):
        raise ValueError(
            f"{file} holds a {type(model).__name__}, which does not translate. Pass a "
            f"Transformer or a LatentNMT of keras_vqem.models."
        )
    return model
