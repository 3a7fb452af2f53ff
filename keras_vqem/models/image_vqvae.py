"""ImageVQVAE: the paper's autoencoder of images, through a grid of codes."""

import os

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers import (
    DiscreteBottleneck,
    ImageCompressor,
    ImageDecompressor,
    SharedSlices,
    VQEMBottleneck,
)
from keras_vqem.layers.likelihoods.categorical_pixels import CategoricalPixels
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood
from keras_vqem.models import image_endpoints
from keras_vqem.models.grid_transformer import GridTransformer
from keras_vqem.models.image_autoencoder import ImageAutoencoder


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageVQVAE(ImageAutoencoder):
    """Compresses images to codes and gives a distribution of the pixels for codes.

    Args:
        compressor: Layer from images [B, H, W, 3], -1 to 1, to vectors [B, rows,
            columns, D]: `keras_vqem.layers.ImageCompressor` or `PatchCompressor`.
        bottleneck: A `keras_vqem.layers.DiscreteBottleneck`, such as `VQEMBottleneck`.
            With a `GaussianBottleneck` use `ImageVAE`.
        decompressor: Layer from what the bottleneck gives to features of each pixel
            and a first guess of the pixels: `ImageDecompressor` or
            `PatchDecompressor`.
        likelihood: `keras_vqem.layers.CategoricalPixels` or `LogisticMixture`.
        image_size: `(height, width)`.
        prior: A `GridTransformer` over the codes, for `sample`. It is trained after
            the rest and joins it by `with_prior`, which freezes it.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: A dict with `images`, uint8 [B, H, W, 3].

    Returns:
        A dict: `outputs` [B, H, W, likelihood.parameters], `base` [B, H, W, 3] (the
        first guess, 0 to 255), and what the bottleneck returns, such as `codes`.

    Metrics: `reconstruction_bits_per_dim`, bits per dimension given the codes;
    `bottleneck_loss`, what the bottleneck adds to the loss; and the bottleneck's own.

    Example:

    >>> from keras_vqem import layers
    >>> model = keras_vqem.models.ImageVQVAE(
    ...     layers.PatchCompressor(code_dim=8, channels=8),
    ...     layers.VQEMBottleneck(16, num_samples=5, groups=layers.Slices(2), seed=0),
    ...     layers.PatchDecompressor(channels=8, pixel_channels=8),
    ...     layers.LogisticMixture(num_mixtures=2), image_size=(16, 16))
    >>> model.compile()
    >>> images = keras_vqem.images.shapes.images(32, size=16)[0]
    >>> history = model.fit({"images": images}, batch_size=16, verbose=0)
    >>> codes = model.encode(images[:2])
    >>> codes.shape, model.decode(codes).shape
    (TensorShape([2, 4, 4, 2]), TensorShape([2, 16, 16, 3]))

    References:
        - Roy, Vaswani, Neelakantan, Parmar, 2018. Theory and Experiments on Vector
          Quantized Autoencoders. arXiv:1805.11063.
    """

    def __init__(
        self,
        compressor: keras.layers.Layer,
        bottleneck: DiscreteBottleneck,
        decompressor: keras.layers.Layer,
        likelihood: PixelLikelihood,
        image_size: tuple[int, int] = (32, 32),
        prior: GridTransformer | None = None,
        **kwargs,
    ):
        super().__init__(
            compressor, bottleneck, decompressor, likelihood, image_size, **kwargs
        )
        if not isinstance(bottleneck, DiscreteBottleneck):
            raise ValueError(
                f"ImageVQVAE has codes, and {type(bottleneck).__name__} has no codes. "
                f"Use a discrete bottleneck such as VQEMBottleneck, or an ImageVAE."
            )
        self.prior = prior
        if prior is not None:
            if not prior.built:
                prior.build()
            prior.trainable = False

    @classmethod
    def paper(
        cls, num_samples: int | None = 5, channels: int = 512, **kwargs
    ) -> "ImageVQVAE":
        """The paper's CIFAR-10 model: 8 x 8 x 10 codes from one codebook of 256.

        Args:
            num_samples: Of soft EM; None for hard EM.
            channels: Of the convolutions, and the size of a code's vector.
            **kwargs: Arguments of `ImageVQVAE` other than its parts.
        """
        return cls(
            ImageCompressor(10 * channels, channels),
            VQEMBottleneck(256, num_samples=num_samples, groups=SharedSlices(10)),
            ImageDecompressor(channels),
            CategoricalPixels(),
            **kwargs,
        )

    def with_prior(self, prior: GridTransformer) -> "ImageVQVAE":
        """The same model, its layers and weights shared, with a prior over its codes.

        Args:
            prior: A trained `GridTransformer`. It is frozen: `trainable` becomes False.
        """
        if not self.built:
            self.build()
        rows, columns, slots = prior.grid
        shape = tuple(self.encode(ops.zeros((1, *self.image_size, 3), "uint8")).shape)
        wanted = (*shape[1:], self.bottleneck.num_codes)
        if wanted != (rows, columns, slots, prior.num_symbols):
            raise ValueError(
                f"The prior is one of {rows} x {columns} x {slots} symbols out of "
                f"{prior.num_symbols}, and this model's images have "
                f"{' x '.join(map(str, wanted[:-1]))} codes out of {wanted[-1]}. Train "
                f"a prior on the codes of this model."
            )
        parts = (self.compressor, self.bottleneck, self.decompressor, self.likelihood)
        model = ImageVQVAE(
            *parts, self.image_size, prior, name=self.name, dtype=self.dtype_policy
        )
        model.head = self.head
        model.build()
        return model

    # Use.

    def encode(self, images: ArrayLike) -> tf.Tensor:
        """Codes [B, rows, columns, slots] of images, uint8 [B, H, W, 3].

        A bottleneck without groups has one slot.
        """
        codes = super().encode(images)
        return codes if self._slots else codes[..., None]

    def latents(self, codes: ArrayLike) -> tf.Tensor:
        """What the decompressor sees for codes: vectors [B, rows, columns, D]."""
        return super().latents(codes if self._slots else codes[..., 0])

    @property
    def _slots(self):
        return self.bottleneck.groups.code_shape

    def sample(
        self, count: int, seed: ArrayLike, temperature: float = 1.0
    ) -> tf.Tensor:
        """Draws images, uint8 [count, H, W, 3]: codes from the prior, decoded.

        Args:
            count: How many.
            seed: Two integers, or two for each image, int32 [count, 2].
            temperature: Below 1 for more probable codes.
        """
        if self.prior is None:
            raise ValueError(
                "This model has no prior to draw codes from. Train one with "
                "recipes/train_image_prior.py and use `model.with_prior(prior)`."
            )
        return self.decode(self.prior.sample(count, seed, temperature))

    def export(self, filepath: str | os.PathLike) -> None:
        """Writes a SavedModel that TensorFlow Serving loads as it is.

        Its signatures, with any number of images:

        - `reconstruct`, also `serving_default`: `images`, uint8 [B, H, W, 3], to
          `images`;
        - `encode`: `images` to `codes`, int32 [B, rows, columns, groups];
        - `decode`: `codes` to `images`;
        - with a prior `sample`: `seed`, int32 [B, 2], to B `images` and their `codes`.

        A code that is none is read as the nearest one that is. No row depends on the
        others.

        Args:
            filepath: The folder; TensorFlow Serving wants one named by a version,
                such as `models/images/1`.
        """
        self._export(filepath, image_endpoints.of_codes(self))

    def get_config(self):
        prior = self.prior
        if prior is not None:
            prior = keras.saving.serialize_keras_object(prior)
        return {**super().get_config(), "prior": prior}

    @classmethod
    def from_config(cls, config):
        prior = config.get("prior")
        if prior is not None:
            prior = keras.saving.deserialize_keras_object(prior)
        return super().from_config({**config, "prior": prior})
