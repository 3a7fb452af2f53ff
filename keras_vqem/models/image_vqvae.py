"""ImageVQVAE: the paper's autoencoder of images, through a grid of codes."""

import os
from typing import Any

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
from keras_vqem.layers.likelihoods.grouped_pixels import GroupedPixels
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood
from keras_vqem.models import image_endpoints, inpainting
from keras_vqem.models.grid_transformer import GridTransformer
from keras_vqem.models.image_autoencoder import ImageAutoencoder, freeze


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageVQVAE(ImageAutoencoder):
    """Compresses images to a grid of codes, and models the pixels given the codes.

    A compressor turns an image into a grid of vectors, the bottleneck turns the
    vectors into codes, and a decompressor turns codes into the parameters of a
    distribution of the pixels. The loss is the negative log probability of the pixels
    plus the loss of the bottleneck.

    Args:
        compressor: Layer from images `[B, H, W, 3]` with values from -1 to 1 to
            vectors `[B, rows, columns, D]`: `keras_vqem.layers.ImageCompressor` or
            `PatchCompressor`.
        bottleneck: A `keras_vqem.layers.DiscreteBottleneck`, such as
            `VQEMBottleneck`. Use `ImageVAE` with a `GaussianBottleneck`.
        decompressor: Layer from quantized vectors to a tuple of features per pixel and
            a first guess of the pixels: `ImageDecompressor` or
            `PatchDecompressor`.
        likelihood: Distribution of the pixels: `keras_vqem.layers.CategoricalPixels`
            or `LogisticMixture`, or `GroupedPixels`, in which pixels depend on each
            other.
        image_size: Tuple `(height, width)` of the images in pixels.
        prior: A `GridTransformer` over the codes, which `sample` needs, or None. It is
            trained after the other parts; `with_prior` adds and freezes it.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: Dict with `images`, uint8 `[B, H, W, 3]`.

    Returns:
        A dict of tensors:

        - `outputs`: `[B, H, W, likelihood.parameters]`, parameters of the likelihood.
        - `base`: `[B, H, W, 3]`, first guess of the pixels, from 0 to 255.
        - All outputs of the bottleneck, such as `codes`.
        - `groups`: in training with `GroupedPixels` only, int32 `[B]`, the group of
          each image that is learned from.

    Metrics:
        - `reconstruction_bits_per_dim`: Bits per dimension given the codes.
        - `bottleneck_loss`: Loss added by the bottleneck.
        - Metrics of the bottleneck.

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
        likelihood: PixelLikelihood | GroupedPixels,
        image_size: tuple[int, int] = (32, 32),
        prior: GridTransformer | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            compressor, bottleneck, decompressor, likelihood, image_size, **kwargs
        )
        if not isinstance(bottleneck, DiscreteBottleneck):
            raise ValueError(
                f"ImageVQVAE needs codes, but {type(bottleneck).__name__} has no "
                f"codes. Use a discrete bottleneck such as VQEMBottleneck, or an "
                f"ImageVAE."
            )
        self.prior = prior
        if prior is not None:
            if not prior.built:
                prior.build()
            freeze(prior)

    @classmethod
    def paper(
        cls, num_samples: int | None = 5, channels: int = 512, **kwargs: Any
    ) -> "ImageVQVAE":
        """Makes the paper's CIFAR-10 model: 8 x 8 x 10 codes, one codebook of 256.

        Args:
            num_samples: Number of samples of soft EM. None is hard EM.
            channels: Number of channels of the convolutions, and size of a code's
                vector.
            **kwargs: Arguments of `ImageVQVAE` except its four layers.

        Returns:
            An `ImageVQVAE`, not trained.
        """
        return cls(
            ImageCompressor(10 * channels, channels),
            VQEMBottleneck(256, num_samples=num_samples, groups=SharedSlices(10)),
            ImageDecompressor(channels),
            CategoricalPixels(),
            **kwargs,
        )

    def with_prior(self, prior: GridTransformer) -> "ImageVQVAE":
        """Returns a model with the same layers and weights, and a prior over codes.

        Args:
            prior: A trained `GridTransformer` over the codes of this model. It is
                frozen: its `trainable` is set to False.

        Returns:
            An `ImageVQVAE` that shares all layers with this one.

        Raises:
            ValueError: If the grid of the prior is not that of the codes.
        """
        if not self.built:
            self.build()
        rows, columns, slots = prior.grid
        shape = tuple(self.encode(ops.zeros((1, *self.image_size, 3), "uint8")).shape)
        wanted = (*shape[1:], self.bottleneck.num_codes)
        if wanted != (rows, columns, slots, prior.num_symbols):
            raise ValueError(
                f"The prior has {rows} x {columns} x {slots} symbols out of "
                f"{prior.num_symbols}, but an image has "
                f"{' x '.join(map(str, wanted[:-1]))} codes out of {wanted[-1]} in "
                f"this model. Train a prior on the codes of this model."
            )
        parts = (self.compressor, self.bottleneck, self.decompressor, self.likelihood)
        model = ImageVQVAE(
            *parts, self.image_size, prior, name=self.name, dtype=self.dtype_policy
        )
        model.head = self.head
        model.build()
        return model

    def _quantize(self, vectors, training):
        # Frozen codes are those that are sent: the nearest ones, not draws.
        return super()._quantize(vectors, training and self.bottleneck.trainable)

    def _others(self):
        return {"prior": self.prior}

    # Use.

    def encode(self, images: ArrayLike) -> tf.Tensor:
        """Encodes images to codes.

        Args:
            images: uint8 `[B, H, W, 3]`.

        Returns:
            int32 `[B, rows, columns, slots]`, one slot per group of the bottleneck.
        """
        codes = super().encode(images)
        # The number of slots by name: an exported graph needs it to be known.
        slots = self.bottleneck.groups.num_groups
        return ops.reshape(codes, (*ops.shape(codes)[:3], slots))

    def latents(self, codes: ArrayLike) -> tf.Tensor:
        """Returns vectors `[B, rows, columns, D]` for codes, as `encode` gives them."""
        tail = self.bottleneck.groups.code_shape
        if len(tail) != 1:
            codes = ops.convert_to_tensor(codes)
            codes = ops.reshape(codes, (*ops.shape(codes)[:-1], *tail))
        return super().latents(codes)

    def sample(
        self,
        count: int,
        seed: ArrayLike,
        temperature: float = 1.0,
        top_p: float | None = None,
        labels: ArrayLike | None = None,
    ) -> tf.Tensor:
        """Draws codes from the prior and decodes them to images.

        With `GroupedPixels`, the pixels are drawn too. Otherwise they are the expected
        ones, because the independent noise of single pixels shows.

        Args:
            count: Number of images.
            seed: Two integers, or int32 `[count, 2]` with one seed per image.
            temperature: Temperature of sampling. Values below 1 give more probable
                codes.
            top_p: Probability of the most probable codes to draw from, at each
                position, as in `keras_vqem.decoding.sample_search`. None draws from
                all codes.
            labels: Classes of the images, for a prior with classes only: integers
                `[count]`, or one integer for all images.

        Returns:
            uint8 `[count, H, W, 3]`.

        Raises:
            ValueError: If the model has no prior.
        """
        prior = self._needed_prior()
        codes = prior.sample(count, seed, temperature, top_p=top_p, labels=labels)
        return self.generated(codes, seed)

    def inpaint(
        self,
        images: ArrayLike,
        known: ArrayLike,
        seed: ArrayLike,
        num_candidates: int = 8,
        temperature: float = 1.0,
        top_p: float | None = None,
        labels: ArrayLike | None = None,
    ) -> tf.Tensor:
        """Imagines a part of images anew, of any shape.

        The prior completes the codes: those of cells that are known to the last pixel
        are kept. As codes are drawn in reading order, a drawn one depends on the known
        ones above and to the left of it; which of several candidates is kept depends on
        those after it, too (`GridTransformer.complete`). Then the codes are decoded,
        and the known pixels put back.

        Nothing of what is under the mask is used: before images are encoded, it is
        filled from the pixels around it.

        Args:
            images: uint8 `[B, H, W, 3]`.
            known: Booleans `[H, W]` or `[B, H, W]`, True for pixels to keep.
            seed: Two integers.
            num_candidates: Number of candidates per image. More fit better to what is
                known below and to the right.
            temperature: Temperature of sampling.
            top_p: Probability of the most probable codes to draw from, as in `sample`.
            labels: Classes of the images, as in `sample`.

        Returns:
            uint8 `[B, H, W, 3]`.

        Raises:
            ValueError: If the model has no prior.
        """
        prior = self._needed_prior()
        images, known = inpainting.checked(images, known)
        codes = self.encode(inpainting.filled(images, known))
        cells = inpainting.known_cells(known, *prior.grid[:2])[..., None]
        options = {"temperature": temperature, "top_p": top_p, "labels": labels}
        codes = prior.complete(codes, cells, seed, num_candidates, **options)
        return ops.where(known[..., None], images, self.generated(codes, seed))

    def _needed_prior(self):
        if self.prior is None:
            raise ValueError(
                "This model has no prior to draw codes from. Train one with "
                "recipes/train_image_prior.py and use `model.with_prior(prior)`."
            )
        return self.prior

    def export(
        self,
        filepath: str | os.PathLike,
        temperature: float = 1.0,
        top_p: float | None = None,
    ) -> None:
        """Writes a SavedModel that TensorFlow Serving can load.

        Its signatures take any number of rows, and no row depends on the others:

        - `reconstruct`, also `serving_default`: from `images`, uint8 `[B, H, W, 3]`,
          to `images`.
        - `encode`: from `images` to `codes`, int32 `[B, rows, columns, slots]`.
        - `decode`: from `codes` to the expected `images`. Codes are clipped to the
          codebook, from 0 to `num_codes - 1`.
        - `sample`, of a model with a prior: from `seed`, int32 `[B, 2]`, to `images`
          and their `codes`. If the prior has classes, also from `labels`, int32
          `[B]`.

        Args:
            filepath: Folder to write. TensorFlow Serving expects its name to be a
                version number, such as `models/images/1`.
            temperature: Temperature of `sample`.
            top_p: Probability of the most probable codes from which `sample` draws, at
                each position. None draws from all codes.
        """
        endpoints = image_endpoints.of_codes(self, temperature, top_p)
        self._export(filepath, endpoints)

    def get_config(self) -> dict[str, Any]:
        prior = self.prior
        if prior is not None:
            prior = keras.saving.serialize_keras_object(prior)
        return {**super().get_config(), "prior": prior}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ImageVQVAE":
        prior = config.get("prior")
        if prior is not None:
            prior = keras.saving.deserialize_keras_object(prior)
        return super().from_config({**config, "prior": prior})
