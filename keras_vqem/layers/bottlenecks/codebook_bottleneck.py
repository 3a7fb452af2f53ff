"""CodebookBottleneck: base class of the nearest-neighbour bottlenecks."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks import groupings, posterior, segments
from keras_vqem.layers.bottlenecks.bottleneck import DiscreteBottleneck, kept_only
from keras_vqem.layers.bottlenecks.scheduled import Scheduled


class CodebookBottleneck(DiscreteBottleneck):
    """Replaces vectors by the nearest vector of a codebook, or by the mean of several.

    A subclass creates its `codebook` `[C, K, d]` in `build`. With `_begin_step`,
    `_loss` and `_end_step` it defines how the codebook learns.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        commitment_weight: Weight of the commitment loss.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`.
        **kwargs: Other arguments of `keras.layers.Layer`.
    """

    # Set by subclasses whose E step draws from the posterior.
    num_samples = None
    temperature = Scheduled(1.0, "temperature", above=0.0)

    def __init__(
        self,
        num_codes: int,
        commitment_weight: float = 0.25,
        groups: int | groupings.Whole | None = None,
        **kwargs: Any,
    ):
        super().__init__(num_codes, groups=groups, **kwargs)
        if commitment_weight < 0:
            raise ValueError(
                f"`commitment_weight` must not be negative, received "
                f"{commitment_weight!r}. Use 0 for no commitment loss."
            )
        self.commitment_weight = commitment_weight

    def _begin_step(self, pieces, keep, learning):
        """Returns the codebooks [C, K, d] of this step, and their counts [C, K].

        Codes with a count of 0 are never chosen.
        """
        return self._read_codebook()

    def _loss(self, pieces, quantized, keep):
        return self.commitment_weight * self._distance(
            pieces, ops.stop_gradient(quantized), keep
        )

    def _end_step(self, vectors, counts, pieces, samples, batch_counts):
        """Learns from pieces [C, M, d] and their codes [C, M, m], -1 where masked."""

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        rows, keep, nonfinite = self._rows(inputs, mask)
        pieces, keep = self.groups.split(rows), self.groups.split_rows(keep)
        still = ops.stop_gradient(pieces)
        learning = bool(training) and self.trainable

        vectors, counts = self._begin_step(still, keep, learning)
        codes, samples = self._assign(
            still, vectors, counts, self.num_samples if training else None
        )
        quantized = self._look_up(vectors, samples)
        self.add_loss(self._loss(pieces, quantized, keep))
        # If `training` is None, as in an exported graph, no state changes.
        if training is not None:
            kept = kept_only(samples, keep)
            batch_counts = self._count(kept)
            self._update_metrics(batch_counts, nonfinite)
        if learning:
            self._end_step(vectors, counts, still, kept, batch_counts)

        # The difference in brackets is exactly 0, and has the gradient of the identity:
        # the value stays that of `quantized` to the bit.
        quantized = ops.stop_gradient(self.groups.merge(quantized))
        quantized = quantized + (rows - ops.stop_gradient(rows))
        quantized = ops.cast(quantized, self.compute_dtype)
        return {
            "quantized": self._like(quantized, inputs, self._dim),
            "codes": self._codes_like(codes, inputs),
            "samples": self._codes_like(self._full(samples), inputs, self._draws),
        }

    @property
    def _draws(self):
        return self.num_samples or 1

    def _full(self, samples):
        # Outside training, a piece has a single code. Repeated, it has the same shape
        # as in training.
        if samples.shape[-1] == self._draws:
            return samples
        return ops.repeat(samples, self._draws, axis=-1)

    def _assign(self, pieces, vectors, counts, num_samples):
        """Returns the nearest codes [C, M], and codes to average, [C, M, m or 1]."""
        noise = ()
        if num_samples is not None:
            shape = (*ops.shape(pieces)[:2], num_samples, 2)
            uniforms = keras.random.uniform(
                shape, dtype="float32", seed=self.seed_generator
            )
            noise = (uniforms,)

        temperature = self.temperature.value()

        def assign(*parts):
            return posterior.assign(*parts, temperature=temperature)

        vectors = ops.stop_gradient(vectors)
        return segments.per_codebook(assign, pieces, vectors, counts > 0, *noise)

    def _look_up(self, vectors, samples):
        """Returns the mean vector [C, M, d] of the codes in `samples` [C, M, m]."""
        return segments.per_codebook(segments.mean_of_rows, vectors, samples)

    def _distance(self, pieces, others, keep):
        """Returns the mean squared difference over kept pieces and their d numbers."""
        return self._mean_over_rows(
            ops.mean(ops.square(pieces - others), axis=-1), keep
        )

    def encode(self, inputs: ArrayLike) -> tf.Tensor:
        """Returns the code of each vector: that of the nearest codebook vector.

        Args:
            inputs: Vectors `[..., D]`.

        Returns:
            Codes, int32 `[...]`, or `[..., G]` for a layer with `G` groups.
        """
        inputs = self._prepare(inputs)
        pieces = self.groups.split(self._rows(inputs)[0])
        codes, _ = self._assign(pieces, *self._read_codebook(), None)
        return self._codes_like(codes, inputs)

    def sample(self, inputs: ArrayLike, num_samples: int) -> tf.Tensor:
        """Draws codes from the posterior over the codebook, given each vector.

        Args:
            inputs: Vectors `[..., D]`.
            num_samples: Number of draws per vector.

        Returns:
            Codes, int32 `[..., num_samples]`, or `[..., G, num_samples]` for a layer
            with `G` groups.
        """
        num_samples = whole_number("num_samples", num_samples, 1)
        inputs = self._prepare(inputs, "sample")
        pieces = self.groups.split(self._rows(inputs)[0])
        _, samples = self._assign(pieces, *self._read_codebook(), num_samples)
        return self._codes_like(samples, inputs, num_samples)

    def decode(self, codes: ArrayLike) -> tf.Tensor:
        """Returns the vectors of codes.

        For codes from `encode`, the result is exactly the `quantized` that the layer
        returns outside training. Conversely, `encode` gives the codes of the result, if
        they have vectors and no two codes have the same vector.

        Args:
            codes: Integers `[...]`, or `[..., G]` for a layer with `G` groups.

        Returns:
            Vectors `[..., D]` in the compute dtype of the layer.
        """
        flat = self._check_codes(codes)
        pieces = self.groups.split_codes(flat)[..., None]
        rows = self.groups.merge(self._look_up(self._read_codebook()[0], pieces))
        return self._decoded(rows, codes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "groups": groupings.serialize(self.groups),
            "commitment_weight": self.commitment_weight,
        }
