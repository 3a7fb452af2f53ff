"""Access to tensorflow-serving-api, an optional dependency."""

import importlib
import types


def serving_api(name: str) -> types.ModuleType:
    """Imports a module of tensorflow-serving-api.

    Args:
        name: Name of the module below `tensorflow_serving`, such as
            `"apis.predict_pb2"`.

    Returns:
        The module.

    Raises:
        ImportError: If tensorflow-serving-api is not installed, with the remedy.

    Example:

    >>> from keras_vqem.serving.api import serving_api
    >>> serving_api("apis.predict_pb2").PredictRequest().model_spec.name
    ''
    """
    try:
        return importlib.import_module(f"tensorflow_serving.{name}")
    except ImportError as error:
        raise ImportError(
            f"The protocol of TensorFlow Serving is not installed ({error}). "
            "Install the extra `serving`, in a checkout by pip install '.[serving]'"
        ) from error
