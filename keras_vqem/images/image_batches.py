"""ImageBatches: shuffled batches of images, optionally mirrored at random."""

import numpy as np

from keras_vqem.array_batches import ArrayBatches


class ImageBatches(ArrayBatches):
    """Batches of images, in a new random order each epoch; see `ArrayBatches`.

    Args:
        images: Array `uint8` of shape `[N, H, W, 3]`. It is not copied.
        batch_size: Number of images per batch.
        seed: Integer that sets the order of the images and which ones are mirrored.
        flip: Whether to mirror images left to right, each in about half of the epochs.
        steps_per_epoch: Number of batches per epoch, to make epochs shorter than one
            pass over the images. None takes all full batches.
        labels: Array of integers `[N]`, classes of the images, for batches with
            `labels`. None for batches of images alone.

    Example:

    >>> from keras_vqem.images import ImageBatches, shapes
    >>> images, _ = shapes.images(100)
    >>> batches = ImageBatches(images, 32, flip=True)
    >>> batches.steps_per_epoch
    3
    >>> batches.dataset().element_spec["images"].shape
    TensorShape([32, 32, 32, 3])
    """

    def __init__(
        self,
        images: np.ndarray,
        batch_size: int,
        seed: int = 0,
        flip: bool = False,
        steps_per_epoch: int | None = None,
        labels: np.ndarray | None = None,
    ):
        images = np.asarray(images)
        if images.ndim != 4 or images.shape[-1] != 3 or images.dtype != np.uint8:
            raise ValueError(
                f"images must be uint8 of shape [N, H, W, 3], not {images.dtype} of "
                f"shape {list(images.shape)}. Pass what ImageData.images returns."
            )
        arrays = {"images": images}
        if labels is not None:
            arrays["labels"] = labels
        super().__init__(arrays, batch_size, seed, steps_per_epoch)
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
