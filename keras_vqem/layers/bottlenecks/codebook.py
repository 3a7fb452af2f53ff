"""EMACodebook: codebooks learned by moving averages, exact over replicas."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem import micro_batches, replicas
from keras_vqem.layers.bottlenecks import segments, starts, strategies
from keras_vqem.layers.bottlenecks.averages import MovingAverages
from keras_vqem.layers.bottlenecks.similarities import Euclidean
from keras_vqem.layers.bottlenecks.starts import SMALLEST_COUNT


class EMACodebook(keras.layers.Layer):
    """Codebooks of vectors that are learned by moving averages.

    The M step of EM over a stream of batches keeps two moving averages per code: the
    number of vectors assigned to it, `c`, and their sum, `s`; see `MovingAverages`. The
    layer stores `counts` = c and `vectors` = s / c. Because s is their product,
    codebook and averages cannot disagree, neither at step 0 nor after a dead code was
    replaced.

    A count of 0 marks a code that has no vector yet and waits for data. `seed` gives it
    a vector of the current batch; the vectors chosen are spread evenly over the batch,
    or are the centres of its k-means, if no code has a vector yet.
    If a batch has too few vectors, the remaining codes wait for the next batch. Dead
    codes, those whose count fell below a fraction of the average count, get a new
    vector in the same way. A new code starts with the average count. At the very first
    step that is almost 0, so that the first batches have equal weight.

    With several replicas, batch statistics are summed before they are used. Every
    replica then holds the codebook that a single replica would get from the whole
    batch.

    Args:
        num_codes: Number of codes per codebook, `K`.
        num_codebooks: Number of codebooks, `C`.
        decay: Decay of the moving averages, or a `MovingAverages`.
        initializer: `"data"` to start from vectors of the first batches, `"kmeans"` to
            start from k-means of the first one, or a Keras initializer.
        dead_code_threshold: Fraction of the average count below which a code is dead.
            0 never replaces a code.
        seed: Integer seed of the choice of new vectors, or None.
        similarity: Similarity that k-means is to use.
        **kwargs: Other arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        num_codes: int,
        num_codebooks: int,
        decay: float | MovingAverages,
        initializer: keras.initializers.Initializer | str,
        dead_code_threshold: float,
        seed: int | None,
        similarity: Euclidean | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_codes = num_codes
        self.num_codebooks = num_codebooks
        self.averages = strategies.of_number("decay", decay, MovingAverages)
        self.initializer = initializer
        self.dead_code_threshold = dead_code_threshold
        self.similarity = similarity or Euclidean()
        # Not a ReplicaSeedGenerator, because all replicas must draw the same number.
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, dim: int) -> None:
        def add_state(name, shape, initializer):
            return self.add_weight(
                name=name,
                shape=shape,
                initializer=initializer,
                dtype="float32",
                trainable=False,
                autocast=False,
                aggregation="only_first_replica",
            )

        def initialize(shape, dtype=None):
            # So that a code weighs as much as a vector that is assigned to it.
            return self.similarity.prepare(self.initializer(shape, dtype=dtype))

        shape = (self.num_codebooks, self.num_codes)
        waiting = self.initializer in starts.FROM_DATA
        self.vectors = add_state(
            "vectors", (*shape, dim), "zeros" if waiting else initialize
        )
        first_count = 0.0 if waiting else self.averages.first_count
        self.counts = add_state(
            "counts", shape, keras.initializers.Constant(first_count)
        )
        self.built = True

    def read(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the codebooks `[C, K, d]` and their counts `[C, K]`."""
        return ops.convert_to_tensor(self.vectors), ops.convert_to_tensor(self.counts)

    def seed(
        self, pieces: tf.Tensor, keep: tf.Tensor, per_replica: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Gives new vectors to codes that have none and to dead codes.

        The result is not stored, unless the batch has further parts: pass it to
        `update`.

        Args:
            pieces: Pieces of vectors, `[C, M, d]`.
            keep: Floats `[C, M]`, 1 for pieces that may be used and 0 for others. All
                rows must be equal.
            per_replica: Number of pieces of each replica that may be used, `[R]`.

        Returns:
            The codebooks `[C, K, d]` and their counts `[C, K]`.
        """
        vectors, counts = self.read()
        if self.initializer not in starts.FROM_DATA and not self.dead_code_threshold:
            return vectors, counts
        kmeans = self.initializer == "kmeans"
        vectors, counts = starts.give_places(
            vectors,
            counts,
            pieces,
            keep,
            per_replica,
            generator=self.seed_generator,
            dead_code_threshold=self.dead_code_threshold,
            by_kmeans=self.similarity.prepare if kmeans else None,
        )
        if micro_batches.num_parts() > 1:
            # The parts of a batch must agree on where a code is.
            self.vectors.assign(vectors)
            self.counts.assign(counts)
        return vectors, counts

    def update(
        self,
        vectors: tf.Tensor,
        counts: tf.Tensor,
        pieces: tf.Tensor,
        samples: tf.Tensor | None,
        batch_counts: tf.Tensor,
        sums: tf.Tensor | None = None,
    ) -> None:
        """Runs the M step and stores the result, in the last part of a batch.

        Args:
            vectors: Codebooks `[C, K, d]` from `seed`.
            counts: Counts `[C, K]` from `seed`.
            pieces: Pieces of vectors, `[C, M, d]`.
            samples: Codes `[C, M, m]`, -1 for pieces that may not be used. None if
                `sums` are given.
            batch_counts: Number of pieces of this replica per code, `[C, K]`.
            sums: Sum of the pieces of this replica per code, `[C, K, d]`. None to add
                them up by `samples`.
        """
        if sums is None:
            sums = segments.per_codebook(
                lambda p, s: segments.sum_by_code(p, s, self.num_codes), pieces, samples
            )
        statistics = micro_batches.sum_over_parts(self, [batch_counts, sums])
        if statistics is None:
            return
        new, sums = replicas.sum_over_replicas(statistics)
        vectors, counts = self.averages.update(vectors, counts, new, sums)
        self.vectors.assign(vectors)
        self.counts.assign(counts)

    def adopt(self, vectors: tf.Tensor, counts: tf.Tensor) -> None:
        """Takes over centres that k-means found outside of training.

        Their counts are on average 1, as those of codes from an initializer are, and in
        proportion to the vectors of each centre.

        Args:
            vectors: Codebooks `[C, K, d]`.
            counts: Number of vectors of each centre, `[C, K]`.
        """
        share = counts / ops.sum(counts, axis=-1, keepdims=True)
        self.vectors.assign(vectors)
        self.counts.assign(ops.maximum(self.num_codes * share, SMALLEST_COUNT))
