"""Images of any size as files of codes, coded under the prior."""

from keras_vqem.compression.image_codec import ImageCodec

__all__ = ["ImageCodec"]
