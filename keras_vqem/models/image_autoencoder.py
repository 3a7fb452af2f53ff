"""What the autoencoders of images share: two halves, a likelihood, the loss."""

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import replicas
from keras_vqem.checks import integers
from keras_vqem.layers import patch_start
from keras_vqem.layers.bottlenecks.bottleneck import Bottleneck
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood
from keras_vqem.models.task_model import TaskModel

PARTS = ("compressor", "bottleneck", "decompressor", "likelihood")


class ImageAutoencoder(TaskModel):
    """Base of `ImageVQVAE` and `ImageVAE`, which say what goes through the middle.

    Metrics: `reconstruction_bits_per_dim`, bits per dimension given what the bottleneck
    lets through; `bottleneck_loss`, what the bottleneck adds to the loss; and the
    bottleneck's own.
    """

    def __init__(
        self,
        compressor: keras.layers.Layer,
        bottleneck: Bottleneck,
        decompressor: keras.layers.Layer,
        likelihood: PixelLikelihood,
        image_size: tuple[int, int] = (32, 32),
        **kwargs,
    ):
        super().__init__(**kwargs)
        if likelihood.levels != 256:
            raise ValueError(
                f"Images are of 256 levels here, and the likelihood is of "
                f"{likelihood.levels}. Leave out `levels`."
            )
        self.compressor = compressor
        self.bottleneck = bottleneck
        self.decompressor = decompressor
        self.likelihood = likelihood
        self.image_size = tuple(image_size)
        self.head = None  # before it is built, or shared by `with_prior`
        self.reconstruction_bits_per_dim = keras.metrics.Mean(
            name="reconstruction_bits_per_dim"
        )
        self.bottleneck_loss = keras.metrics.Mean(name="bottleneck_loss")

    def build(self, input_shape=None):
        if self.head is None:
            # Random, though small: mixtures that start alike would stay alike.
            self.head = keras.layers.Dense(
                self.likelihood.parameters,
                kernel_initializer=keras.initializers.VarianceScaling(0.1),
                name="head",
                dtype="float32",
            )
        # Each part is built for what the one before it gives.
        self.call({"images": ops.zeros((1, *self.image_size, 3), dtype="uint8")})
        self.built = True

    # The two halves.

    def compressed(self, images: ArrayLike) -> tf.Tensor:
        """Vectors [B, rows, columns, D] of images: what the bottleneck sees."""
        images = integers("images", images, 255)
        x = ops.cast(images, self.compute_dtype) / 127.5 - 1.0
        return self.compressor(x)

    def _decompress(self, latents):
        """The likelihood's numbers, and the pixels that they are centred on."""
        features, base = self.decompressor(latents)
        return self.head(features), (ops.cast(base, "float32") + 1.0) * 127.5

    def call(self, inputs, training=None):
        found = self.bottleneck(self.compressed(inputs["images"]), training=training)
        outputs, base = self._decompress(found["quantized"])
        return {"outputs": outputs, "base": base, **found}

    # Training.

    def task_loss(self, inputs: dict, outputs: dict | tf.Tensor) -> tf.Tensor:
        log_p = self.likelihood.log_prob(
            outputs["outputs"], inputs["images"], outputs["base"]
        )
        nats = -ops.mean(log_p) / 3.0
        self.reconstruction_bits_per_dim.update_state(
            nats / ops.log(2.0), sample_weight=ops.size(log_p)
        )
        if self.losses:
            self.bottleneck_loss.update_state(sum(self.losses))
        # Keras sums gradients over replicas, whose batches are of one size.
        return nats / replicas.num_replicas()

    def init_from_patches(self, images: ArrayLike, seed: int = 0) -> None:
        """Starts from principal components of patches and k-means of their groups.

        A minute's work that the network would need hours for: afterwards the linear
        paths of `PatchCompressor` and `PatchDecompressor` and the codebooks are a good
        code of their own, and training improves on it. Call it before `fit`. An
        `ImageVAE` starts as probabilistic PCA, with the likelihood's `spread` as its
        noise.

        Args:
            images: uint8 [N, H, W, 3] to learn from; some thousands.
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

    # Use.

    def encode(self, images: ArrayLike) -> tf.Tensor:
        """What `decode` takes: the bottleneck's encoding of images, uint8."""
        if not self.built:
            self.build()
        return self.bottleneck.encode(self.compressed(images))

    def latents(self, codes: ArrayLike) -> tf.Tensor:
        """What the decompressor sees for what `encode` gives."""
        return self.bottleneck.decode(codes)

    def decode(self, codes: ArrayLike) -> tf.Tensor:
        """The expected images, uint8 [B, H, W, 3], for what `encode` gives."""
        return self.expected(self.latents(codes))

    def expected(self, latents: ArrayLike) -> tf.Tensor:
        """The expected images, uint8, for what a bottleneck gives."""
        outputs, base = self._decompress(latents)
        return ops.cast(ops.round(self.likelihood.mean(outputs, base)), "uint8")

    def reconstruct(self, images: ArrayLike) -> tf.Tensor:
        """What is left of images after they went through the bottleneck."""
        return self.decode(self.encode(images))

    def log_prob(self, images: ArrayLike, latents: ArrayLike) -> tf.Tensor:
        """Log probability [B] of images, nats, given what the decompressor sees."""
        outputs, base = self._decompress(latents)
        return ops.sum(self.likelihood.log_prob(outputs, images, base), axis=(1, 2))

    def get_config(self):
        parts = {
            name: keras.saving.serialize_keras_object(getattr(self, name))
            for name in PARTS
        }
        return {**super().get_config(), **parts, "image_size": self.image_size}

    @classmethod
    def from_config(cls, config):
        parts = {
            name: keras.saving.deserialize_keras_object(config[name]) for name in PARTS
        }
        return super().from_config({**config, **parts})
