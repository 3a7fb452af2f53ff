"""Base classes of the bottlenecks: checks of inputs, masks, losses and metrics."""

import re
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import replicas
from keras_vqem.checks import concrete, whole_number
from keras_vqem.layers.bottlenecks import (
    code_metrics,
    groupings,
    notices,
    passes,
    segments,
)

# Largest norm of a vector. The squared distance of two such vectors is at most four
# times its square, which is still within float32.
LARGEST_NORM = 1e37**0.5


class Bottleneck(keras.layers.Layer):
    """Base class of the layers that limit what a decoder learns about vectors.

    Inside the layer, inputs `[..., D]` of any dtype and rank are float32 rows `[N, D]`.
    Each row has a weight: 0 for masked and non-finite rows, otherwise 1. Non-finite
    rows are set to 0 as well. Rows of weight 0 change neither codebook, nor loss, nor
    metrics.

    Args:
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.supports_masking = True
        self._losses = replicas.LossesByThread()
        self.nonfinite = keras.metrics.Sum(
            name=metric_name(self, "nonfinite"), dtype="float32"
        )

    def _check_input_shape(self, shape):
        if len(shape) < 2 or shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} needs vectors along the last axis: inputs "
                f"[..., D] with a known D and at least one axis before it. Received "
                f"shape {tuple(shape)}. For a single vector, add an axis: x[None]. If "
                f"channels come first, move them: keras.layers.Permute((2, 3, 1))."
            )
        if self.built and shape[-1] != self._dim:
            raise ValueError(
                f"{type(self).__name__} {self.name!r} was built for vectors of size "
                f"{self._dim}, received shape {tuple(shape)}. Pass vectors of size "
                f"{self._dim}, or create another layer."
            )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self._check_input_shape(input_shape)
        notices.look_at_shape(self, input_shape)
        self._dim = input_shape[-1]

    def _rows(self, inputs, mask=None, sound=None):
        """Returns rows [N, D], their weights [N], and the number of non-finite rows.

        Masked rows do not count as non-finite. Rows where `sound` [N] is False do, but
        they keep their vectors.
        """
        self._check_input_shape(inputs.shape)
        rows = ops.reshape(ops.cast(inputs, "float32"), (-1, self._dim))
        # False for NaN, for infinity, and for rows whose distances would overflow.
        finite = passes.norms(rows) < LARGEST_NORM
        keep = ops.ones_like(finite)
        if mask is not None:
            mask = ops.convert_to_tensor(mask)
            lead = tuple(inputs.shape[:-1])
            if len(mask.shape) != len(lead) or any(
                None not in pair and pair[0] != pair[1]
                for pair in zip(mask.shape, lead, strict=True)
            ):
                raise ValueError(
                    f"`mask` must have one value per vector: shape {lead} for inputs "
                    f"of shape {tuple(inputs.shape)}, received {tuple(mask.shape)}. To "
                    f"mask whole examples, repeat the value for each of their vectors."
                )
            keep = ops.reshape(ops.cast(mask, "bool"), (-1,))
        valid = finite if sound is None else finite & sound
        return (
            passes.zero_unless(finite, rows),
            ops.cast(keep & valid, "float32"),
            ops.sum(ops.cast(keep & ~valid, "float32")),
        )

    def _prepare(self, inputs, method="encode"):
        """Returns the inputs of a method as a tensor, and builds the layer for them."""
        concrete(method, inputs)
        inputs = ops.convert_to_tensor(inputs, dtype=self.compute_dtype)
        if not self.built:
            self.build(inputs.shape)
        if tf.executing_eagerly():
            notices.look_at_codebook(self)
        return inputs

    def _like(self, rows, inputs, *tail):
        """Reshapes rows [N, ...] to the leading shape of `inputs` and then `tail`."""
        return ops.reshape(rows, (*ops.shape(inputs)[:-1], *tail))

    def _mean_over_rows(self, values, keep, count=None):
        """Returns the mean of values [N] over the kept rows of all replicas.

        `count` is the number of these rows, if it is known already.
        The factor `num_replicas` makes up for Keras, which averages the terms of
        `add_loss` over replicas. The result is exact even if replicas hold different
        numbers of unmasked rows.
        """
        if count is None:
            count = replicas.sum_over_replicas(ops.sum(keep))
        scale = replicas.num_replicas() / ops.maximum(count, 1.0)
        return ops.sum(values * keep) * scale

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> dict:
        # A layer that is given the whole dict shows these names in its error.
        outputs = super().compute_output_spec(*args, **kwargs)
        for key, tensor in outputs.items():
            tensor.name = f'{self.name}["{key}"]'
        return outputs

    def compute_mask(
        self, inputs: tf.Tensor, mask: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor] | None:
        if mask is None:
            return None
        return {key: mask for key in self._output_keys}


def metric_name(layer: keras.layers.Layer, metric: str) -> str:
    """Returns the name under which a layer reports a metric.

    If the user named the layer, its name comes first, so that the metrics of two layers
    of a model do not hide each other.

    Args:
        layer: Layer that reports the metric.
        metric: Name of the metric, for example `"perplexity"`.

    Returns:
        `metric`, or the name of the layer and `metric` with an underscore between.
    """
    # Names such as `vqem_bottleneck_3` come from Keras, not from the user.
    words = re.sub(
        r"(?<=[a-zA-Z])(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])", "_", type(layer).__name__
    )
    default = re.fullmatch(rf"{words.lower()}(_\d+)?", layer.name)
    return metric if default else f"{layer.name}_{metric}"


def kept_only(samples: tf.Tensor, keep: tf.Tensor) -> tf.Tensor:
    """Replaces the codes of masked vectors by -1, which stands for no code.

    Args:
        samples: Codes `[..., m]`.
        keep: Weights `[...]`, 0 for masked vectors.

    Returns:
        Codes `[..., m]`.
    """
    return ops.where(keep[..., None] > 0, samples, -1)


class DiscreteBottleneck(Bottleneck):
    """Base class of the bottlenecks with codes.

    All of them have the attributes `num_codes` and `groups`, the methods `encode` (from
    vectors to codes) and `decode` (from codes to vectors), and an output with the keys
    `quantized`, `codes` and `samples`; see `VQEMBottleneck`. To test whether a layer
    has codes, use `isinstance(layer, DiscreteBottleneck)`.

    The output is a dict, so the next layer takes `outputs["quantized"]`. A
    `keras.Sequential` would pass on the whole dict, and the next layer would complain
    that it "expects 1 input(s), but it received 3 input tensors".

    Args:
        num_codes: Number of codes, `K`. At least 2.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Example:

    >>> from keras_vqem import layers
    >>> isinstance(layers.VQEMBottleneck(8), layers.DiscreteBottleneck)
    True
    >>> isinstance(layers.GaussianBottleneck(), layers.DiscreteBottleneck)
    False
    """

    _output_keys = ("quantized", "codes", "samples")
    # Vectors [C, K, d] of the codes, once built. None if codes have no such table.
    codebook = None

    def __init__(
        self,
        num_codes: int,
        groups: "int | groupings.Whole | None" = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_codes = whole_number("num_codes", num_codes, 2)
        self.groups = groupings.get(groups)
        self._make_metrics()

    def _make_metrics(self):
        shape = (self.num_codes, self.groups.num_codebooks)
        self.perplexity = code_metrics.CodePerplexity(
            *shape, name=metric_name(self, "perplexity"), dtype="float32"
        )
        self.usage = code_metrics.CodeUsage(
            *shape, name=metric_name(self, "usage"), dtype="float32"
        )

    @property
    def codebook_weights(self) -> list[keras.Variable]:
        """Weights that must not be averaged over time, for example over checkpoints.

        Between two checkpoints a code may have moved to another cluster of vectors. The
        mean of its two positions belongs to neither cluster.
        """
        return []

    def _update_metrics(self, counts, nonfinite):
        self.perplexity.update_state(counts)
        self.usage.update_state(counts)
        self.nonfinite.update_state(nonfinite)

    def assignments(self, samples: ArrayLike) -> tf.Tensor:
        """Turns sampled codes into dense soft labels: probabilities of all codes.

        This is meant for small codebooks. With a large codebook, train the latent
        predictor on `samples` themselves: the cross entropy with these soft labels is
        the mean of `-log p(sample)` over the samples, which needs no row of size
        `num_codes` other than the logits.

        Args:
            samples: Integers `[..., m]`, as in the output of the layer.

        Returns:
            Float32 `[..., num_codes]`; each row sums to one.
        """
        concrete("assignments", samples)
        samples = self._in_range(samples)
        flat = ops.reshape(samples, (-1, samples.shape[-1]))
        offset = ops.arange(ops.shape(flat)[0], dtype="int32")[:, None] * self.num_codes
        ones = ops.ones_like(ops.reshape(flat, (-1,)), dtype="float32")
        rows = ops.segment_sum(
            ones, ops.reshape(flat + offset, (-1,)), ops.shape(flat)[0] * self.num_codes
        )
        shape = (*ops.shape(samples)[:-1], self.num_codes)
        return ops.reshape(rows, shape) / samples.shape[-1]

    def _codes_like(self, codes, inputs, *tail):
        """Reshapes codes [C, M, ...] to the leading shape of `inputs`, G and `tail`."""
        codes = self.groups.merge_codes(codes)
        return self._like(codes, inputs, *self.groups.code_shape, *tail)

    def _count(self, samples):
        """Returns the number of pieces of this replica per code, [C, K]."""
        return segments.per_codebook(
            lambda codes: segments.count_by_code(codes, self.num_codes), samples
        )

    def _decoded(self, rows, codes):
        """Reshapes rows [N, D] to the leading shape of `codes`; casts them."""
        lead = ops.shape(codes)
        lead = lead[: len(lead) - len(self.groups.code_shape)]
        return ops.cast(ops.reshape(rows, (*lead, self._dim)), self.compute_dtype)

    def _check_decodable(self, codes):
        if not self.built:
            raise ValueError(
                f"{type(self).__name__} {self.name!r} has no codebook yet. First call "
                f"it on data, build it with build(input_shape), or load its weights."
            )
        concrete("decode", codes)
        if tf.executing_eagerly():
            notices.look_at_codebook(self)

    def _check_codes(self, codes):
        """Returns codes as int32 [N] or [N, G], or raises if they are out of range."""
        self._check_decodable(codes)
        codes = self._in_range(codes)
        tail = self.groups.code_shape
        if tail and tuple(codes.shape[-1:]) != tail:
            raise ValueError(
                f"This layer has {tail[0]} codes per vector: `codes` must have shape "
                f"[..., {tail[0]}], received {tuple(codes.shape)}. Pass what `encode` "
                f"returns."
            )
        return ops.reshape(codes, (-1, *tail))

    def _in_range(self, codes):
        """Returns integers of any dtype as int32 codes, or raises if out of range."""
        codes = ops.convert_to_tensor(codes)
        if not keras.backend.is_int_dtype(codes.dtype):
            raise ValueError(
                f"Codes must be integers, received {codes.dtype}. Pass what `encode` "
                f"returns, or cast them with keras.ops.cast(codes, 'int32')."
            )
        # Compared in int64, because num_codes may not fit into uint8.
        codes = ops.cast(codes, "int64")
        message = (
            f"Codes must lie between 0 and {self.num_codes - 1} (`num_codes` is "
            f"{self.num_codes}). Check that they come from a layer with as many codes."
        )
        if tf.executing_eagerly():
            values = np.asarray(codes)
            if values.size and (values.min() < 0 or values.max() >= self.num_codes):
                raise ValueError(
                    f"{message} Received values from {values.min()} to {values.max()}."
                )
        else:
            inside = tf.reduce_all((codes >= 0) & (codes < self.num_codes))
            with tf.control_dependencies([tf.debugging.Assert(inside, [message])]):
                codes = tf.identity(codes)
        return ops.cast(codes, "int32")
