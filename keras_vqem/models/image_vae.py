"""ImageVAE: the autoencoder of images without codes, for comparison."""

import os
from typing import Any

import keras
import tensorflow as tf

from keras_vqem.layers import GaussianBottleneck
from keras_vqem.layers.likelihoods.grouped_pixels import GroupedPixels
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood
from keras_vqem.models import image_endpoints
from keras_vqem.models.image_autoencoder import ImageAutoencoder


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageVAE(ImageAutoencoder):
    """Compresses images to Gaussian latents: the baseline of `ImageVQVAE`.

    A compressor turns an image into a grid of vectors, the bottleneck draws Gaussian
    latents from them, and a decompressor turns latents into the parameters of a
    distribution of the pixels. The loss is the negative log probability of the pixels
    plus the weighted KL divergence of the latents from a standard normal distribution.

    Args:
        compressor: Layer from images `[B, H, W, 3]` with values from -1 to 1 to
            vectors `[B, rows, columns, D]`: `keras_vqem.layers.ImageCompressor` or
            `PatchCompressor`.
        bottleneck: A `keras_vqem.layers.GaussianBottleneck`.
        decompressor: Layer from latents to a tuple of features per pixel and a first
            guess of the pixels: `ImageDecompressor` or `PatchDecompressor`.
        likelihood: Distribution of the pixels: `keras_vqem.layers.CategoricalPixels`
            or `LogisticMixture`, or `GroupedPixels`, in which pixels depend on each
            other.
        image_size: Tuple `(height, width)` of the images in pixels.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: Dict with `images`, uint8 `[B, H, W, 3]`.

    Returns:
        A dict of tensors:

        - `outputs`: `[B, H, W, likelihood.parameters]`, parameters of the likelihood.
        - `base`: `[B, H, W, 3]`, first guess of the pixels, from 0 to 255.
        - All outputs of the bottleneck.
        - `groups`: in training with `GroupedPixels` only, int32 `[B]`, the group of
          each image that is learned from.

    Metrics:
        - `reconstruction_bits_per_dim`: Bits per dimension given the latents.
        - `bottleneck_loss`: Weighted KL divergence.
        - Metrics of the bottleneck.

    Example:

    >>> from keras_vqem import layers
    >>> model = keras_vqem.models.ImageVAE(
    ...     layers.PatchCompressor(code_dim=8, channels=8),
    ...     layers.GaussianBottleneck(latent_dim=4, kl_weight=1 / 48, seed=0),
    ...     layers.PatchDecompressor(channels=8, pixel_channels=8),
    ...     layers.LogisticMixture(num_mixtures=2), image_size=(16, 16))
    >>> images = keras_vqem.images.shapes.images(2, size=16)[0]
    >>> model.encode(images).shape, model.sample(3, seed=(0, 1)).shape
    (TensorShape([2, 4, 4, 4]), TensorShape([3, 16, 16, 3]))

    References:
        - Kingma, Welling, 2013. Auto-Encoding Variational Bayes. arXiv:1312.6114.
    """

    def __init__(
        self,
        compressor: keras.layers.Layer,
        bottleneck: GaussianBottleneck,
        decompressor: keras.layers.Layer,
        likelihood: PixelLikelihood | GroupedPixels,
        image_size: tuple[int, int] = (32, 32),
        **kwargs: Any,
    ):
        super().__init__(
            compressor, bottleneck, decompressor, likelihood, image_size, **kwargs
        )
        if not isinstance(bottleneck, GaussianBottleneck):
            raise ValueError(
                f"ImageVAE needs Gaussian latents, and {type(bottleneck).__name__} has "
                f"none. Use a GaussianBottleneck, or an ImageVQVAE for codes."
            )

    def sample(
        self, count: int, seed: tuple[int, int], temperature: float = 1.0
    ) -> tf.Tensor:
        """Draws images from standard normal latents.

        With `GroupedPixels`, the pixels are drawn too. Otherwise they are the expected
        ones.

        Args:
            count: Number of images.
            seed: Two integers.
            temperature: Standard deviation of the latents. Values below 1 give more
                probable images.

        Returns:
            uint8 `[count, H, W, 3]`.
        """
        shape = self.encode(tf.zeros((1, *self.image_size, 3), tf.uint8)).shape[1:]
        noise = tf.random.stateless_normal((count, *shape), seed)
        return self.generated(temperature * noise, seed)

    def export(self, filepath: str | os.PathLike) -> None:
        """Writes a SavedModel that TensorFlow Serving can load.

        Its signatures take any number of rows:

        - `reconstruct`, also `serving_default`: from `images`, uint8 `[B, H, W, 3]`,
          to `images`.
        - `encode`: from `images` to `latents`, float32
          `[B, rows, columns, latent_dim]`.
        - `decode`: from `latents` to `images`.

        Args:
            filepath: Folder to write. TensorFlow Serving expects its name to be a
                version number, such as `models/images/1`.
        """
        self._export(filepath, image_endpoints.of_latents(self))
