"""What TensorFlow Serving reads beside an exported model: warm-up, configuration."""

from keras_vqem.serving.configuration import add_model, write_configuration
from keras_vqem.serving.warmup import write_warmup

__all__ = ["add_model", "write_configuration", "write_warmup"]
