"""TensorFlow Serving: warm-up requests, configuration files, and clients."""

from keras_vqem.serving.client import GrpcClient, RestClient, ServerError
from keras_vqem.serving.configuration import add_model, write_configuration
from keras_vqem.serving.warmup import write_warmup

__all__ = [
    "GrpcClient",
    "RestClient",
    "ServerError",
    "add_model",
    "write_configuration",
    "write_warmup",
]
