"""What exported models of images offer."""

import tensorflow as tf
from keras import ops


def of_codes(model):
    """Endpoints of an `ImageVQVAE`: a dict from names to functions and signatures.

    The first is the default.
    """

    def decode(codes):
        codes = ops.clip(codes, 0, model.bottleneck.num_codes - 1)
        return {"images": model.decode(codes)}

    def sample(seed):
        codes = model.prior.sample(ops.shape(seed)[0], seed)
        return {"images": model.decode(codes), "codes": codes}

    found = _through(model, "codes", tf.int32, decode)
    if model.prior is not None:
        # A row an image, as servers that put requests together want it.
        seed = tf.TensorSpec([None, 2], tf.int32, name="seed")
        found["sample"] = (sample, [seed])
    return found


def of_latents(model):
    """Endpoints of an `ImageVAE`, as those of `of_codes`."""

    def decode(latents):
        return {"images": model.decode(latents)}

    return _through(model, "latents", tf.float32, decode)


def _through(model, name, dtype, decode):
    """Endpoints to, from and through what `encode` gives, under its name."""
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
