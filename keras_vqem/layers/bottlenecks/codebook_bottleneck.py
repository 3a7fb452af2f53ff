"""CodebookBottleneck: base class of the nearest-neighbour bottlenecks."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import replicas
from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks import (
    adaptation,
    commitments,
    gradients,
    groupings,
    notices,
    posterior,
    prior,
    segments,
    similarities,
    strategies,
)
from keras_vqem.layers.bottlenecks.bottleneck import (
    DiscreteBottleneck,
    kept_only,
    metric_name,
)
from keras_vqem.layers.bottlenecks.draws import Draws
from keras_vqem.layers.bottlenecks.scheduled import Scheduled


class CodebookBottleneck(DiscreteBottleneck):
    """Replaces vectors by the nearest vector of a codebook, or by the mean of several.

    "Nearest" is without a prior. With one, read "likeliest" here and in subclasses.

    A subclass creates its `codebook` `[C, K, d]` in `build`. With `_begin_step`,
    `_loss` and `_end_step` it defines how the codebook learns. If it has a method
    `_adopt`, `adapt` passes it centres `[C, K, d]` and their counts `[C, K]`.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        commitment_weight: Weight of the commitment loss, or a commitment.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`.
        similarity: `"euclidean"`, `"cosine"`, or a similarity.
        gradient: `"straight_through"`, `"rotation"`, or a gradient estimator.
        **kwargs: Other arguments of `keras.layers.Layer`.
    """

    # Set by subclasses whose E step draws from the posterior, or is "exact".
    draws = None
    # Set by subclasses whose codebook learns by gradient.
    penalties = ()
    temperature = Scheduled(1.0, "temperature", above=0.0)

    def __init__(
        self,
        num_codes: int,
        commitment_weight: float | commitments.SquaredCommitment = 0.25,
        groups: int | groupings.Whole | None = None,
        similarity: str | similarities.Euclidean = "euclidean",
        gradient: str | gradients.StraightThrough = "straight_through",
        **kwargs: Any,
    ):
        super().__init__(num_codes, groups=groups, **kwargs)
        self.commitment_loss = strategies.of_number(
            "commitment_weight", commitment_weight, commitments.SquaredCommitment
        )
        self.similarity = strategies.get(
            "similarity", similarity, similarities.Euclidean, similarities.NAMES
        )
        self.gradient = strategies.get(
            "gradient", gradient, gradients.StraightThrough, gradients.NAMES
        )
        self.commitment = keras.metrics.Mean(
            name=metric_name(self, "commitment"), dtype="float32"
        )

    @property
    def num_samples(self) -> int | str | None:
        """Number of draws per vector in training; `"exact"`, or None for hard codes."""
        return self.draws.num_samples if isinstance(self.draws, Draws) else self.draws

    @property
    def num_labels(self) -> int:
        """Number of codes per vector in `samples`."""
        return self.draws.num_labels if isinstance(self.draws, Draws) else 1

    @property
    def commitment_weight(self) -> float:
        """Weight of the commitment loss."""
        return self.commitment_loss.weight

    def _begin_step(self, pieces, keep, per_replica, learning):
        """Returns the codebooks [C, K, d] of this step, and their counts [C, K].

        Codes with a count of 0 are never chosen. The similarity is still to be applied.
        """
        return self._read_codebook()

    def _log_weights(self, counts):
        """Returns the log weights [C, K] of the mixture, or None if they are equal."""

    def _loss(self, pieces, quantized, keep, total):
        """Returns the loss of this replica; `total` pieces are kept on all of them."""
        errors = self.commitment_loss.errors(pieces, ops.stop_gradient(quantized))
        return self.commitment_weight * self._mean_over_rows(errors, keep, total)

    def _end_step(self, vectors, counts, pieces, samples, batch_counts, sums=None):
        """Learns from pieces [C, M, d] and their codes [C, M, m], -1 where masked.

        If the E step was exact, `sums` [C, K, d] are given instead of codes.
        """

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
        prior_logits: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        notices.look_at_call(self, inputs, training)
        sound = None
        if prior_logits is not None:
            prior_logits = self._prior_rows(prior_logits, inputs)
            sound = posterior.is_sound(prior_logits)
            sound = ops.all(ops.reshape(sound, (-1, self.groups.num_groups)), axis=-1)
            if mask is None:
                # Keras passes masks on to layers with a single tensor argument only.
                mask = getattr(inputs, "_keras_mask", None)
        rows, keep, nonfinite = self._rows(inputs, mask, sound)
        pieces, keep = self._pieces(rows), self.groups.split_rows(keep)
        still = ops.stop_gradient(pieces)
        learning = bool(training) and self.trainable

        # The one exchange between replicas that both seeding and loss need.
        per_replica = replicas.gather_scalars(ops.sum(keep[0]))
        vectors, counts = self._begin_step(still, keep, per_replica, learning)
        table = self.similarity.prepare(vectors)
        draws = self.draws if training else None
        if draws == "exact":
            codes, quantized, batch_counts, sums = self._e_step(
                posterior.expect, still, table, counts, prior_logits, keep=keep
            )
            samples = labels = codes[..., None]
        else:
            codes, samples = self._assign(
                still, table, counts, self.num_samples if draws else None, prior_logits
            )
            labels = draws.for_predictor(codes, samples) if draws else samples
            sent = draws.for_decoder(codes, samples) if draws else samples
            quantized = self._look_up(table, sent)
        total = self.groups.num_codebooks * ops.sum(per_replica)
        loss = self._loss(pieces, quantized, keep, total)
        for penalty in self.penalties:
            loss = loss + penalty(pieces, table, counts > 0, keep, total)
        self.add_loss(loss)
        # If `training` is None, as in an exported graph, no state changes.
        if training is not None:
            if draws != "exact":
                kept = kept_only(samples, keep)
                batch_counts = self._count(kept)
            self._update_metrics(batch_counts, nonfinite)
            # The same nodes as in the loss: a graph computes them once.
            errors = self.commitment_loss.errors(pieces, ops.stop_gradient(quantized))
            # Flat, because a Keras mean weighs rows, whatever is in them.
            errors, weights = (ops.reshape(x, (-1,)) for x in (errors, keep))
            self.commitment.update_state(errors, sample_weight=weights)
        if learning and draws == "exact":
            self._end_step(vectors, counts, still, None, batch_counts, sums=sums)
        elif learning:
            self._end_step(vectors, counts, still, kept, batch_counts)

        quantized = self._with_gradient(rows, pieces, ops.stop_gradient(quantized))
        quantized = ops.cast(quantized, self.compute_dtype)
        return {
            "quantized": self._like(quantized, inputs, self._dim),
            "codes": self._codes_like(codes, inputs),
            "samples": self._codes_like(self._full(labels), inputs, self.num_labels),
        }

    def _pieces(self, rows):
        """Returns rows [N, D] as pieces [C, M, d], as the similarity compares them."""
        return self.similarity.prepare(self.groups.split(rows))

    def _with_gradient(self, rows, pieces, quantized):
        """Returns quantized pieces as rows [N, D] with a gradient for the inputs."""
        similar = type(self.similarity) is similarities.Euclidean
        if similar and not self.groups.learned and not self.gradient.per_piece:
            # Also for the part of the rows that `Projections` drops.
            return self.gradient.apply(
                rows, ops.stop_gradient(self.groups.merge(quantized))
            )
        return self.groups.merge(self.gradient.apply(pieces, quantized))

    def _full(self, labels):
        # Outside training, a piece has a single code. Repeated, it has the same shape
        # as in training.
        if labels.shape[-1] == self.num_labels:
            return labels
        return ops.repeat(labels, self.num_labels, axis=-1)

    def _prior_rows(self, prior_logits, inputs):
        """Returns the logits of a prior as [N * G, K], in the order of the inputs."""
        prior_logits = ops.stop_gradient(ops.convert_to_tensor(prior_logits))
        tail = (*self.groups.code_shape, self.num_codes)
        prior.check_shape(prior_logits, inputs, tail)
        # The first reshape fails if sizes that were unknown do not fit.
        prior_logits = self._like(prior_logits, inputs, *tail)
        return ops.reshape(prior_logits, (-1, self.num_codes))

    def _assign(self, pieces, table, counts, num_samples, prior_rows=None):
        """Returns the likeliest codes [C, M], and codes to average, [C, M, m or 1]."""
        noise = {}
        if num_samples is not None:
            shape = (*ops.shape(pieces)[:2], num_samples, 2)
            noise["uniforms"] = keras.random.uniform(
                shape, dtype="float32", seed=self.seed_generator
            )
        return self._e_step(
            posterior.assign, pieces, table, counts, prior_rows, **noise
        )

    def _e_step(self, function, pieces, table, counts, prior_rows, **optional):
        """Applies a function of `posterior` to each codebook."""
        if prior_rows is not None:
            # The pieces of a codebook look up their rows, because to arrange the rows
            # by codebook would be to copy them.
            places = ops.arange(ops.shape(prior_rows)[0], dtype="int32")
            places = ops.reshape(places, (-1, *self.groups.code_shape))
            optional["places"] = self.groups.split_codes(places)
        log_weights = self._log_weights(counts)
        if log_weights is not None:
            optional["log_weights"] = log_weights

        temperature = self.temperature.value()

        def apply(pieces, table, usable, *rest):
            return function(
                pieces,
                table,
                usable,
                **dict(zip(optional, rest, strict=True)),
                prior=prior_rows,
                temperature=temperature,
            )

        table = ops.stop_gradient(table)
        return segments.per_codebook(
            apply, pieces, table, counts > 0, *optional.values()
        )

    def _read_table(self):
        """Returns the vectors [C, K, d] that codes stand for, and counts [C, K]."""
        vectors, counts = self._read_codebook()
        return self.similarity.prepare(vectors), counts

    def _look_up(self, vectors, samples):
        """Returns the mean vector [C, M, d] of the codes in `samples` [C, M, m]."""
        return segments.per_codebook(segments.mean_of_rows, vectors, samples)

    def encode(
        self, inputs: ArrayLike, prior_logits: ArrayLike | None = None
    ) -> tf.Tensor:
        """Returns the code of each vector: that of the nearest codebook vector.

        Args:
            inputs: Vectors `[..., D]`.
            prior_logits: Logits of a prior over codes, as in the call of the layer.
                The codes are then the likeliest ones, not the nearest.

        Returns:
            Codes, int32 `[...]`, or `[..., G]` for a layer with `G` groups.
        """
        inputs, pieces, prior_rows = self._prepare_pieces(
            "encode", inputs, prior_logits
        )
        codes, _ = self._assign(pieces, *self._read_table(), None, prior_rows)
        return self._codes_like(codes, inputs)

    def _prepare_pieces(self, method, inputs, prior_logits):
        """Returns inputs as a tensor and as pieces [C, M, d], and rows of the prior."""
        inputs = self._prepare(inputs, method)
        pieces = self._pieces(self._rows(inputs)[0])
        if prior_logits is not None:
            # Rounded as in a call, so that the codes are the same.
            prior_logits = self._prepare(prior_logits, method)
            prior_logits = self._prior_rows(prior_logits, inputs)
        return inputs, pieces, prior_logits

    def sample(
        self,
        inputs: ArrayLike,
        num_samples: int,
        prior_logits: ArrayLike | None = None,
    ) -> tf.Tensor:
        """Draws codes from the posterior over the codebook, given each vector.

        Args:
            inputs: Vectors `[..., D]`.
            num_samples: Number of draws per vector.
            prior_logits: Logits of a prior over codes, as in the call of the layer.

        Returns:
            Codes, int32 `[..., num_samples]`, or `[..., G, num_samples]` for a layer
            with `G` groups.
        """
        num_samples = whole_number("num_samples", num_samples, 1)
        inputs, pieces, prior_rows = self._prepare_pieces(
            "sample", inputs, prior_logits
        )
        table = self._read_table()
        _, samples = self._assign(pieces, *table, num_samples, prior_rows)
        return self._codes_like(samples, inputs, num_samples)

    def posterior(
        self, inputs: ArrayLike, prior_logits: ArrayLike | None = None
    ) -> tf.Tensor:
        """Computes the posterior over the codebook, given each vector.

        These are the soft labels of which `sample` draws. They need a number per vector
        and code, and so are meant for small codebooks.

        Args:
            inputs: Vectors `[..., D]`.
            prior_logits: Logits of a prior over codes, as in the call of the layer.

        Returns:
            Probabilities, float32 `[..., K]`, or `[..., G, K]` for a layer with `G`
            groups.
        """
        inputs, pieces, prior_rows = self._prepare_pieces(
            "posterior", inputs, prior_logits
        )
        rows = self._e_step(
            posterior.probabilities, pieces, *self._read_table(), prior_rows
        )
        return self._codes_like(rows, inputs, self.num_codes)

    def adapt(
        self, data: ArrayLike | tf.data.Dataset, steps: int | None = None
    ) -> None:
        """Starts the codebook by k-means of given vectors.

        k-means++ chooses the first centres, and steps of Lloyd move them. All the
        vectors are held in memory. Call it before training, with what the layer will be
        called on; for example, the outputs of the encoder for some thousand examples.
        The same data and `seed` give the same codebook. Vectors with NaN or infinity
        are left out.

        Args:
            data: Vectors `[..., D]`, or a `tf.data.Dataset` of batches of them.
            steps: Number of batches of a dataset to use. None for all.
        """
        adaptation.adapt(self, data, steps)

    def decode(self, codes: ArrayLike) -> tf.Tensor:
        """Returns the vectors of codes.

        For codes from `encode`, the result is exactly the `quantized` that the layer
        returns outside training, if both have the same prior or none. Conversely,
        `encode` without a prior gives the codes of the result, if they have vectors and
        no two codes have the same vector.

        Args:
            codes: Integers `[...]`, or `[..., G]` for a layer with `G` groups.

        Returns:
            Vectors `[..., D]` in the compute dtype of the layer.
        """
        flat = self._check_codes(codes)
        pieces = self.groups.split_codes(flat)[..., None]
        rows = self.groups.merge(self._look_up(self._read_table()[0], pieces))
        return self._decoded(rows, codes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "groups": groupings.serialize(self.groups),
            "commitment_weight": strategies.number_or_config(
                self.commitment_loss, commitments.SquaredCommitment
            ),
            "similarity": strategies.serialize(self.similarity, similarities.NAMES),
            "gradient": strategies.serialize(self.gradient, gradients.NAMES),
        }
