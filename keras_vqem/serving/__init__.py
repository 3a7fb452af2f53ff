"""What TensorFlow Serving reads beside an exported model: warm-up, configuration."""

from keras_vqem.serving.configuration import write_configuration
from keras_vqem.serving.warmup import write_warmup

__all__ = ["write_configuration", "write_warmup"]
