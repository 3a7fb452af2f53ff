"""The EMA codebook: its state, the M step, seeding from data, exact over replicas."""

import keras
from keras import ops

from keras_vqem.layers import replicas
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
        self, num_codes, num_codebooks, decay, initializer, revival, seed, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_codes = num_codes
        self.num_codebooks = num_codebooks
        self.decay = decay
        self.initializer = initializer
        self.revival = revival
        # The same draw on every replica, so not a ReplicaSeedGenerator.
        self.seed_generator = keras.random.SeedGenerator(seed)

    @property
    def _from_data(self):
        return self.initializer == "data"

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
        # Codes that wait for data still need distinct values, for a model that is
        # called before it is trained.
        self.vectors = add_state(
            "vectors",
            (*shape, dim),
            "random_normal" if self._from_data else self.initializer,
        )
        self.counts = add_state("counts", shape, "zeros" if self._from_data else "ones")
        self.built = True

    def read(self):
        """The codebooks [C, K, d], and which codes may be used [C, K]."""
        placed = self.counts > 0
        # Before any data every code may be used.
        usable = placed | ~ops.any(placed, axis=-1, keepdims=True)
        return ops.convert_to_tensor(self.vectors), usable

    def seed(self, pieces, keep):
        """As `read`, once codes that need a place have got one from [C, M, d] pieces.

        Args:
            pieces: [C, M, d].
            keep: [C, M], 1 for pieces that may be used, else 0; alike in every row.
        """
        if not self._from_data and not self.revival:
            return self.read()
        counts = ops.convert_to_tensor(self.counts)
        average = ops.mean(counts, axis=-1, keepdims=True)
        needy = counts <= self.revival * average

        # Number the usable pieces through all replicas, and give the r-th needy code
        # the piece at r / (number of needy codes) of the way, at a random offset.
        per_replica = replicas.gather_scalars(ops.sum(keep[0]))
        total = ops.sum(per_replica)
        first = (ops.cumsum(per_replica) - per_replica)[replicas.replica_id()]
        mine = per_replica[replicas.replica_id()]
        needs = ops.cast(needy, "float32")
        rank = ops.cumsum(needs, axis=-1) - 1.0
        stride = ops.maximum(
            total / ops.maximum(ops.sum(needs, -1, keepdims=True), 1), 1
        )
        offset = keras.random.uniform((), seed=self.seed_generator)
        place = ops.floor((rank + offset) * stride)
        given = needy & (place < total)

        # Of the pieces given, this replica contributes those that it holds.
        local = place - first
        here = given & (local >= 0) & (local < mine)
        row = ops.searchsorted(ops.cumsum(keep[0]), ops.reshape(local + 1.0, (-1,)))
        row = ops.reshape(ops.cast(row, "int32"), ops.shape(local))
        row = ops.clip(row, 0, ops.shape(pieces)[1])
        # A replica may have no pieces at all; the row of zeros is there to be taken.
        pieces = ops.pad(pieces, [[0, 0], [0, 1], [0, 0]])
        found = segments.per_codebook(lambda p, r: ops.take(p, r, axis=0), pieces, row)
        found = replicas.sum_over_replicas(ops.where(here[..., None], found, 0.0))
        self.vectors.assign(ops.where(given[..., None], found, self.vectors))
        newborn = ops.maximum(average, SMALLEST_COUNT)
        self.counts.assign(ops.where(given, newborn, counts))
        return self.read()

    def update(self, pieces, samples, counts):
        """The M step.

        Args:
            pieces: [C, M, d].
            samples: [C, M, m] codes, -1 where a piece may not be used.
            counts: [C, K], how many of this replica's pieces each code got.
        """
        sums = segments.per_codebook(
            lambda p, s: segments.sum_by_code(p, s, self.num_codes), pieces, samples
        )
        new, sums = replicas.sum_over_replicas([counts, sums])
        old = self.decay * self.counts
        total = ops.maximum(old + (1.0 - self.decay) * new, SMALLEST_COUNT)
        used = new > 0
        keep = ops.where(used, old / total, 1.0)[..., None]
        learn = ops.where(used, (1.0 - self.decay) / total, 0.0)[..., None]
        self.vectors.assign(keep * self.vectors + learn * sums)
        self.counts.assign(ops.where(self.counts > 0, total, 0.0))
