"""Vector-quantized autoencoders trained with EM, for Keras 3 and TensorFlow."""

import os


def _require_tensorflow_backend():
    remedy = (
        "keras_vqem runs on Keras' TensorFlow backend (tf.distribute, SavedModel and "
        "tf-text are part of it), but Keras is set to {found!r}. Set the environment "
        "variable KERAS_BACKEND=tensorflow before the first `import keras`, or put "
        '"backend": "tensorflow" into ~/.keras/keras.json.'
    )
    try:
        import keras
    except ImportError as error:
        # Keras itself fails first when another backend is asked for and missing.
        found = os.environ.get("KERAS_BACKEND", "tensorflow")
        if found == "tensorflow":
            raise
        raise ImportError(remedy.format(found=found)) from error
    if keras.backend.backend() != "tensorflow":
        raise ImportError(remedy.format(found=keras.backend.backend()))


_require_tensorflow_backend()

from keras_vqem import layers  # noqa: E402

__version__ = "0.1.0"
__all__ = ["layers"]
