"""What the nearest-neighbour bottlenecks share: quantise, commit, encode, decode."""

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks import groupings, posterior, segments
from keras_vqem.layers.bottlenecks.bottleneck import DiscreteBottleneck, kept_only
from keras_vqem.layers.bottlenecks.scheduled import Scheduled


class CodebookBottleneck(DiscreteBottleneck):
    """Vectors become the codebook entry nearest to them, or the mean of a few.

    A subclass creates its `codebook` [C, K, d] in `build` and says by `_begin_step`,
    `_loss` and `_end_step` how it learns.
    """

    # Subclasses whose E step draws from the posterior set these.
    num_samples = None
    temperature = Scheduled(1.0, "temperature", above=0.0)

    def __init__(
        self,
        num_codes: int,
        commitment_weight: float = 0.25,
        groups: int | groupings.Whole | None = None,
        **kwargs,
    ):
        super().__init__(num_codes, groups=groups, **kwargs)
        if commitment_weight < 0:
            raise ValueError(
                f"`commitment_weight` must not be negative, received "
                f"{commitment_weight!r}. Use 0 for no commitment loss."
            )
        self.commitment_weight = commitment_weight

    def _begin_step(self, pieces, keep, learning):
        """The codebooks [C, K, d] to quantise with, and their counts [C, K].

        A count of 0 marks a code that is not to be chosen.
        """
        return self._read_codebook()

    def _loss(self, pieces, quantized, keep):
        return self.commitment_weight * self._distance(
            pieces, ops.stop_gradient(quantized), keep
        )

    def _end_step(self, vectors, counts, pieces, samples, batch_counts):
        """Learns from [C, M, d] pieces and their codes [C, M, m], -1 where masked."""

    def call(self, inputs, mask=None, training=None):
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
        # With `training` None, as in an exported graph, nothing is written.
        if training is not None:
            kept = kept_only(samples, keep)
            batch_counts = self._count(kept)
            self._update_metrics(batch_counts, nonfinite)
        if learning:
            self._end_step(vectors, counts, still, kept, batch_counts)

        # The gradient of the identity, and `quantized` to the bit: the bracket is 0.
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
        # Outside training there is one code a piece; the shape stays that of training.
        if samples.shape[-1] == self._draws:
            return samples
        return ops.repeat(samples, self._draws, axis=-1)

    def _assign(self, pieces, vectors, counts, num_samples):
        """The nearest codes [C, M], and the codes to average, [C, M, m or 1]."""
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
        """[C, M, d]: the mean of the codebook entries that `samples` [C, M, m] name."""
        return segments.per_codebook(segments.mean_of_rows, vectors, samples)

    def _distance(self, pieces, others, keep):
        """The mean squared difference, over kept pieces and their d numbers."""
        return self._mean_over_rows(
            ops.mean(ops.square(pieces - others), axis=-1), keep
        )

    def encode(self, inputs: ArrayLike) -> tf.Tensor:
        """The code of each vector: the nearest entry of the codebook.

        Args:
            inputs: [..., D] vectors.

        Returns:
            int32 codes [...], or [..., G] for a layer with G groups.
        """
        inputs = self._prepare(inputs)
        pieces = self.groups.split(self._rows(inputs)[0])
        codes, _ = self._assign(pieces, *self._read_codebook(), None)
        return self._codes_like(codes, inputs)

    def sample(self, inputs: ArrayLike, num_samples: int) -> tf.Tensor:
        """Draws codes from the posterior over the codebook, given each vector.

        Args:
            inputs: [..., D] vectors.
            num_samples: How many draws for each.

        Returns:
            int32 codes [..., num_samples], or [..., G, num_samples].
        """
        num_samples = whole_number("num_samples", num_samples, 1)
        inputs = self._prepare(inputs, "sample")
        pieces = self.groups.split(self._rows(inputs)[0])
        _, samples = self._assign(pieces, *self._read_codebook(), num_samples)
        return self._codes_like(samples, inputs, num_samples)

    def decode(self, codes: ArrayLike) -> tf.Tensor:
        """The vectors that codes stand for, in the layer's compute dtype.

        Exactly what calling the layer outside training returns as `quantized`, given
        the codes of `encode`; and `encode` of the result gives the codes back (if
        they have a place in the codebook, and no two codes share it).

        Args:
            codes: Integers [...], or [..., G] for a layer with G groups.

        Returns:
            [..., D] vectors.
        """
        flat = self._check_codes(codes)
        pieces = self.groups.split_codes(flat)[..., None]
        rows = self.groups.merge(self._look_up(self._read_codebook()[0], pieces))
        return self._decoded(rows, codes)

    def get_config(self):
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "groups": groupings.serialize(self.groups),
            "commitment_weight": self.commitment_weight,
        }
