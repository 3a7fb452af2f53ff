"""ScalarBottleneck: base class of the bottlenecks that round numbers, not vectors."""

import math
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks import groupings, notices
from keras_vqem.layers.bottlenecks.bottleneck import DiscreteBottleneck, kept_only

# The metrics count every code.
MOST_BITS = 20
MOST_CODES = 2**MOST_BITS


def check_bits(num_bits: int) -> int:
    """Returns a number of bits per code as an int, or raises a `ValueError`."""
    num_bits = whole_number("num_bits", num_bits, 1)
    if num_bits > MOST_BITS:
        raise ValueError(
            f"`num_bits` must be from 1 to {MOST_BITS}, received {num_bits}. For more "
            f"bits, use `groups`: each group of bits is a code of its own."
        )
    return num_bits


class ScalarBottleneck(DiscreteBottleneck):
    """Turns a vector into a few numbers, and each number into one of several levels.

    A code is the list of levels as one integer, in mixed radix: the level of the first
    number is the lowest digit. No codebook is stored or searched. If a piece has as
    many numbers as there are digits, they are these numbers. Otherwise a linear map
    leads to them, and a second linear map leads back.

    A subclass defines `_digits`, `_values` and `_smooth`, and with `_loss` what it adds
    to the loss.

    Args:
        radices: Number of levels of each number, a tuple of integers.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`.
        **kwargs: Other arguments of `keras.layers.Layer`.
    """

    # Whether there are linear maps even if the sizes fit.
    _always_projects = False

    def __init__(
        self,
        radices: tuple[int, ...],
        groups: int | groupings.Whole | None = None,
        **kwargs: Any,
    ):
        super().__init__(math.prod(radices), groups=groups, **kwargs)
        self._radices = radices
        self._places = tuple(math.prod(radices[:i]) for i in range(len(radices)))

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        dim, digits = self.groups.build(self, self._dim), len(self._radices)
        self._projects = self._always_projects or dim != digits
        if not self._projects:
            return
        # Glorot's, whatever the number of codebooks.
        limit = math.sqrt(6 / (dim + digits))
        uniform = keras.initializers.RandomUniform

        def add_weight(name, shape, initializer):
            return self.add_weight(
                name=name,
                shape=(self.groups.num_codebooks, *shape),
                initializer=initializer,
                dtype="float32",
                autocast=False,
            )

        self.kernel = add_weight("kernel", (dim, digits), uniform(-limit, limit))
        self.bias = add_weight("bias", (1, digits), "zeros")
        self.output_kernel = add_weight(
            "output_kernel", (digits, dim), uniform(-limit, limit)
        )
        self.output_bias = add_weight("output_bias", (1, dim), "zeros")

    def _numbers(self, rows):
        """Returns the numbers [C, M, b] of vectors [N, D]."""
        pieces = self.groups.split(rows)
        if self._projects:
            pieces = ops.matmul(pieces, self.kernel) + self.bias
        return pieces

    def _vectors(self, values):
        """Returns the vectors [N, D] of numbers [C, M, b]."""
        if self._projects:
            values = ops.matmul(values, self.output_kernel) + self.output_bias
        return self.groups.merge(values)

    def _pack(self, digits):
        """Packs digits [..., b] into codes [...]."""
        return ops.sum(ops.cast(digits, "int32") * self._places, axis=-1)

    def _unpack(self, codes):
        """Returns the digits [..., b] of codes [...]."""
        return codes[..., None] // self._places % self._radices

    def _digits(self, numbers):
        """Returns the level of each number, integers or booleans."""
        raise NotImplementedError

    def _values(self, digits):
        """Returns the number that each level stands for, float32."""
        raise NotImplementedError

    def _smooth(self, numbers):
        """Returns what the gradient of rounded numbers is taken from."""
        return numbers

    def _loss(self, numbers, values, keep):
        """Returns the auxiliary loss of this replica, or None for no loss."""

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        notices.look_at_call(self, inputs, training)
        rows, keep, nonfinite = self._rows(inputs, mask)
        keep = self.groups.split_rows(keep)
        numbers = self._numbers(rows)
        digits = self._digits(numbers)
        values = self._values(digits)
        loss = self._loss(numbers, values, keep)
        if loss is not None:
            self.add_loss(loss)
        smooth = self._smooth(numbers)
        # The difference in brackets is exactly 0.
        values = values + (smooth - ops.stop_gradient(smooth))
        codes = self._pack(digits)
        return self._finish(inputs, values, codes, codes, keep, nonfinite, training)

    def _finish(self, inputs, values, codes, samples, keep, nonfinite, training):
        """Updates the metrics, and returns the output of the layer."""
        samples = samples[..., None]
        if training is not None:
            self._update_metrics(self._count(kept_only(samples, keep)), nonfinite)
        quantized = ops.cast(self._vectors(values), self.compute_dtype)
        return {
            "quantized": self._like(quantized, inputs, self._dim),
            "codes": self._codes_like(codes, inputs),
            "samples": self._codes_like(samples, inputs, 1),
        }

    def encode(self, inputs: ArrayLike) -> tf.Tensor:
        """Returns the code of each vector.

        Args:
            inputs: Vectors `[..., D]`.

        Returns:
            Codes, int32 `[...]`, or `[..., G]` for a layer with `G` groups. The level
            of the first number is the lowest digit.
        """
        inputs = self._prepare(inputs)
        numbers = self._numbers(self._rows(inputs)[0])
        return self._codes_like(self._pack(self._digits(numbers)), inputs)

    def decode(self, codes: ArrayLike) -> tf.Tensor:
        """Returns the vectors of codes.

        For codes from `encode`, the result is exactly the `quantized` that the layer
        returns outside training.

        Args:
            codes: Integers `[...]`, or `[..., G]` for a layer with `G` groups.

        Returns:
            Vectors `[..., D]` in the compute dtype of the layer.
        """
        codes_by_codebook = self.groups.split_codes(self._check_codes(codes))
        values = self._values(self._unpack(codes_by_codebook))
        return self._decoded(self._vectors(values), codes)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "groups": groupings.serialize(self.groups)}
