"""Vector-quantized autoencoders trained with EM, for Keras 3 and TensorFlow."""

import json
import os
import pathlib


def _configured_backend():
    """What Keras was asked for; it looks in the same places."""
    home = pathlib.Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    try:
        backend = json.loads((home / "keras.json").read_text())["backend"]
    except (OSError, ValueError, KeyError):
        backend = "tensorflow"
    return os.environ.get("KERAS_BACKEND") or backend


def _require_tensorflow_backend():
    try:
        import keras

        found, cause = keras.backend.backend(), None
    except ImportError as error:
        # Keras itself fails first when another backend is asked for and missing.
        found, cause = _configured_backend(), error
        if found == "tensorflow":
            raise
    if found != "tensorflow":
        raise ImportError(
            "keras_vqem runs on Keras' TensorFlow backend (tf.distribute, SavedModel "
            f"and tf-text are part of it), but Keras is set to {found!r}. Set the "
            "environment variable KERAS_BACKEND=tensorflow before the first `import "
            'keras`, or put "backend": "tensorflow" into ~/.keras/keras.json.'
        ) from cause


_require_tensorflow_backend()

from keras_vqem import decoding, images, layers, models, text, zoo  # noqa: E402

__version__ = "0.1.0"
__all__ = ["decoding", "images", "layers", "models", "text", "zoo"]
