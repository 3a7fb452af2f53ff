"""ImageBatches: shuffled batches of images, some of them mirrored."""

import numpy as np

from keras_vqem.array_batches import ArrayBatches


class ImageBatches(ArrayBatches):
    """Batches of images, each epoch in another random order; see `ArrayBatches`.

    Args:
        images: A `uint8` array of shape `[N, H, W, 3]`. It is not copied.
        batch_size: Images in a batch.
        seed: Of the order and of the flips.
        flip: Whether each image is mirrored, left to right, in about half of the
            epochs.
        steps: Batches of an epoch, if not as many as there are.

    Example:

    >>> from keras_vqem.images import ImageBatches, shapes
    >>> images, _ = shapes.images(100)
    >>> batches = ImageBatches(images, 32, flip=True)
    >>> batches.steps_per_epoch
    3
    >>> batches.dataset().element_spec["images"].shape
    TensorShape([32, 32, 32, 3])
    """

    def __init__(self, images, batch_size, seed=0, flip=False, steps=None):
        images = np.asarray(images)
        if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
            raise ValueError(
                f"images must be uint8 of shape [N, H, W, 3], not {images.dtype} of "
                f"shape {list(images.shape)}. Pass what ImageData.images returns."
            )
        super().__init__({"images": images}, batch_size, seed, steps)
        self.flip = flip

    def _changes(self, rng):
        if not self.flip:
            return super()._changes(rng)
        flipped = rng.random(self.examples) < 0.5

        def change(batch, rows):
            images, chosen = batch["images"], flipped[rows]
            images[chosen] = images[chosen, :, ::-1]
            return batch

        return change
