"""tensorflow-serving-api, which only those who serve need."""

import importlib


def serving_api(name):
    """A module of tensorflow-serving-api, or an error that says how to get it.

    Args:
        name: The module below `tensorflow_serving`, such as `"apis.predict_pb2"`.

    Returns:
        The module.

    Example:

    >>> from keras_vqem.serving.api import serving_api
    >>> serving_api("apis.predict_pb2").PredictRequest().model_spec.name
    ''
    """
    try:
        return importlib.import_module(f"tensorflow_serving.{name}")
    except ImportError as error:
        raise ImportError(
            f"The protocol of TensorFlow Serving is needed and not there ({error}). "
            "Install it: pip install keras-vqem[serving]"
        ) from error
