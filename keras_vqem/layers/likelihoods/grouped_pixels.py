"""GroupedPixels: pixels that know their neighbours, in a few interleaved groups."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import integers, whole_number
from keras_vqem.layers.image_compressor import check_divisible
from keras_vqem.layers.likelihoods.logistic_mixture import LogisticMixture
from keras_vqem.layers.likelihoods.pixel_likelihood import PixelLikelihood, fold_in
from keras_vqem.layers.likelihoods.pixel_network import PixelNetwork
from keras_vqem.layers.patch_compressor import from_patches, to_patches
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class GroupedPixels(keras.layers.Layer):
    """A distribution over images in which pixels depend on each other, group by group.

    The image is divided into cells of `cell_size` x `cell_size` pixels. The pixels at
    one place of all cells are a group: of each 2 x 2 cell first the upper left pixel,
    then the lower right, the upper right and the lower left one. The distribution of a
    group depends on the outputs of the autoencoder's head and on all pixels of the
    groups before it. Within a group, pixels are independent given these. So the
    probability of an image is exact,

        log p(image) = sum over groups k of log p(group k | groups before k, outputs),

    and it takes one pass of a network per group, where an autoregressive model of
    pixels takes a step per pixel.

    One network serves all groups. It works on cells: their channels are the outputs,
    the base, and the pixels of the groups so far of all pixels of a cell, so that all
    it computes is about the one pixel of each cell that is asked for. It corrects the
    parameters of the `likelihood` that the outputs begin with, and its correction
    starts at 0.

    It takes the place of a `LogisticMixture` or `CategoricalPixels` in an
    `ImageVQVAE` or `ImageVAE`, from the start or later
    (`ImageVQVAE.with_likelihood`). Unlike these it has weights. A training step learns
    from one group per image, which is drawn; see `draw_groups`.

    Args:
        likelihood: Distribution of a pixel given the pixels before it: a
            `LogisticMixture` or `CategoricalPixels`. None for a `LogisticMixture`.
        features: Number of outputs per pixel besides the parameters of `likelihood`,
            for the network to read.
        channels: Number of channels of the network, per cell.
        num_blocks: Number of residual blocks of the network.
        cell_size: Height and width of a cell, 2 or 4. There are `cell_size ** 2`
            groups.
        seed: Seed of the groups that are drawn in training. None draws one.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        outputs: Floats `[B, H, W, parameters]`.
        images: Integers `[B, H, W, 3]` from 0 to `levels - 1`.
        base: First guess of the images, floats `[B, H, W, 3]` from 0 to `levels - 1`.
            None for mid-grey.

    Returns:
        Float32 `[B, H, W]`: `log_prob` of the pixels, in nats.

    Example:

    >>> likelihood = keras_vqem.layers.GroupedPixels(
    ...     keras_vqem.layers.LogisticMixture(num_mixtures=5), features=14, channels=8)
    >>> likelihood.parameters
    64
    >>> outputs = np.zeros((2, 8, 8, 64), "float32")
    >>> images = np.full((2, 8, 8, 3), 127, "uint8")
    >>> likelihood.log_prob(outputs, images).shape
    TensorShape([2, 8, 8])
    >>> likelihood.sample(outputs, seed=(0, 1)).shape
    TensorShape([2, 8, 8, 3])

    References:
        - [Reed et al., 2017](https://arxiv.org/abs/1703.03664)
    """

    def __init__(
        self,
        likelihood: PixelLikelihood | None = None,
        features: int = 32,
        channels: int = 128,
        num_blocks: int = 5,
        cell_size: int = 2,
        seed: int | None = None,
        **kwargs: Any,
    ):
        # Outputs and pixels are float32 under any policy; only the network is not.
        super().__init__(autocast=False, **kwargs)
        self.likelihood = LogisticMixture() if likelihood is None else likelihood
        self.features = whole_number("features", features, 0)
        self.channels = whole_number("channels", channels, 1)
        self.num_blocks = whole_number("num_blocks", num_blocks, 0)
        if cell_size not in (2, 4):
            raise ValueError(
                f"`cell_size` must be 2 or 4, received {cell_size!r}. 2 has 4 groups, "
                f"4 has 16."
            )
        self.cell_size = cell_size
        self.num_groups = cell_size**2
        self.seed = seed
        self.seed_generator = ReplicaSeedGenerator(seed)
        self._order = _order(cell_size)
        self.network = PixelNetwork(
            self.num_groups,
            self.likelihood.parameters,
            self.channels,
            self.num_blocks,
            name="network",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Any = None) -> None:
        size = self.num_groups * (self.parameters + 2 * self.likelihood.channels)
        self.network.build((None, None, None, size))
        self.built = True

    @property
    def levels(self) -> int:
        """Number of values per channel."""
        return self.likelihood.levels

    @property
    def spread(self) -> float:
        """Scale that an output of 0 stands for, in levels."""
        return self.likelihood.spread

    @property
    def parameters(self) -> int:
        """Number of outputs that the network before this layer needs per pixel."""
        return self.likelihood.parameters + self.features

    def log_prob(
        self, outputs: ArrayLike, images: ArrayLike, base: ArrayLike | None = None
    ) -> tf.Tensor:
        """Returns the log probability of each pixel, given the groups before its own.

        Args:
            outputs: Floats `[B, H, W, parameters]`.
            images: Integers `[B, H, W, 3]` from 0 to `levels - 1`.
            base: First guess of the images, floats `[B, H, W, 3]` from 0 to
                `levels - 1`. None for mid-grey.

        Returns:
            Float32 `[B, H, W]`, in nats.
        """
        given, base = self._given(outputs, base)
        pixels = self._groups(self._checked(images, outputs))
        found = []
        for group in range(self.num_groups):
            where = ops.full(ops.shape(pixels)[:1], group, dtype="int32")
            parameters, centre = self._pass(given, base, pixels, where)
            values = ops.cast(pixels[..., group, :], "int32")
            found.append(self.likelihood.log_prob(parameters, values, centre))
        return self._image(ops.stack(found, axis=-1)[..., None])[..., 0]

    def call(
        self, outputs: tf.Tensor, images: tf.Tensor, base: tf.Tensor | None = None
    ) -> tf.Tensor:
        return self.log_prob(outputs, images, base)

    def draw_groups(self, count: int | tf.Tensor) -> tf.Tensor:
        """Draws a group for each image of a batch.

        Each group is as likely as any other. The groups of a batch are drawn together,
        so that all occur about equally often.

        Args:
            count: Number of images.

        Returns:
            int32 `[count]`.
        """
        first = keras.random.randint((), 0, self.num_groups, seed=self.seed_generator)
        return (ops.arange(count, dtype="int32") + first) % self.num_groups

    def estimate(
        self,
        outputs: ArrayLike,
        images: ArrayLike,
        groups: ArrayLike,
        base: ArrayLike | None = None,
    ) -> tf.Tensor:
        """Estimates `log_prob` in one pass, by one group per image.

        The pixels of that group count `num_groups` times, and the others 0. The
        expectation over groups is `log_prob`.

        Args:
            outputs: Floats `[B, H, W, parameters]`.
            images: Integers `[B, H, W, 3]` from 0 to `levels - 1`.
            groups: int32 `[B]` from `draw_groups`.
            base: First guess of the images, as in `log_prob`.

        Returns:
            Float32 `[B, H, W]`, in nats.
        """
        given, base = self._given(outputs, base)
        pixels = self._groups(self._checked(images, outputs))
        parameters, centre = self._pass(given, base, pixels, groups)
        values = ops.cast(_at(pixels, groups), "int32")
        nats = self.likelihood.log_prob(parameters, values, centre)
        place = ops.one_hot(groups, self.num_groups, dtype=nats.dtype)
        counted = self.num_groups * place[:, None, None] * nats[..., None]
        return self._image(counted[..., None])[..., 0]

    def mean(self, outputs: ArrayLike, base: ArrayLike | None = None) -> tf.Tensor:
        """Returns the expected value of each channel, approximately.

        The expectation of each group is computed as if the groups before had their
        expected values. That is exact where it depends on them linearly.

        Args:
            outputs: Floats `[B, H, W, parameters]`.
            base: First guess of the images, as in `log_prob`.

        Returns:
            Float32 `[B, H, W, 3]` from 0 to `levels - 1`.
        """

        def expected(parameters, centre, group):
            return self.likelihood.mean(parameters, centre)

        return self._one_by_one(expected, outputs, base)

    def sample(
        self, outputs: ArrayLike, seed: ArrayLike, base: ArrayLike | None = None
    ) -> tf.Tensor:
        """Draws images, group by group.

        Args:
            outputs: Floats `[B, H, W, parameters]`.
            seed: Two integers, or int32 `[B, 2]` with one seed per image. The same seed
                gives the same images.
            base: First guess of the images, as in `log_prob`.

        Returns:
            Int32 `[B, H, W, 3]` from 0 to `levels - 1`.
        """
        seed = ops.cast(seed, "int32")

        def drawn(parameters, centre, group):
            return self.likelihood.sample(parameters, fold_in(seed, group), centre)

        return self._one_by_one(drawn, outputs, base)

    # Groups and cells.

    def _one_by_one(self, choose, outputs, base):
        """Returns an image whose groups are chosen one after the other."""
        given, base = self._given(outputs, base)
        pixels, found = ops.zeros_like(base), []
        for group in range(self.num_groups):
            where = ops.full(ops.shape(base)[:1], group, dtype="int32")
            parameters, centre = self._pass(given, base, pixels, where)
            found.append(choose(parameters, centre, group))
            # All that later passes see are the groups so far.
            rest = ops.zeros_like(base[..., group + 1 :, :])
            known = ops.cast(ops.stack(found, axis=-2), rest.dtype)
            pixels = ops.concatenate([known, rest], axis=-2)
        return self._image(ops.stack(found, axis=-2))

    def _pass(self, given, base, pixels, groups):
        """Returns parameters and centres of one group per image, [B, h, w, n].

        Args:
            given: Outputs of the head by groups, [B, h, w, groups, parameters].
            base: First guess by groups, [B, h, w, groups, 3].
            pixels: Values by groups, of which only those before `groups` are used.
            groups: int32 [B].
        """
        unit = 1.0 / self.likelihood.spread
        known = ops.arange(self.num_groups) < groups[:, None]
        known = known[:, None, None, :, None]
        # In units of the spread, and 0 where nothing is known.
        seen = ops.where(known, (pixels - base) * unit, 0.0)
        middle = (self.levels - 1) / 2
        inputs = [given, (base - middle) * (2.0 / self.levels), seen]
        inputs = ops.concatenate([_flat(x) for x in inputs], axis=-1)
        correction = self.network(ops.cast(inputs, self.compute_dtype), groups)
        start = _at(given[..., : self.likelihood.parameters], groups)
        return start + correction, _at(base, groups)

    def _given(self, outputs, base):
        """Returns outputs and base by groups, as float32."""
        outputs = ops.convert_to_tensor(outputs)
        if outputs.shape[-1] != self.parameters:
            raise ValueError(
                f"{type(self).__name__} needs {self.parameters} numbers per pixel, "
                f"received `outputs` of shape {tuple(outputs.shape)}. Give the last "
                f"layer of the network `parameters` = {self.parameters} units."
            )
        check_divisible(outputs.shape, self.cell_size)
        if base is None:
            shape = (*ops.shape(outputs)[:-1], self.likelihood.channels)
            base = ops.full(shape, (self.levels - 1) / 2)
        else:
            base = ops.convert_to_tensor(base)
            self.likelihood.check_channels("base", base, outputs)
        if not self.built:
            self.build()
        return tuple(self._groups(ops.cast(x, "float32")) for x in (outputs, base))

    def _checked(self, images, outputs):
        images = integers("images", images, self.levels - 1)
        self.likelihood.check_channels("images", images, ops.convert_to_tensor(outputs))
        # TensorFlow logs an error when it transposes integers.
        return ops.cast(images, "float32")

    def _groups(self, x):
        """Divides [B, H, W, C] into [B, H / size, W / size, groups, C]."""
        cells = to_patches(x, self.cell_size)
        shape = (*ops.shape(cells)[:3], self.num_groups, x.shape[-1])
        return ops.take(ops.reshape(cells, shape), self._order, axis=3)

    def _image(self, groups):
        """Joins groups into an image: the inverse of `_groups`."""
        cells = ops.take(groups, np.argsort(self._order), axis=3)
        return from_patches(_flat(cells), self.cell_size)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "likelihood": keras.saving.serialize_keras_object(self.likelihood),
            "features": self.features,
            "channels": self.channels,
            "num_blocks": self.num_blocks,
            "cell_size": self.cell_size,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "GroupedPixels":
        likelihood = keras.saving.deserialize_keras_object(config["likelihood"])
        return super().from_config({**config, "likelihood": likelihood})


def _order(size):
    """Returns the places of a cell, counted row by row, in the order of groups.

    A cell of 4 x 4 takes those of a 2 x 2 cell one after the other, each for four
    pixels that are two apart. So pixels come coarse to fine.
    """
    if size == 1:
        return np.zeros(1, int)
    half = size // 2
    rows, columns = np.divmod(_order(half), half)
    found = [
        (2 * rows + row) * size + 2 * columns + column
        for row, column in ((0, 0), (1, 1), (0, 1), (1, 0))
    ]
    return np.concatenate(found)


def _flat(x):
    """Reshapes [B, h, w, groups, n] to [B, h, w, groups * n]."""
    # The last size by name, as it is not known of an image of any size otherwise.
    return ops.reshape(x, (*ops.shape(x)[:3], x.shape[3] * x.shape[4]))


def _at(x, groups):
    """Picks [B, h, w, n] from [B, h, w, groups, n] by the group of each image."""
    # A sum, because the gradient of a gather would be slow.
    chosen = ops.arange(x.shape[3]) == groups[:, None]
    return ops.sum(ops.where(chosen[:, None, None, :, None], x, 0), axis=3)
