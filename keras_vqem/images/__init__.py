"""Image data sets, and batches of images and codes for `fit`."""

from keras_vqem.images import shapes
from keras_vqem.images.array_batches import ArrayBatches
from keras_vqem.images.cifar10 import load_cifar10
from keras_vqem.images.image_batches import ImageBatches
from keras_vqem.images.image_data import ImageData
from keras_vqem.images.image_folder import load_image_folder

__all__ = [
    "ArrayBatches",
    "ImageBatches",
    "ImageData",
    "load_cifar10",
    "load_image_folder",
    "shapes",
]
