"""What all bottlenecks share: checks at the door, rows, masks, losses, metrics."""

import re

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import replicas
from keras_vqem.checks import concrete, whole_number
from keras_vqem.layers.bottlenecks import code_metrics, groupings, segments

# Of a vector's squared norm; twice its root still squares within float32.
LARGEST_SQUARE = 1e37


class Bottleneck(keras.layers.Layer):
    """Base of the layers that turn `[..., D]` vectors into what a decoder may see.

    Inside, vectors are `[N, D]` float32 rows whatever the policy and rank, with a
    weight for each: 0 for masked and for non-finite rows (which are zeroed, so that
    they reach neither codebook nor loss nor metric), else 1.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self._losses = replicas.LossesByThread()
        self.nonfinite = keras.metrics.Sum(
            name=metric_name(self, "nonfinite"), dtype="float32"
        )

    def _check_input_shape(self, shape):
        if len(shape) < 2 or shape[-1] is None:
            raise ValueError(
                f"{type(self).__name__} takes vectors in the last axis, [..., D] with "
                f"D known and at least one axis before it; received shape "
                f"{tuple(shape)}. For a single vector add an axis: x[None]."
            )
        if self.built and shape[-1] != self._dim:
            raise ValueError(
                f"{type(self).__name__} {self.name!r} was built for vectors of size "
                f"{self._dim}, received shape {tuple(shape)}. Use the size it was "
                f"built for, or make another layer."
            )

    def build(self, input_shape):
        self._check_input_shape(input_shape)
        self._dim = input_shape[-1]

    def _rows(self, inputs, mask=None):
        """[N, D] float32 rows, their [N] weights, and how many are bad."""
        self._check_input_shape(inputs.shape)
        rows = ops.reshape(ops.cast(inputs, "float32"), (-1, self._dim))
        # False for NaN and infinity, and for what would overflow in distances.
        finite = ops.sum(ops.square(rows), axis=-1) < LARGEST_SQUARE
        keep = ops.ones_like(finite)
        if mask is not None:
            mask = ops.convert_to_tensor(mask)
            lead = tuple(inputs.shape[:-1])
            if len(mask.shape) != len(lead) or any(
                None not in pair and pair[0] != pair[1]
                for pair in zip(mask.shape, lead, strict=True)
            ):
                raise ValueError(
                    f"`mask` must have one value a vector: shape {lead} for inputs of "
                    f"shape {tuple(inputs.shape)}, received {tuple(mask.shape)}. To "
                    f"mask whole examples repeat their value for each vector."
                )
            keep = ops.reshape(ops.cast(mask, "bool"), (-1,))
        return (
            ops.where(finite[:, None], rows, 0.0),
            ops.cast(keep & finite, "float32"),
            ops.sum(ops.cast(keep & ~finite, "float32")),
        )

    def _prepare(self, inputs, method="encode"):
        """`inputs` of a method as a tensor, the layer built for them."""
        concrete(method, inputs)
        inputs = ops.convert_to_tensor(inputs, dtype=self.compute_dtype)
        if not self.built:
            self.build(inputs.shape)
        return inputs

    def _like(self, rows, inputs, *tail):
        """[N, ...] rows to the leading shape of `inputs` and the trailing `tail`."""
        return ops.reshape(rows, (*ops.shape(inputs)[:-1], *tail))

    def _mean_over_rows(self, values, keep):
        """The mean of [N] values over kept rows of the whole batch, all replicas'.

        Keras averages `add_loss` terms over replicas, hence the factor: the result is
        exact even where replicas hold different numbers of unmasked rows.
        """
        count = replicas.sum_over_replicas(ops.sum(keep))
        scale = replicas.num_replicas() / ops.maximum(count, 1.0)
        return ops.sum(values * keep) * scale

    def compute_mask(self, inputs, mask=None):
        if mask is None:
            return None
        return {key: mask for key in self._output_keys}


def metric_name(layer, metric):
    """The name under which a layer reports a metric."""
    # Layers that the user named report under that name, so that two in one model do
    # not hide each other; `vqem_bottleneck_3` is a name that Keras gave.
    words = re.sub(r"(?<=[a-zA-Z])(?=[A-Z][a-z])", "_", type(layer).__name__)
    default = re.fullmatch(rf"{words.lower()}(_\d+)?", layer.name)
    return metric if default else f"{layer.name}_{metric}"


def kept_only(samples, keep):
    """[..., m] codes with -1, which counts for nothing, where `keep` [...] is 0."""
    return ops.where(keep[..., None] > 0, samples, -1)


class DiscreteBottleneck(Bottleneck):
    """Base of the bottlenecks with codes.

    It stands for what a model may ask of any of them: `num_codes`, `groups`, the output
    `quantized`, `codes` and `samples`, `encode` from vectors to codes, and `decode`
    back. `isinstance(layer, DiscreteBottleneck)` tells whether a layer has codes.

    Args:
        num_codes: K, the number of codes; at least 2.
        groups: How many codes a vector gets; see `VQEMBottleneck`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> from keras_vqem import layers
    >>> isinstance(layers.VQEMBottleneck(8), layers.DiscreteBottleneck)
    True
    >>> isinstance(layers.GaussianBottleneck(), layers.DiscreteBottleneck)
    False
    """

    _output_keys = ("quantized", "codes", "samples")
    # Vectors [C, K, d] of the codes once built; None where codes have no such table.
    codebook = None

    def __init__(
        self,
        num_codes: int,
        groups: "int | groupings.Whole | None" = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_codes = whole_number("num_codes", num_codes, 2)
        self.groups = groupings.get(groups)
        shape = (self.num_codes, self.groups.num_codebooks)
        self.perplexity = code_metrics.CodePerplexity(
            *shape, name=metric_name(self, "perplexity"), dtype="float32"
        )
        self.usage = code_metrics.CodeUsage(
            *shape, name=metric_name(self, "usage"), dtype="float32"
        )

    @property
    def codebook_weights(self) -> list[keras.Variable]:
        """Weights that are not to be averaged over time, such as over checkpoints.

        Between two points of training a code may have moved to another place, and the
        mean of both places is neither.
        """
        return []

    def _update_metrics(self, counts, nonfinite):
        self.perplexity.update_state(counts)
        self.usage.update_state(counts)
        self.nonfinite.update_state(nonfinite)

    def assignments(self, samples: ArrayLike) -> tf.Tensor:
        """Dense soft labels: rows over the codebook that sum to one.

        For a small codebook. With a large one train the latent predictor on `samples`
        themselves: the cross entropy with these labels is the mean over the samples
        of `-log p(sample)`, which needs no row of size `num_codes` but its own logits.

        Args:
            samples: Integers [..., m], as in the output of the layer.

        Returns:
            float32 [..., num_codes].
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
        """[C, M, ...] codes to the leading shape of `inputs`, groups, and `tail`."""
        codes = self.groups.merge_codes(codes)
        return self._like(codes, inputs, *self.groups.code_shape, *tail)

    def _count(self, samples):
        """[C, K]: how many of this replica's pieces each code got."""
        return segments.per_codebook(
            lambda codes: segments.count_by_code(codes, self.num_codes), samples
        )

    def _decoded(self, rows, codes):
        """[N, D] rows to the leading shape of `codes`, in the compute dtype."""
        lead = ops.shape(codes)
        lead = lead[: len(lead) - len(self.groups.code_shape)]
        return ops.cast(ops.reshape(rows, (*lead, self._dim)), self.compute_dtype)

    def _check_codes(self, codes):
        """Codes in range, flattened to [N] or [N, G] int32."""
        if not self.built:
            raise ValueError(
                f"{type(self).__name__} {self.name!r} has no codebook yet. Call it on "
                f"data, build it with build(input_shape), or load its weights first."
            )
        concrete("decode", codes)
        codes = self._in_range(codes)
        tail = self.groups.code_shape
        if tail and tuple(codes.shape[-1:]) != tail:
            raise ValueError(
                f"This layer has {tail[0]} codes per position: codes must have shape "
                f"[..., {tail[0]}], received {tuple(codes.shape)}."
            )
        return ops.reshape(codes, (-1, *tail))

    def _in_range(self, codes):
        """Integers of any kind as int32 codes, all between 0 and num_codes - 1."""
        codes = ops.convert_to_tensor(codes)
        if not keras.backend.is_int_dtype(codes.dtype):
            raise ValueError(
                f"Codes are integers, received {codes.dtype}. Pass what `encode` "
                f"returns, or cast with ops.cast(codes, 'int32')."
            )
        # Compared in int64: num_codes itself may not fit into uint8.
        codes = ops.cast(codes, "int64")
        message = (
            f"Codes must lie between 0 and {self.num_codes - 1} (`num_codes` is "
            f"{self.num_codes}). Check that they come from a layer of the same size."
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
