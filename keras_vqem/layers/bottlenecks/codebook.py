"""EMACodebook: codebooks learned by moving averages, exact over replicas."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem import micro_batches, replicas
from keras_vqem.layers.bottlenecks import segments

# Lower bound of the counts of codes with a vector: 0 marks codes without one.
SMALLEST_COUNT = 1e-30


class EMACodebook(keras.layers.Layer):
    """Codebooks of vectors that are learned by moving averages.

    The M step of EM over a stream of batches keeps two moving averages per code: the
    number of vectors assigned to it, `c`, and their sum, `s`.

        c <- decay c + (1 - decay) n        n: the count of this batch
        s <- decay s + (1 - decay) x        x: the sum of the vectors of this batch
        e <- s / c

    The layer stores `counts` = c and `vectors` = e. Because s is their product,
    codebook and averages cannot disagree, neither at step 0 nor after a dead code was
    replaced. A code without vectors in a batch keeps its vector to the bit.

    A count of 0 marks a code that has no vector yet and waits for data. `seed` gives it
    a vector of the current batch; the vectors chosen are spread evenly over the batch.
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
        decay: Decay of the moving averages.
        initializer: `"data"` to start from vectors of the first batches, or a Keras
            initializer.
        dead_code_threshold: Fraction of the average count below which a code is dead.
            0 never replaces a code.
        seed: Integer seed of the choice of new vectors, or None.
        **kwargs: Other arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        num_codes: int,
        num_codebooks: int,
        decay: float,
        initializer: keras.initializers.Initializer | str,
        dead_code_threshold: float,
        seed: int | None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_codes = num_codes
        self.num_codebooks = num_codebooks
        self.decay = decay
        self.initializer = initializer
        self.dead_code_threshold = dead_code_threshold
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

        shape = (self.num_codebooks, self.num_codes)
        waiting = self.initializer == "data"
        self.vectors = add_state(
            "vectors", (*shape, dim), "zeros" if waiting else self.initializer
        )
        self.counts = add_state("counts", shape, "zeros" if waiting else "ones")
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
        if self.initializer != "data" and not self.dead_code_threshold:
            return vectors, counts
        average = ops.mean(counts, axis=-1, keepdims=True)
        needy = counts <= self.dead_code_threshold * average
        # Below 1, where float32 would round the last position up beyond the end.
        offset = keras.random.uniform(
            (), maxval=0.99, dtype="float32", seed=self.seed_generator
        )

        def place():
            given, row, here = self._find_places(keep, needy, offset, per_replica)
            # A replica may have no pieces at all: a row of zeros keeps `row` in range.
            padded = ops.pad(pieces, [[0, 0], [0, 1], [0, 0]])
            newborn = ops.maximum(average, SMALLEST_COUNT)
            return (
                _put(vectors, padded, given, row, here),
                ops.where(given, newborn, counts),
            )

        # Most steps have no code to place. Several replicas still do the work, because
        # a collective must not be inside a cond; but then it is on an empty tensor.
        if replicas.num_replicas() > 1:
            vectors, counts = place()
        else:
            vectors, counts = ops.cond(ops.any(needy), place, lambda: (vectors, counts))
        if micro_batches.num_parts() > 1:
            # The parts of a batch must agree on where a code is.
            self.vectors.assign(vectors)
            self.counts.assign(counts)
        return vectors, counts

    def _find_places(self, keep, needy, offset, per_replica):
        """Chooses pieces for needy codes.

        Returns three tensors [C, K]: which codes get a piece, the row of the piece on
        this replica, and whether this replica holds it.
        """
        # Number the usable pieces of all replicas consecutively. The r-th needy code
        # gets the piece at the fraction r / (number of needy codes), plus a random
        # offset.
        total = ops.sum(per_replica)
        needs = ops.cast(needy, "float32")
        rank = ops.cumsum(needs, axis=-1) - 1.0
        number = ops.maximum(ops.sum(needs, axis=-1, keepdims=True), 1.0)
        place = ops.floor((rank + offset) * ops.maximum(total / number, 1.0))
        given = needy & (place < total)

        me = replicas.replica_id()
        local = place - (ops.cumsum(per_replica) - per_replica)[me]
        here = given & (local >= 0) & (local < per_replica[me])
        row = ops.searchsorted(ops.cumsum(keep[0]), ops.reshape(local + 1.0, (-1,)))
        row = ops.reshape(ops.cast(row, "int32"), ops.shape(local))
        return given, ops.clip(row, 0, ops.shape(keep)[1]), here

    def update(
        self,
        vectors: tf.Tensor,
        counts: tf.Tensor,
        pieces: tf.Tensor,
        samples: tf.Tensor,
        batch_counts: tf.Tensor,
    ) -> None:
        """Runs the M step and stores the result, in the last part of a batch.

        Args:
            vectors: Codebooks `[C, K, d]` from `seed`.
            counts: Counts `[C, K]` from `seed`.
            pieces: Pieces of vectors, `[C, M, d]`.
            samples: Codes `[C, M, m]`, -1 for pieces that may not be used.
            batch_counts: Number of pieces of this replica per code, `[C, K]`.
        """
        sums = segments.per_codebook(
            lambda p, s: segments.sum_by_code(p, s, self.num_codes), pieces, samples
        )
        statistics = micro_batches.sum_over_parts(self, [batch_counts, sums])
        if statistics is None:
            return
        new, sums = replicas.sum_over_replicas(statistics)
        old = self.decay * counts
        total = ops.maximum(old + (1.0 - self.decay) * new, SMALLEST_COUNT)
        used = new > 0
        keep = ops.where(used, old / total, 1.0)[..., None]
        learn = ops.where(used, (1.0 - self.decay) / total, 0.0)[..., None]
        self.vectors.assign(keep * vectors + learn * sums)
        self.counts.assign(ops.where(counts > 0, total, 0.0))


def _put(vectors, pieces, given, row, here):
    """Replaces the vectors [C, K, d] of given codes by pieces [C, M, d] at `row`."""
    if replicas.num_replicas() == 1:
        # Static shapes, as XLA needs them.
        found = segments.per_codebook(lambda p, r: ops.take(p, r, axis=0), pieces, row)
        return ops.where(given[..., None], found, vectors)
    # All replicas agree on the codes, so they sum the vectors of these codes only.
    places = ops.cast(tf.where(given), "int32")
    rows = ops.stack([places[:, 0], tf.gather_nd(row, places)], axis=1)
    found = tf.gather_nd(pieces, rows)
    found = ops.where(tf.gather_nd(here, places)[:, None], found, 0.0)
    # A row more, since not every implementation of collectives takes empty tensors.
    found = replicas.sum_over_replicas(ops.pad(found, [[0, 1], [0, 0]]))
    return tf.tensor_scatter_nd_update(vectors, places, found[:-1])
