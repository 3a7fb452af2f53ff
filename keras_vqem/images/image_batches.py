"""ImageBatches: shuffled batches of images, the same again after a resume."""

import itertools
import operator

import numpy as np
import tensorflow as tf


class ImageBatches:
    """Batches of images, each epoch in another random order.

    The batches of an epoch depend only on the seed and the number of the epoch: a run
    that is resumed at an epoch sees what it would have seen. The images that do not
    fill a batch are left out; each epoch leaves out others.

    Args:
        images: A `uint8` array of shape `[N, H, W, 3]`. It is not copied.
        batch_size: Images in a batch.
        seed: Of the order and of the flips.
        flip: Whether each image is mirrored, left to right, in about half of the
            epochs.

    Example:

    >>> from keras_vqem.images import ImageBatches, shapes
    >>> images, _ = shapes.images(100)
    >>> batches = ImageBatches(images, 32, flip=True)
    >>> batches.steps_per_epoch
    3
    >>> batches.dataset().element_spec["images"].shape
    TensorShape([32, 32, 32, 3])
    """

    def __init__(self, images, batch_size, seed=0, flip=False):
        self.images = np.asarray(images)
        shape, dtype = self.images.shape, self.images.dtype
        if len(shape) != 4 or shape[-1] != 3 or dtype != np.uint8:
            raise ValueError(
                f"images must be uint8 of shape [N, H, W, 3], not {dtype} of shape "
                f"{list(shape)}. Pass what ImageData.images returns."
            )
        self.batch_size = operator.index(batch_size)
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
        if len(self.images) < self.batch_size:
            raise ValueError(
                f"There are {len(self.images)} images, too few for one batch of "
                f"{self.batch_size}. Lower batch_size, or pass more images."
            )
        self.seed = operator.index(seed)
        self.flip = flip

    @property
    def steps_per_epoch(self):
        """The number of batches of an epoch, the same for all epochs."""
        return len(self.images) // self.batch_size

    def epoch(self, number):
        """Yield the batches of one epoch.

        Args:
            number: Of the epoch, from 0.

        Yields:
            Dicts with `images`, a `uint8` array of shape `[batch_size, H, W, 3]`.
        """
        rng = np.random.default_rng([self.seed % 2**64, operator.index(number)])
        order = rng.permutation(len(self.images))
        # Drawn after the order, which is thus the same with and without flips.
        flipped = rng.random(len(order)) < 0.5 if self.flip else None
        for step in range(self.steps_per_epoch):
            chosen = slice(step * self.batch_size, (step + 1) * self.batch_size)
            images = self.images[order[chosen]]
            if self.flip:
                rows = flipped[chosen]
                images[rows] = images[rows, :, ::-1]
            yield {"images": images}

    def dataset(self, first_epoch=0):
        """The batches of epoch after epoch, without end, as a `tf.data.Dataset`.

        For `model.fit(dataset, steps_per_epoch=batches.steps_per_epoch, ...)`.

        Args:
            first_epoch: The number of the epoch to start with.

        Returns:
            A dataset of dicts as those of `epoch`, with static shapes.
        """
        if operator.index(first_epoch) < 0:
            raise ValueError(f"first_epoch must be 0 or more, not {first_epoch}.")

        # A generator leaves the images where they are: as tensors of the dataset they
        # would be held twice, and be a constant in the graphs that Keras makes of it.
        def generate():
            for number in itertools.count(first_epoch):
                yield from self.epoch(number)

        shape = [self.batch_size, *self.images.shape[1:]]
        signature = {"images": tf.TensorSpec(shape, tf.uint8)}
        dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
        # Keras then asks for `steps_per_epoch` instead of fitting forever.
        dataset = dataset.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
        return dataset.prefetch(4)
