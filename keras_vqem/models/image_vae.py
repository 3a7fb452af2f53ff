"""ImageVAE: the autoencoder of images without codes, for comparison."""

import os

import keras
import tensorflow as tf

from keras_vqem.layers import GaussianBottleneck
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood
from keras_vqem.models import image_endpoints
from keras_vqem.models.image_autoencoder import ImageAutoencoder


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageVAE(ImageAutoencoder):
    """Compresses images to Gaussian latents: what `ImageVQVAE` is compared with.

    Args:
        compressor: Layer from images [B, H, W, 3], -1 to 1, to vectors [B, rows,
            columns, D]: `keras_vqem.layers.ImageCompressor` or `PatchCompressor`.
        bottleneck: A `keras_vqem.layers.GaussianBottleneck`.
        decompressor: Layer from latents to features of each pixel and a first guess of
            the pixels: `ImageDecompressor` or `PatchDecompressor`.
        likelihood: `keras_vqem.layers.CategoricalPixels` or `LogisticMixture`.
        image_size: `(height, width)` of the images.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: A dict with `images`, uint8 [B, H, W, 3].

    Returns:
        A dict: `outputs` [B, H, W, likelihood.parameters], `base` [B, H, W, 3] (the
        first guess, 0 to 255), and what the bottleneck returns.

    Metrics: `reconstruction_bits_per_dim`, bits per dimension given the latents;
    `bottleneck_loss`, the weighted KL divergence; and the bottleneck's own.

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
        likelihood: PixelLikelihood,
        image_size: tuple[int, int] = (32, 32),
        **kwargs,
    ):
        super().__init__(
            compressor, bottleneck, decompressor, likelihood, image_size, **kwargs
        )
        if not isinstance(bottleneck, GaussianBottleneck):
            raise ValueError(
                f"ImageVAE has Gaussian latents, and {type(bottleneck).__name__} has "
                f"none. Use a GaussianBottleneck, or an ImageVQVAE for codes."
            )

    def sample(
        self, count: int, seed: tuple[int, int], temperature: float = 1.0
    ) -> tf.Tensor:
        """Draws images, uint8 [count, H, W, 3], from standard normal latents.

        Args:
            count: Number of images.
            seed: Two integers.
            temperature: Standard deviation of the latents; below 1 for more probable
                images.
        """
        shape = self.encode(tf.zeros((1, *self.image_size, 3), tf.uint8)).shape[1:]
        noise = tf.random.stateless_normal((count, *shape), seed)
        return self.decode(temperature * noise)

    def export(self, filepath: str | os.PathLike) -> None:
        """Writes a SavedModel that TensorFlow Serving loads as it is.

        Its signatures, with any number of images:

        - `reconstruct`, also `serving_default`: `images`, uint8 [B, H, W, 3], to
          `images`;
        - `encode`: `images` to `latents`, float32 [B, rows, columns, latent_dim];
        - `decode`: `latents` to `images`.

        Args:
            filepath: The folder; TensorFlow Serving wants one named by a version,
                such as `models/images/1`.
        """
        self._export(filepath, image_endpoints.of_latents(self))
