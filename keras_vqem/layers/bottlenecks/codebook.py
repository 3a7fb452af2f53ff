"""The EMA codebook: its state, the M step, seeding from data, exact over replicas."""

import keras
from keras import ops

from keras_vqem import replicas
from keras_vqem.layers.bottlenecks import segments

# Counts of codes that have a place never fall to 0, which marks those without one.
SMALLEST_COUNT = 1e-30


class EMACodebook(keras.layers.Layer):
    """`num_codebooks` codebooks of `num_codes` vectors, learned by moving averages.

    The M step of EM over a stream of batches keeps moving averages of how many
    vectors each code got, `c`, and of their sum, `s`:

        c <- decay c + (1 - decay) n        n: this batch's count
        s <- decay s + (1 - decay) x        x: the sum of this batch's vectors
        e <- s / c

    Stored are `counts` = c and `vectors` = e; s is their product, so codebook and
    averages cannot disagree, at step 0 or after a revival. A code that got nothing
    keeps its place to the bit.

    A count of 0 marks a code that has no place yet: it waits for data. `seed` gives
    it one, a vector of the current batch, spread evenly over the batch; with too few
    vectors the rest wait for the next batch. Revival is the same act for codes whose
    count fell below a share of the average count. The newcomer starts with the
    average count: none at the very first step, so that early batches weigh equally.

    On several replicas batch statistics are summed before they are used, so every
    replica holds the codebook that one replica with the whole batch would hold.
    """

    def __init__(
        self,
        num_codes,
        num_codebooks,
        decay,
        initializer,
        dead_code_threshold,
        seed,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_codes = num_codes
        self.num_codebooks = num_codebooks
        self.decay = decay
        self.initializer = initializer
        self.dead_code_threshold = dead_code_threshold
        # The same draw on every replica, so not a ReplicaSeedGenerator.
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, dim):
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

    def read(self):
        """The codebooks [C, K, d] and their counts [C, K]."""
        return ops.convert_to_tensor(self.vectors), ops.convert_to_tensor(self.counts)

    def seed(self, pieces, keep):
        """As `read`, with a place for codes that need one; `update` takes it back.

        Args:
            pieces: [C, M, d].
            keep: [C, M], 1 for pieces that may be used, else 0; alike in every row.
        """
        vectors, counts = self.read()
        if self.initializer != "data" and not self.dead_code_threshold:
            return vectors, counts
        average = ops.mean(counts, axis=-1, keepdims=True)
        needy = counts <= self.dead_code_threshold * average
        # Short of 1, where float32 would round the last place up beyond the end.
        offset = keras.random.uniform(
            (), maxval=0.99, dtype="float32", seed=self.seed_generator
        )

        def place():
            found, given = self._find_places(pieces, keep, needy, offset)
            newborn = ops.maximum(average, SMALLEST_COUNT)
            return (
                ops.where(given[..., None], found, vectors),
                ops.where(given, newborn, counts),
            )

        # Most steps have nobody to place. On several replicas they do the work all the
        # same: a collective may not sit in a cond.
        if replicas.num_replicas() > 1:
            return place()
        return ops.cond(ops.any(needy), place, lambda: (vectors, counts))

    def _find_places(self, pieces, keep, needy, offset):
        """Pieces [C, K, d] for needy codes, and which codes got one [C, K]."""
        # Number the usable pieces through all replicas, and give the r-th needy code
        # the piece at r / (number of needy codes) of the way, at a random offset.
        per_replica = replicas.gather_scalars(ops.sum(keep[0]))
        total = ops.sum(per_replica)
        needs = ops.cast(needy, "float32")
        rank = ops.cumsum(needs, axis=-1) - 1.0
        number = ops.maximum(ops.sum(needs, axis=-1, keepdims=True), 1.0)
        place = ops.floor((rank + offset) * ops.maximum(total / number, 1.0))
        given = needy & (place < total)

        # Of the pieces given, this replica contributes those that it holds.
        me = replicas.replica_id()
        local = place - (ops.cumsum(per_replica) - per_replica)[me]
        here = given & (local >= 0) & (local < per_replica[me])
        row = ops.searchsorted(ops.cumsum(keep[0]), ops.reshape(local + 1.0, (-1,)))
        row = ops.reshape(ops.cast(row, "int32"), ops.shape(local))
        row = ops.clip(row, 0, ops.shape(pieces)[1])
        # A replica may have no pieces at all; the row of zeros is there to be taken.
        pieces = ops.pad(pieces, [[0, 0], [0, 1], [0, 0]])
        found = segments.per_codebook(lambda p, r: ops.take(p, r, axis=0), pieces, row)
        if replicas.num_replicas() > 1:
            found = replicas.sum_over_replicas(ops.where(here[..., None], found, 0.0))
        return found, given

    def update(self, vectors, counts, pieces, samples, batch_counts):
        """The M step.

        Args:
            vectors, counts: what `seed` returned.
            pieces: [C, M, d].
            samples: [C, M, m] codes, -1 where a piece may not be used.
            batch_counts: [C, K], how many of this replica's pieces each code got.
        """
        sums = segments.per_codebook(
            lambda p, s: segments.sum_by_code(p, s, self.num_codes), pieces, samples
        )
        new, sums = replicas.sum_over_replicas([batch_counts, sums])
        old = self.decay * counts
        total = ops.maximum(old + (1.0 - self.decay) * new, SMALLEST_COUNT)
        used = new > 0
        keep = ops.where(used, old / total, 1.0)[..., None]
        learn = ops.where(used, (1.0 - self.decay) / total, 0.0)[..., None]
        self.vectors.assign(keep * vectors + learn * sums)
        self.counts.assign(ops.where(counts > 0, total, 0.0))
