"""ResidualBottleneck: each level codes what the levels before it left over."""

import contextlib
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import micro_batches
from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks import notices
from keras_vqem.layers.bottlenecks.bottleneck import DiscreteBottleneck, metric_name
from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.gradients import StraightThrough
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.layers.bottlenecks.random_projection_bottleneck import (
    RandomProjectionBottleneck,
)
from keras_vqem.layers.bottlenecks.similarities import Euclidean


@keras.saving.register_keras_serializable(package="keras_vqem")
class ResidualBottleneck(DiscreteBottleneck):
    """Residual quantization: several codes per vector, from coarse to fine.

    The first level quantizes the vectors, the second what the first left over, and so
    on. `quantized` is the sum of the levels. `Q` levels of `K` codes tell `K ** Q`
    vectors apart, at the cost of searching `Q K` codes. Any prefix of the codes is a
    coarser description: `decode(codes[..., :n])` takes the first `n` levels alone.

    Each level is a bottleneck of its own, and learns by its own rule from its own
    residuals: with `VQEMBottleneck` each level makes its EM step, exact over replicas;
    with `num_samples` that is residual soft EM, in which a level gets what the mean of
    the draws before it left over. The losses are those of the levels. The gradient of
    the decoder passes straight through the sum to the inputs; gradients of the levels'
    losses reach the inputs as if the codes of earlier levels were constant.

    **Groups.** If the levels have groups, each level has `G` codes per vector. This is
    grouped residual quantization: every slice is quantized by `Q` levels.

    **A shared codebook.** With `shared=True` all levels use one layer. Its moving
    averages then make one step per training step, from the vectors of all levels
    together; all levels quantize with the codebook from before that step.

    **Quantizer dropout.** With `quantizer_dropout` above 0, some training steps use the
    first `n` levels only: `n` is drawn uniformly from 1 to `Q`, and is the same for all
    vectors of the batch on all replicas. This prepares the decoder for prefixes. To the
    other levels such a batch is empty: it adds nothing to their codebooks, losses and
    metrics. `codes` and `samples` still have the codes of all levels, so that they are
    always labels; `quantized` is the sum of `n` levels.

    **Metrics.** `perplexity` and `usage` as means over levels, `nonfinite`, and the
    metrics of each level by its name, such as `level_0_perplexity`. With a shared
    codebook there are only those of `shared`. If the user names the layer, its name
    comes first.

    Args:
        bottleneck: A new `VQEMBottleneck`, `VQBottleneck` or `SimVQBottleneck` that is
            the pattern of all levels, or a list with one such layer per level. They are
            copied: `layer.quantizers` holds the levels. Copies of a single layer get
            different seeds: every integer seed in its configuration, also that of an
            initializer or a grouping, is raised by the number of the level. The layers
            of a list must have the same `num_codes`, `groups` and `num_samples`.
        num_quantizers: Number of levels, `Q`. None for the length of the list.
        shared: Whether all levels use one layer.
        quantizer_dropout: Probability, from 0 to 1, that a training step uses a random
            number of levels.
        seed: Integer seed of the quantizer dropout. None draws one at random.
        **kwargs: Other arguments of `keras.layers.Layer`. `trainable=False` freezes all
            levels.

    Call arguments:
        inputs: Vectors `[..., D]`.
        mask: Booleans `[...]`, False for vectors to leave out of codebooks, losses and
            metrics.
        training: As for the levels, for example `VQEMBottleneck`.

    Returns:
        A dict with the same keys, shapes and dtypes in training and inference:

        - `quantized`: Vectors `[..., D]` in the compute dtype, for the decoder.
        - `codes`: Nearest codes, int32 `[..., Q]`, or `[..., Q, G]` with `G` groups.
        - `samples`: Codes whose mean vectors the sum is made of, int32 `[..., Q, m]`,
          or `[..., Q, G, m]`; `m` is 1 unless the levels draw.

    Example:

    >>> layer = keras_vqem.layers.ResidualBottleneck(
    ...     keras_vqem.layers.VQEMBottleneck(8, decay=0.9, seed=0), num_quantizers=3)
    >>> x = np.random.default_rng(0).normal(size=(16, 10, 4)).astype("float32")
    >>> for _ in range(20):
    ...     outputs = layer(x, training=True)
    >>> codes = layer.encode(x)
    >>> codes.shape
    TensorShape([16, 10, 3])
    >>> errors = [np.mean((layer.decode(codes[..., :n]) - x) ** 2) for n in (1, 2, 3)]
    >>> bool(errors[0] > errors[1] > errors[2])
    True

    Grouped residual quantization, two slices with three levels each:

    >>> layer = keras_vqem.layers.ResidualBottleneck(
    ...     keras_vqem.layers.VQEMBottleneck(8, groups=2), num_quantizers=3)
    >>> layer(x, training=True)["codes"].shape
    TensorShape([16, 10, 3, 2])

    References:
        - Zeghidour, Luebs, Omran, Skoglund, Tagliasacchi, 2021. SoundStream: An
          End-to-End Neural Audio Codec. arXiv:2107.03312.
        - Lee, Kim, Kim, Cho, Han, 2022. Autoregressive Image Generation using Residual
          Quantization. arXiv:2203.01941.
    """

    def __init__(
        self,
        bottleneck: CodebookBottleneck | Sequence[CodebookBottleneck],
        num_quantizers: int | None = None,
        shared: bool = False,
        quantizer_dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        patterns, num_quantizers = _patterns(bottleneck, num_quantizers, shared)
        super().__init__(patterns[0].num_codes, **kwargs)
        if not 0 <= quantizer_dropout <= 1:
            raise ValueError(
                f"`quantizer_dropout` must be a probability from 0 to 1, received "
                f"{quantizer_dropout!r}. Use 0 to always use all levels."
            )
        self.num_quantizers = num_quantizers
        self.shared = shared
        self.quantizer_dropout = quantizer_dropout
        self.seed = seed
        # Not a ReplicaSeedGenerator, because all replicas must draw the same number.
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.groups = _Levels(num_quantizers, patterns[0].groups, shared)
        copies = patterns if len(patterns) > 1 else patterns * num_quantizers
        self.quantizers = [
            self._copy(pattern, level, 0 if len(patterns) > 1 else level)
            for level, pattern in enumerate(copies[: 1 if shared else None])
        ]
        for name in ("perplexity", "usage"):
            parts = [getattr(layer, name) for layer in self.quantizers]
            setattr(self, name, _Mean(parts, metric_name(self, name)))

    def _make_metrics(self):
        """They are made from those of the levels, which do not exist yet."""

    def _copy(self, pattern, level, raise_by):
        config = _raise_seeds(pattern.get_config(), raise_by)
        name = "shared" if self.shared else f"level_{level}"
        config["name"] = metric_name(self, name)
        # Residuals are differences of almost equal numbers.
        config["dtype"] = "float32"
        config["trainable"] = config["trainable"] and self.trainable
        layer = type(pattern).from_config(config)
        notices.leave_to_outer(layer)
        return layer

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        for layer in self.quantizers:
            layer.build((None, self._dim))

    @property
    def codebook_weights(self) -> list[keras.Variable]:
        return [w for layer in self.quantizers for w in layer.codebook_weights]

    def _levels(self, count=None):
        """Yields the layer of each of the first `count` levels."""
        for level in range(self.num_quantizers if count is None else count):
            yield self.quantizers[0 if self.shared else level]

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        notices.look_at_call(self, inputs, training)
        rows, keep, nonfinite = self._rows(inputs, mask)
        used = self._draw_used() if training and self.quantizer_dropout else None
        # One M step for all levels of a shared codebook: to it, they are parts of a
        # batch.
        parts = [contextlib.nullcontext()] * self.num_quantizers
        if self.shared:
            parts = micro_batches.subparts(self.num_quantizers)

        residual, parts_of_row = rows, []
        codes, samples = [], []
        for level, layer in enumerate(self._levels()):
            kept = keep > 0
            if used is not None:
                kept = kept & (level < used)
            with parts[level]:
                outputs = layer(residual, mask=kept, training=training)
            quantized = ops.stop_gradient(outputs["quantized"])
            residual = residual - quantized
            if used is not None:
                quantized = ops.where(level < used, quantized, 0.0)
            parts_of_row.append(quantized)
            codes.append(outputs["codes"])
            samples.append(outputs["samples"])
        if training is not None:
            self.nonfinite.update_state(nonfinite)
        total = StraightThrough().apply(rows, _add_up(parts_of_row))
        tail = self.groups.code_shape
        codes, samples = ops.stack(codes, axis=1), ops.stack(samples, axis=1)
        return {
            "quantized": self._like(
                ops.cast(total, self.compute_dtype), inputs, self._dim
            ),
            "codes": self._like(codes, inputs, *tail),
            "samples": self._like(samples, inputs, *tail, samples.shape[-1]),
        }

    def _draw_used(self):
        """Draws the number of levels of this training step."""
        whether, which = ops.unstack(
            keras.random.uniform((2,), dtype="float32", seed=self.seed_generator)
        )
        drawn = 1 + ops.cast(which * self.num_quantizers, "int32")
        return ops.where(whether < self.quantizer_dropout, drawn, self.num_quantizers)

    def encode(self, inputs: ArrayLike) -> tf.Tensor:
        """Returns the codes of each vector, one level after the other.

        Args:
            inputs: Vectors `[..., D]`.

        Returns:
            Codes, int32 `[..., Q]`, or `[..., Q, G]` for levels with `G` groups.
        """
        inputs = self._prepare(inputs)
        residual, codes = self._rows(inputs)[0], []
        for layer in self._levels():
            codes.append(layer.encode(residual))
            residual = residual - layer.decode(codes[-1])
        return self._like(ops.stack(codes, axis=1), inputs, *self.groups.code_shape)

    def decode(self, codes: ArrayLike) -> tf.Tensor:
        """Returns the vectors of codes of all levels, or of the first ones.

        For codes from `encode`, the result is exactly the `quantized` that the layer
        returns outside training. The converse is not promised: other codes may have the
        same sum.

        Args:
            codes: Integers `[..., n]`, or `[..., n, G]` for levels with `G` groups.
                `n` is from 1 to `Q`.

        Returns:
            Vectors `[..., D]` in the compute dtype of the layer.
        """
        self._check_decodable(codes)
        codes = ops.convert_to_tensor(codes)
        most, *inner = self.groups.code_shape
        axis = len(codes.shape) - 1 - len(inner)
        count = codes.shape[axis] if axis >= 0 else None
        if count not in range(1, most + 1) or list(codes.shape[axis + 1 :]) != inner:
            wanted = ", ".join(["n", *map(str, inner)])
            raise ValueError(
                f"This layer has {most} levels: `codes` must have shape "
                f"[..., {wanted}] with a known n from 1 to {most}, received "
                f"{tuple(codes.shape)}. Pass what `encode` returns, or its codes of "
                f"the first levels, codes[..., :n{', :' * len(inner)}]."
            )
        parts = ops.unstack(codes, count, axis=axis)
        decoded = [
            layer.decode(part)
            for layer, part in zip(self._levels(count), parts, strict=True)
        ]
        return ops.cast(_add_up(decoded), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        levels = [keras.saving.serialize_keras_object(x) for x in self.quantizers]
        for level in levels:
            # Or it would be read as a built layer, which is no pattern.
            level.pop("build_config", None)
        return {
            **super().get_config(),
            "bottleneck": levels[0] if self.shared else levels,
            "num_quantizers": self.num_quantizers,
            "shared": self.shared,
            "quantizer_dropout": self.quantizer_dropout,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ResidualBottleneck":
        bottleneck = keras.saving.deserialize_keras_object(config["bottleneck"])
        return cls(**{**config, "bottleneck": bottleneck})


class _Levels(Whole):
    """Shape of the codes of all levels. The levels themselves do the grouping."""

    def __init__(self, num_levels, groups, shared):
        self.code_shape = (num_levels, *groups.code_shape)
        self.num_groups = num_levels * groups.num_groups
        self.num_codebooks = (1 if shared else num_levels) * groups.num_codebooks


class _Mean(keras.metrics.Metric):
    """Mean of the results of metrics that others update."""

    def __init__(self, parts, name):
        super().__init__(name=name, dtype="float32")
        self.parts = parts

    def result(self):
        return ops.mean(ops.stack([part.result() for part in self.parts]))


def _add_up(parts):
    """Returns the sum of what all levels give, the same to the bit in each run.

    Several additions were not: TensorFlow may add parts in another order then.
    """
    return ops.sum(ops.stack(parts), axis=0)


def _raise_seeds(config, number):
    """Returns a copy of a configuration with all integer seeds raised."""
    if isinstance(config, dict):
        return {
            key: value + number
            if key == "seed" and isinstance(value, int)
            else _raise_seeds(value, number)
            for key, value in config.items()
        }
    return config


def _patterns(bottleneck, num_quantizers, shared):
    """Returns a list of one or all layers to copy, and the number of levels."""
    listed = isinstance(bottleneck, Sequence)
    layers = list(bottleneck) if listed else [bottleneck]
    for layer in layers or [None]:
        if not isinstance(layer, CodebookBottleneck) or isinstance(
            layer, RandomProjectionBottleneck
        ):
            raise ValueError(
                f"`bottleneck` must be a VQEMBottleneck, VQBottleneck or "
                f"SimVQBottleneck, or a list of them: levels must leave small "
                f"residuals. The Gumbel-Softmax, semantic hashing, finite scalar, "
                f"lookup-free, random projection, Gaussian and residual bottlenecks do "
                f"not look for the nearest vector of a codebook. Received {layer!r}."
            )
        plain = type(layer.similarity), type(layer.gradient), layer.groups.learned
        if plain != (Euclidean, StraightThrough, False):
            used = (layer.similarity, layer.gradient, layer.groups)
            raise ValueError(
                f"What a level leaves over is a difference of vectors, and the "
                f"gradient passes the sum of all levels: levels need the Euclidean "
                f"similarity, the straight-through gradient and no learned "
                f"projections. {layer.name!r} has "
                f"{[type(x).__name__ for x in used]}. Leave out its "
                f"`similarity`, `gradient` or `groups`."
            )
        if layer.built:
            raise ValueError(
                f"`bottleneck` is a pattern that is copied without its weights, but "
                f"{layer.name!r} is built already. Pass a new layer, and set the "
                f"weights of `quantizers` afterwards."
            )
    number = len(layers) if num_quantizers is None and listed else num_quantizers
    number = whole_number("num_quantizers", number, 1)
    if listed and (shared or len(layers) != number):
        raise ValueError(
            f"A list of bottlenecks must have one layer per level, and cannot be "
            f"shared. Received {len(layers)} layers with num_quantizers={number} and "
            f"shared={shared}. Pass a single layer instead."
        )
    first, *rest = layers
    for name in ("num_codes", "num_samples", "num_labels"):
        values = [getattr(layer, name) for layer in layers]
        if len(set(values)) > 1:
            raise ValueError(
                f"All levels must have the same `{name}`, so that their codes fit into "
                f"one array. Received {values}."
            )
    if any(layer.groups.code_shape != first.groups.code_shape for layer in rest):
        raise ValueError(
            "All levels must have the same number of groups, so that their codes fit "
            "into one array. Give every layer of the list the same `groups`."
        )
    return layers, number
