"""ImageVQVAE: the paper's autoencoder of images, through a grid of codes."""

import keras
import numpy as np
from keras import ops

from keras_vqem import replicas
from keras_vqem.checks import integers
from keras_vqem.layers import (
    GaussianBottleneck,
    ImageCompressor,
    ImageDecompressor,
    PatchCompressor,
    PatchDecompressor,
    SharedSlices,
    Slices,
    VQBottleneck,
    VQEMBottleneck,
)
from keras_vqem.layers.likelihoods.categorical_pixels import CategoricalPixels
from keras_vqem.models import image_endpoints, patch_start
from keras_vqem.models.task_model import TaskModel


@keras.saving.register_keras_serializable(package="keras_vqem")
class ImageVQVAE(TaskModel):
    """Compresses images to codes and gives a distribution of the pixels for codes.

    Args:
        compressor: Layer from images [B, H, W, 3], -1 to 1, to vectors [B, rows,
            columns, D]: `keras_vqem.layers.ImageCompressor` or `PatchCompressor`.
        bottleneck: Any bottleneck of `keras_vqem.layers`. With a `GaussianBottleneck`
            the model is a VAE.
        decompressor: Layer from what the bottleneck gives to features of each pixel
            and a first guess of the pixels or None: `ImageDecompressor` or
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
        compressor,
        bottleneck,
        decompressor,
        likelihood,
        image_size=(32, 32),
        prior=None,
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
        self.prior = prior
        if prior is not None:
            if not prior.built:
                prior.build()
            prior.trainable = False
        self.head = None  # before it is built, or shared by `with_prior`
        self.reconstruction_bits_per_dim = keras.metrics.Mean(
            name="reconstruction_bits_per_dim"
        )
        self.bottleneck_loss = keras.metrics.Mean(name="bottleneck_loss")

    @classmethod
    def paper(cls, num_samples=5, channels=512, **kwargs):
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

    def with_prior(self, prior):
        """The same model, its layers and weights shared, with a prior over its codes.

        Args:
            prior: A trained `GridTransformer`. It is frozen: `trainable` becomes False.
        """
        if not hasattr(self.bottleneck, "num_codes"):
            raise ValueError(
                "A VAE has no codes that a prior could predict, and needs none: its "
                "latents are standard normal."
            )
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

    def compressed(self, images):
        """Vectors [B, rows, columns, D] of images: what the bottleneck sees."""
        images = integers("images", images, 255)
        x = ops.cast(images, self.compute_dtype) / 127.5 - 1.0
        return self.compressor(x)

    def _decompress(self, latents):
        """The likelihood's numbers, and the pixels that they are centred on."""
        features, base = self.decompressor(latents)
        if base is not None:
            base = (ops.cast(base, "float32") + 1.0) * 127.5
        return self.head(features), base

    def call(self, inputs, training=None):
        found = self.bottleneck(self.compressed(inputs["images"]), training=training)
        outputs, base = self._decompress(found["quantized"])
        if base is None:
            base = ops.full((*ops.shape(outputs)[:-1], 3), 127.5, dtype="float32")
        return {"outputs": outputs, "base": base, **found}

    # Training.

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        log_p = self.likelihood.log_prob(y_pred["outputs"], x["images"], y_pred["base"])
        nats = -ops.mean(log_p) / 3.0
        self.reconstruction_bits_per_dim.update_state(
            nats / ops.log(2.0), sample_weight=ops.size(log_p)
        )
        # Keras sums gradients over replicas, whose batches are of one size.
        total = nats / replicas.num_replicas()
        if self.losses:
            self.bottleneck_loss.update_state(sum(self.losses))
            total += super().compute_loss(x=x, y_pred=y_pred, training=training)
        return total

    def init_from_patches(self, images, seed=0):
        """Starts from principal components of patches and k-means of their groups.

        A minute's work that the network would need hours for: afterwards the linear
        paths of `PatchCompressor` and `PatchDecompressor` and the codebooks are a good
        code of their own, and training improves on it. Call it before `fit`. A VAE
        starts as probabilistic PCA, with the likelihood's `spread` as its noise.

        Args:
            images: uint8 [N, H, W, 3] to learn from; some thousands.
            seed: Of k-means.
        """
        groups = getattr(self.bottleneck, "groups", None)
        gaussian = isinstance(self.bottleneck, GaussianBottleneck)
        nearest = isinstance(self.bottleneck, VQBottleneck | VQEMBottleneck)
        if not (
            isinstance(self.compressor, PatchCompressor)
            and isinstance(self.decompressor, PatchDecompressor)
            and (gaussian or nearest and type(groups) is Slices)
        ):
            parts = (self.compressor, self.decompressor, self.bottleneck)
            names = ", ".join(type(part).__name__ for part in parts)
            raise ValueError(
                f"Starting from patches needs a PatchCompressor, a PatchDecompressor "
                f"and a codebook for each group, a VQEMBottleneck or VQBottleneck with "
                f"groups=Slices(n); or a GaussianBottleneck. Received {names} with "
                f"groups {groups!r}."
            )
        integers("images", images[:1], 255)
        if not self.built:
            self.build()
        if gaussian:
            self._start_gaussian(images, seed)
            return
        start = patch_start.find(
            images,
            self.compressor.patch_size,
            groups.num_groups,
            self.bottleneck.num_codes,
            self.bottleneck.codebook.shape[-1],
            seed,
        )
        inward = start.basis / self.decompressor.unit
        self.compressor.linear.set_weights([inward, -start.mean @ inward])
        self.decompressor.linear.set_weights([start.basis.T, start.mean])
        self.bottleneck.codebook.assign(start.codebooks / self.decompressor.unit)
        if hasattr(self.bottleneck, "counts"):
            self.bottleneck.counts.assign(start.counts)

    def _start_gaussian(self, images, seed):
        kernel, bias = (np.array(w) for w in self.bottleneck.get_weights())
        latents = len(bias) // 2
        start = patch_start.find_gaussian(
            images,
            self.compressor.patch_size,
            min(self.compressor.code_dim, latents),
            self.likelihood.spread / 127.5,
            seed,
        )
        used = len(start.log_variances)
        # The compressor's first outputs are the means; what the others will be is for
        # the network to find.
        kernel[:used], kernel[:used, :used] = 0.0, np.eye(used)
        bias[latents : latents + used] = start.log_variances
        self.bottleneck.set_weights([kernel, bias])
        for layer, matrix, shift in (
            (self.compressor.linear, start.inward, start.inward_bias),
            (
                self.decompressor.linear,
                start.outward / self.decompressor.unit,
                start.mean,
            ),
        ):
            weights = [np.zeros_like(w) for w in layer.get_weights()]
            weights[0][: matrix.shape[0], : matrix.shape[1]] = matrix
            weights[1][: len(shift)] = shift
            layer.set_weights(weights)

    # Use.

    def encode(self, images):
        """Codes [B, rows, columns, slots] of images, uint8 [B, H, W, 3].

        A bottleneck without groups has one slot. A VAE's codes are its means.
        """
        if not self.built:
            self.build()
        codes = self.bottleneck.encode(self.compressed(images))
        return codes[..., None] if self._slotless else codes

    def decode(self, codes):
        """The expected images, uint8 [B, H, W, 3], for codes."""
        return self.expected(self.latents(codes))

    def latents(self, codes):
        """What the decompressor sees for codes: vectors [B, rows, columns, D]."""
        return self.bottleneck.decode(codes[..., 0] if self._slotless else codes)

    @property
    def _slotless(self):
        groups = getattr(self.bottleneck, "groups", None)
        return groups is not None and not groups.code_shape

    def expected(self, latents):
        """The expected images, uint8, for what a bottleneck gives."""
        outputs, base = self._decompress(latents)
        return ops.cast(ops.round(self.likelihood.mean(outputs, base)), "uint8")

    def reconstruct(self, images):
        """What is left of images after they went through their codes."""
        return self.decode(self.encode(images))

    def sample(self, count, seed, temperature=1.0):
        """Draws images, uint8 [count, H, W, 3]: codes from the prior, decoded.

        Args:
            count: How many.
            seed: Two integers, or two for each image, int32 [count, 2].
            temperature: Below 1 for more probable codes.
        """
        if not hasattr(self.bottleneck, "num_codes"):
            raise ValueError(
                "The codes of a VAE are standard normal numbers: draw them, of the "
                "shape that `encode` gives, and `decode` them."
            )
        if self.prior is None:
            raise ValueError(
                "This model has no prior to draw codes from. Train one with "
                "recipes/train_image_prior.py and use `model.with_prior(prior)`."
            )
        return self.decode(self.prior.sample(count, seed, temperature))

    def log_prob(self, images, latents):
        """Log probability [B] of images, nats, given what the decompressor sees."""
        outputs, base = self._decompress(latents)
        return ops.sum(self.likelihood.log_prob(outputs, images, base), axis=(1, 2))

    # Export.

    def export(self, filepath):
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
        if not hasattr(self.bottleneck, "num_codes"):
            raise ValueError(
                f"Only a model with codes can be exported, this one has a "
                f"{type(self.bottleneck).__name__}."
            )
        if not self.built:
            self.build()
        self._export(filepath, image_endpoints.of_images(self))

    def get_config(self):
        def pack(part):
            return keras.saving.serialize_keras_object(part)

        return {
            **super().get_config(),
            "compressor": pack(self.compressor),
            "bottleneck": pack(self.bottleneck),
            "decompressor": pack(self.decompressor),
            "likelihood": pack(self.likelihood),
            "image_size": self.image_size,
            "prior": None if self.prior is None else pack(self.prior),
        }

    @classmethod
    def from_config(cls, config):
        parts = ("compressor", "bottleneck", "decompressor", "likelihood", "prior")
        unpacked = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in parts
            if config.get(name) is not None
        }
        return cls(**{**config, **unpacked})
