"""Endpoints of exported image models."""

from typing import TYPE_CHECKING

import tensorflow as tf
from keras import ops

from keras_vqem.models import grid_endpoints

if TYPE_CHECKING:
    from keras_vqem.models.image_vae import ImageVAE
    from keras_vqem.models.image_vqvae import ImageVQVAE

# Functions and their signatures, by name.
Endpoints = dict[str, tuple]


def of_codes(
    model: "ImageVQVAE", temperature: float = 1.0, top_p: float | None = None
) -> Endpoints:
    """Returns the endpoints of an `ImageVQVAE`; see its `export`."""

    def decode(codes):
        codes = ops.clip(codes, 0, model.bottleneck.num_codes - 1)
        return {"images": model.decode(codes)}

    def sample(seed, labels=None):
        count = ops.shape(seed)[0]
        options = {"top_p": top_p, **grid_endpoints.given(model.prior, labels)}
        codes = model.prior.sample(count, seed, temperature, **options)
        return {"images": model.generated(codes, seed), "codes": codes}

    found = _through(model, "codes", tf.int32, decode)
    if model.prior is not None:
        inputs = [grid_endpoints.SEED, *grid_endpoints.labels(model.prior)]
        found["sample"] = (sample, inputs)
    return found


def of_latents(model: "ImageVAE") -> Endpoints:
    """Returns the endpoints of an `ImageVAE`; see its `export`."""

    def decode(latents):
        return {"images": model.decode(latents)}

    return _through(model, "latents", tf.float32, decode)


def _through(model, name, dtype, decode):
    """Returns endpoints that encode, decode and reconstruct.

    The output of `encode` and input of `decode` is called `name`.
    """
    height, width = model.image_size
    shape = model.encode(tf.zeros((1, height, width, 3), tf.uint8)).shape[1:]
    images = tf.TensorSpec([None, height, width, 3], tf.uint8, name="images")
    encoded = tf.TensorSpec([None, *shape], dtype, name=name)

    def reconstruct(images):
        return {"images": model.reconstruct(images)}

    def encode(images):
        return {name: model.encode(images)}

    return {
        "serve": (reconstruct, [images]),
        "reconstruct": (reconstruct, [images]),
        "encode": (encode, [images]),
        "decode": (decode, [encoded]),
    }
