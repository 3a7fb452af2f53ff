"""What exported models of images offer."""

import tensorflow as tf
from keras import ops


def of_images(model):
    """A dict from names to functions and their signatures; the first is default."""
    rows, columns, slots = model.encode(tf.zeros((1, *model.image_size, 3), "uint8"))[
        0
    ].shape
    images = tf.TensorSpec([None, *model.image_size, 3], tf.uint8, name="images")
    codes = tf.TensorSpec([None, rows, columns, slots], tf.int32, name="codes")

    def reconstruct(images):
        return {"images": model.reconstruct(images)}

    def encode(images):
        return {"codes": model.encode(images)}

    def decode(codes):
        codes = ops.clip(codes, 0, model.bottleneck.num_codes - 1)
        return {"images": model.decode(codes)}

    def sample(seed):
        codes = model.prior.sample(ops.shape(seed)[0], seed)
        return {"images": model.decode(codes), "codes": codes}

    found = {
        "serve": (reconstruct, [images]),
        "reconstruct": (reconstruct, [images]),
        "encode": (encode, [images]),
        "decode": (decode, [codes]),
    }
    if model.prior is not None:
        # A row an image, as servers that put requests together want it.
        seed = tf.TensorSpec([None, 2], tf.int32, name="seed")
        found["sample"] = (sample, [seed])
    return found
