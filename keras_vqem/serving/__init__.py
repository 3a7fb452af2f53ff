"""TensorFlow Serving: warm-up, settings, clients. Models for CTranslate2 and LiteRT."""

from keras_vqem.serving.client import GrpcClient, RestClient, ServerError
from keras_vqem.serving.configuration import add_model, write_configuration
from keras_vqem.serving.ctranslate2_export import (
    ctranslate2_precisions,
    ctranslate2_translate,
    write_ctranslate2,
)
from keras_vqem.serving.litert_export import write_litert
from keras_vqem.serving.warmup import write_warmup

__all__ = [
    "GrpcClient",
    "RestClient",
    "ServerError",
    "add_model",
    "ctranslate2_precisions",
    "ctranslate2_translate",
    "write_configuration",
    "write_ctranslate2",
    "write_litert",
    "write_warmup",
]
