"""ImageAutoencoder: base class of the autoencoders of images."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import integers
from keras_vqem.layers import patch_start
from keras_vqem.layers.bottlenecks.bottleneck import Bottleneck
from keras_vqem.layers.likelihoods.grouped_pixels import GroupedPixels
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood, fold_in
from keras_vqem.models.task_model import TaskModel

PIXELS = 2**30  # Folded into a seed to draw pixels.
PARTS = ("compressor", "bottleneck", "decompressor", "likelihood")


class ImageAutoencoder(TaskModel):
    """Base class of `ImageVQVAE` (with codes) and `ImageVAE` (without).

    Args:
        compressor: Layer from images `[B, H, W, 3]` with values from -1 to 1 to
            vectors `[B, rows, columns, D]`.
        bottleneck: Bottleneck layer of `keras_vqem.layers`.
        decompressor: Layer from latents to a tuple of features per pixel and a first
            guess of the pixels.
        likelihood: Distribution of the pixels, with 256 levels. `GroupedPixels` is a
            layer; the others have no weights.
        image_size: Tuple `(height, width)` of the images in pixels.
        **kwargs: Arguments of `keras.Model`.

    Metrics:
        - `reconstruction_bits_per_dim`: Bits per dimension given the output of the
          bottleneck.
        - `bottleneck_loss`: Loss added by the bottleneck.
        - Metrics of the bottleneck.
    """

    def __init__(
        self,
        compressor: keras.layers.Layer,
        bottleneck: Bottleneck,
        decompressor: keras.layers.Layer,
        likelihood: PixelLikelihood | GroupedPixels,
        image_size: tuple[int, int] = (32, 32),
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if likelihood.levels != 256:
            raise ValueError(
                f"Images have 256 levels, but the likelihood has {likelihood.levels}. "
                f"Leave out its argument `levels`."
            )
        self.compressor = compressor
        self.bottleneck = bottleneck
        self.decompressor = decompressor
        self.likelihood = likelihood
        self.image_size = tuple(image_size)
        self.head = None  # Made by `build`, unless `with_prior` shares it.
        self.reconstruction_bits_per_dim = keras.metrics.Mean(
            name="reconstruction_bits_per_dim"
        )
        self.bottleneck_loss = keras.metrics.Mean(name="bottleneck_loss")

    def build(self, input_shape: Any = None) -> None:
        if self.head is None:
            # Small but random: mixture components that start equal would stay equal.
            self.head = keras.layers.Dense(
                self.likelihood.parameters,
                kernel_initializer=keras.initializers.VarianceScaling(0.1),
                name="head",
                dtype="float32",
            )
        if isinstance(self.likelihood, GroupedPixels) and not self.likelihood.built:
            self.likelihood.build()
        # Each part is built for the output of the one before it.
        self.call({"images": ops.zeros((1, *self.image_size, 3), dtype="uint8")})
        for part in (self.compressor, self.bottleneck, self.decompressor):
            if not part.trainable:
                freeze(part)
        self.built = True

    # The two halves.

    def compressed(self, images: ArrayLike) -> tf.Tensor:
        """Returns the input of the bottleneck for images.

        Args:
            images: uint8 `[B, H, W, 3]`.

        Returns:
            Vectors `[B, rows, columns, D]`.
        """
        images = integers("images", images, 255)
        x = ops.cast(images, self.compute_dtype) / 127.5 - 1.0
        return self.compressor(x)

    def _decompress(self, latents):
        """Returns the parameters of the likelihood, and the pixels it is centred on."""
        features, base = self.decompressor(latents)
        return self.head(features), (ops.cast(base, "float32") + 1.0) * 127.5

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> dict[str, tf.Tensor]:
        found = self._quantize(self.compressed(inputs["images"]), training)
        outputs, base = self._decompress(found["quantized"])
        if training and isinstance(self.likelihood, GroupedPixels):
            found["groups"] = self.likelihood.draw_groups(ops.shape(outputs)[0])
        return {"outputs": outputs, "base": base, **found}

    def _quantize(self, vectors, training):
        return self.bottleneck(vectors, training=training)

    # Training.

    def _loss_terms(self, inputs, outputs):
        arguments = (outputs["outputs"], inputs["images"])
        if "groups" in outputs:
            log_p = self.likelihood.estimate(
                *arguments, outputs["groups"], outputs["base"]
            )
        else:
            log_p = self.likelihood.log_prob(*arguments, outputs["base"])
        nats = -log_p / 3.0
        values = {"loss": nats, "metric": nats / ops.log(2.0)}
        yield self.reconstruction_bits_per_dim, values, ops.ones_like(nats)

    def _loss_counts(self, inputs):
        rows, height, width, _ = ops.shape(inputs["images"])
        return [rows * height * width, rows]

    def init_from_patches(self, images: ArrayLike, seed: int = 0) -> None:
        """Initializes the model by PCA of patches and k-means of their groups.

        This takes about a minute and saves hours of training: the linear paths of
        `PatchCompressor` and `PatchDecompressor` and the codebooks then already form a
        good code, which training improves. An `ImageVAE` starts as probabilistic PCA,
        with the likelihood's `spread` as its noise. Call this before `fit`.

        Args:
            images: uint8 `[N, H, W, 3]`, a few thousand training images.
            seed: Seed of k-means.
        """
        integers("images", images[:1], 255)
        if not self.built:
            self.build()
        patch_start.init_from_patches(
            self.compressor,
            self.bottleneck,
            self.decompressor,
            images,
            noise=self.likelihood.spread / 127.5,
            seed=seed,
        )

    def with_likelihood(
        self, likelihood: PixelLikelihood | GroupedPixels
    ) -> "ImageAutoencoder":
        """Returns a model with the same latents and another distribution of pixels.

        What makes and reads the latents (compressor, bottleneck and decompressor) is
        shared with this model and frozen: its `trainable` is set to False. The head is
        new. If `likelihood` is a `GroupedPixels` over the likelihood of this model, the
        new model starts with exactly the probabilities of this one.

        Args:
            likelihood: Distribution of the pixels, with 256 levels.

        Returns:
            A model of the same class, to be trained with `compile` and `fit`.

        Example:

        >>> model = keras_vqem.models.ImageVQVAE.from_preset("cifar10_em")
        >>> pixels = keras_vqem.layers.GroupedPixels(model.likelihood, channels=16)
        >>> model = model.with_likelihood(pixels)
        >>> len(model.bottleneck.trainable_weights), model.prior is not None
        (0, True)
        """
        if not self.built:
            self.build()
        parts = [self.compressor, self.bottleneck, self.decompressor]
        for part in parts:
            freeze(part)
        model = type(self)(
            *parts,
            likelihood,
            self.image_size,
            name=self.name,
            dtype=self.dtype_policy,
            **self._others(),
        )
        model.build()
        inner = getattr(likelihood, "likelihood", likelihood)
        before, after = map(
            keras.saving.serialize_keras_object, (self.likelihood, inner)
        )
        if before == after:
            count = inner.parameters
            for old, new in zip(self.head.weights, model.head.weights, strict=True):
                new.assign(ops.concatenate([old, new[..., count:]], axis=-1))
        return model

    def _others(self):
        """Arguments besides those of this class."""
        return {}

    # Use.

    def encode(self, images: ArrayLike) -> tf.Tensor:
        """Encodes images.

        Args:
            images: uint8 `[B, H, W, 3]`.

        Returns:
            The bottleneck's encoding of the images, which `decode` takes.
        """
        if not self.built:
            self.build()
        return self.bottleneck.encode(self.compressed(images))

    def latents(self, codes: ArrayLike) -> tf.Tensor:
        """Returns the input of the decompressor for an output of `encode`."""
        return self.bottleneck.decode(codes)

    def decode(self, codes: ArrayLike, seed: ArrayLike | None = None) -> tf.Tensor:
        """Decodes an output of `encode` to images.

        Args:
            codes: Output of `encode`.
            seed: Two integers, or int32 `[B, 2]` with one seed per image, to draw the
                pixels: the same codes with another seed give another image. None for
                the expected pixels.

        Returns:
            uint8 `[B, H, W, 3]`.
        """
        latents = self.latents(codes)
        return self.expected(latents) if seed is None else self.drawn(latents, seed)

    def expected(self, latents: ArrayLike) -> tf.Tensor:
        """Returns the expected images, uint8 `[B, H, W, 3]`, for latents."""
        outputs, base = self._decompress(latents)
        return ops.cast(ops.round(self.likelihood.mean(outputs, base)), "uint8")

    def drawn(self, latents: ArrayLike, seed: ArrayLike) -> tf.Tensor:
        """Draws the pixels of images given latents.

        Args:
            latents: Input of the decompressor.
            seed: Two integers, or int32 `[B, 2]` with one seed per image.

        Returns:
            uint8 `[B, H, W, 3]`.
        """
        outputs, base = self._decompress(latents)
        return ops.cast(self.likelihood.sample(outputs, seed, base), "uint8")

    def generated(self, codes: ArrayLike, seed: ArrayLike) -> tf.Tensor:
        """Decodes new codes or latents to images, as `sample` does.

        With `GroupedPixels`, the pixels are drawn. Otherwise they are the expected
        ones, because the independent noise of single pixels shows.

        Args:
            codes: Drawn codes or latents, as `encode` gives them.
            seed: Two integers, or int32 `[B, 2]` with one seed per image.

        Returns:
            uint8 `[B, H, W, 3]`.
        """
        if not isinstance(self.likelihood, GroupedPixels):
            return self.decode(codes)
        # Codes are drawn with the same seed and the numbers of their positions.
        return self.decode(codes, fold_in(ops.cast(seed, "int32"), PIXELS))

    def reconstruct(self, images: ArrayLike) -> tf.Tensor:
        """Encodes and decodes images, uint8 `[B, H, W, 3]`."""
        return self.decode(self.encode(images))

    def log_prob(self, images: ArrayLike, latents: ArrayLike) -> tf.Tensor:
        """Computes the log probability of images given latents.

        Args:
            images: uint8 `[B, H, W, 3]`.
            latents: Input of the decompressor, such as `latents(encode(images))`.

        Returns:
            float32 `[B]`, nats per image.
        """
        outputs, base = self._decompress(latents)
        return ops.sum(self.likelihood.log_prob(outputs, images, base), axis=(1, 2))

    def get_config(self) -> dict[str, Any]:
        parts = {
            name: keras.saving.serialize_keras_object(getattr(self, name))
            for name in PARTS
        }
        return {**super().get_config(), **parts, "image_size": self.image_size}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ImageAutoencoder":
        parts = {
            name: keras.saving.deserialize_keras_object(config[name]) for name in PARTS
        }
        return super().from_config({**config, **parts})


def freeze(layer: keras.layers.Layer) -> None:
    """Makes all weights of a layer not trainable, those of inner layers included.

    A layer that was made with `trainable=False`, as a loaded one is, leaves the weights
    of its inner layers trainable in the model around it, and Keras ignores it if the
    same value is set again.
    """
    layer.trainable = True
    layer.trainable = False
