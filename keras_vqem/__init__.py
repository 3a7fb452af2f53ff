"""Vector-quantized autoencoders trained with EM, for Keras 3 and TensorFlow."""

import json
import os
import pathlib

from keras_vqem import compile_cache, quiet


def _configured_backend():
    """Returns the backend that Keras is set to, from the places where it looks."""
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
        # If the backend that Keras is set to is not installed, Keras itself fails.
        found, cause = _configured_backend(), error
        if found == "tensorflow":
            raise
    if found != "tensorflow":
        raise ImportError(
            "keras_vqem needs Keras' TensorFlow backend (it uses tf.distribute, "
            f"SavedModel and tf-text), but Keras is set to {found!r}. Set the "
            "environment variable KERAS_BACKEND=tensorflow before the first `import "
            'keras`, or put "backend": "tensorflow" into ~/.keras/keras.json.'
        ) from cause


# Both before TensorFlow starts.
compile_cache.start()
quiet.start()
_require_tensorflow_backend()

from keras_vqem import decoding, images, layers, models, text, zoo  # noqa: E402

__version__ = "0.1.0"
__all__ = ["decoding", "images", "layers", "models", "text", "zoo"]
