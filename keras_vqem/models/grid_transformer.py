"""GridTransformer: an autoregressive model of symbols on a grid, such as codes."""

import keras
import tensorflow as tf
from keras import ops

from keras_vqem import decoding
from keras_vqem.layers import LocalTransformer, ReplicaDropout, replicas
from keras_vqem.models.own_loss import OwnLoss


@keras.saving.register_keras_serializable(package="keras_vqem")
class GridTransformer(OwnLoss):
    """Predicts a grid of symbols one by one: the prior over an image's codes.

    A grid has `rows` x `columns` cells with `slots` symbols each, read row by row,
    cell by cell, slot by slot: 8 x 8 x 10 codes of the paper's CIFAR-10 model, or
    32 x 32 x 3 numbers of an image. Each slot has symbols of its own. A symbol's
    prediction sees the symbols before it through masked local attention, and also
    directly the same slot of the cells to the left and above, of which neighbouring
    symbols know most.

    Args:
        grid: `(rows, columns, slots)`.
        num_symbols: How many symbols there are in each slot.
        width: Of embeddings and hidden states.
        depth: How many Transformer blocks.
        heads: Of each attention.
        filter_width: Of the feed-forward layers.
        block: Positions in a block of the local attention.
        dropout: After embeddings, attentions and feed-forward layers.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        inputs: A dict with `symbols`, integers [B, rows, columns, slots]. To train on
            soft labels it also holds `samples` [B, rows, columns, slots, m], draws of
            which each counts 1 / m.

    Returns:
        Logits [B, rows, columns, slots, num_symbols].

    Example:

    >>> model = keras_vqem.models.GridTransformer(
    ...     grid=(2, 2, 3), num_symbols=16, width=8, depth=1, heads=2,
    ...     filter_width=16, block=4)
    >>> model.compile()
    >>> symbols = np.random.default_rng(0).integers(16, size=(8, 2, 2, 3))
    >>> history = model.fit({"symbols": symbols}, batch_size=4, verbose=0)
    >>> model.sample(5, seed=(0, 1)).shape
    TensorShape([5, 2, 2, 3])

    References:
        - Parmar et al., 2018. Image Transformer. arXiv:1802.05751.
    """

    def __init__(
        self,
        grid,
        num_symbols,
        width=128,
        depth=6,
        heads=4,
        filter_width=512,
        block=160,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        if len(self.grid) != 3 or min(self.grid) < 1:
            raise ValueError(
                f"`grid` must be three numbers, (rows, columns, slots), received "
                f"{grid!r}."
            )
        self.num_symbols = num_symbols
        self.width = width
        self.depth = depth
        self.heads = heads
        self.filter_width = filter_width
        self.block = block
        self.dropout = dropout
        rows, columns, slots = self.grid
        self.length = rows * columns * slots
        # How far back the symbol before, the left cell's and the upper cell's are.
        self.steps_back = (1, slots, columns * slots)
        policy = self.dtype_policy
        self.embedding_dropout = ReplicaDropout(dropout, dtype=policy)
        self.transformer = LocalTransformer(
            depth, heads, filter_width, block, dropout, name="transformer", dtype=policy
        )
        self.bits = keras.metrics.Mean(name="bits")

    def build(self, input_shape=None):
        rows, columns, slots = self.grid
        small = keras.initializers.RandomNormal(stddev=0.02)

        def add(name, *shape, initializer=small):
            return self.add_weight(name=name, shape=shape, initializer=initializer)

        # The last row of each table stands for what lies outside the grid.
        self.tables = [
            add(f"symbols_{back}", slots * self.num_symbols + 1, self.width)
            for back in self.steps_back
        ]
        self.row_signal = add("rows", rows, 1, 1, self.width)
        self.column_signal = add("columns", columns, 1, self.width)
        self.slot_signal = add("slots", slots, self.width)
        self.kernel = add("kernel", slots, self.width, self.num_symbols)
        self.bias = add("bias", slots, self.num_symbols, initializer="zeros")
        self.transformer.build((None, None, self.width))
        self.built = True

    # What goes in, what comes out.

    def _table_rows(self, symbols):
        """Symbols [B, T] of whole cells as rows of the tables."""
        slots = self.grid[2]
        slot = ops.arange(ops.shape(symbols)[1]) % slots
        return ops.cast(symbols, "int32") + slot * self.num_symbols

    def _positions(self):
        """[T, D], one for each position of the grid."""
        signal = self.row_signal + self.column_signal + self.slot_signal
        signal = ops.reshape(signal, (self.length, self.width))
        return ops.cast(signal, self.compute_dtype)

    def _embed(self, table_rows):
        """[B, T, D] from table rows [3, B, T], one for each table."""
        return sum(
            ops.take(ops.cast(table, self.compute_dtype), rows, axis=0)
            for table, rows in zip(self.tables, table_rows, strict=True)
        )

    def _outside(self):
        return self.grid[2] * self.num_symbols

    def call(self, inputs, training=None):
        symbols = inputs["symbols"]
        flat = self._table_rows(ops.reshape(symbols, (-1, self.length)))
        # The cell to the left of a row's first is the last of the row above: as good
        # a neighbour as none.
        before = [
            ops.pad(flat, [[0, 0], [back, 0]], constant_values=self._outside())[
                :, : self.length
            ]
            for back in self.steps_back
        ]
        x = self._embed(before) + self._positions()
        x = self.embedding_dropout(x, training=training)
        x = self.transformer(x, training=training)
        x = ops.reshape(x, (-1, *self.grid, self.width))
        kernel = ops.cast(self.kernel, self.compute_dtype)
        logits = ops.einsum("brcsw,swk->brcsk", x, kernel)
        return logits + ops.cast(self.bias, self.compute_dtype)

    # Training.

    def nats(self, inputs, logits):
        """Cross entropy [B, rows, columns, slots] of the labels in `inputs`."""
        logits = ops.cast(logits, "float32")
        labels = inputs.get("samples")
        if labels is None:
            labels = inputs["symbols"][..., None]
        labels = ops.cast(labels, "int32")
        picked = ops.mean(ops.take_along_axis(logits, labels, axis=-1), axis=-1)
        return ops.logsumexp(logits, axis=-1) - picked

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        nats = self.nats(x, y_pred)
        loss = ops.mean(nats)
        self.bits.update_state(loss / ops.log(2.0), sample_weight=ops.size(nats))
        # Keras sums gradients over replicas, whose batches are of one size.
        return loss / replicas.num_replicas()

    # Sampling.

    def sample(self, count, seed, temperature=1.0, prefix=None):
        """Draws grids, symbol by symbol, keeping what attention has computed.

        Args:
            count: How many.
            seed: Two integers, or int32 [2].
            temperature: Below 1 for more probable grids; 0 for the most probable
                symbol each time.
            prefix: Integers [count, P]: the first P symbols of each grid, in reading
                order, given. The upper half of an image, for example.

        Returns:
            int32 [count, rows, columns, slots].
        """
        if not self.built:
            self.build()
        positions, reach = self._positions(), max(self.steps_back)
        slots = self.grid[2]

        def step(ids, state, position):
            caches, before = state
            slot = position % slots
            row = ids + (position - 1) % slots * self.num_symbols
            # The first symbol is fed for nothing: there is none before it.
            row = ops.where(position == 0, self._outside(), row)
            before = ops.concatenate([before[:, 1:], row[:, None]], axis=1)
            x = self._embed([before[:, reach - b, None] for b in self.steps_back])
            x = x + positions[position]
            x, caches = self.transformer.step(x, caches)
            kernel = ops.cast(self.kernel[slot], self.compute_dtype)
            logits = ops.matmul(x[:, 0], kernel) + ops.cast(
                self.bias[slot], self.compute_dtype
            )
            logits = ops.cast(logits, "float32")
            if prefix is not None:
                place = ops.minimum(position, prefix.shape[1] - 1)
                given = ops.one_hot(prefix[:, place], self.num_symbols) * 1e9
                logits = ops.where(position < prefix.shape[1], given, logits)
            return logits, (caches, before)

        if prefix is not None:
            prefix = ops.cast(prefix, "int32")
        before = ops.full((count, reach), self._outside(), dtype="int32")
        ids = decoding.sample_search(
            step,
            (self.transformer.empty_caches(count), before),
            count,
            start_id=0,
            end_id=None,
            max_length=self.length,
            temperature=temperature,
            seed=seed,
        )
        return tf.reshape(ids, (count, *self.grid))

    def get_config(self):
        return {
            **super().get_config(),
            "grid": self.grid,
            "num_symbols": self.num_symbols,
            "width": self.width,
            "depth": self.depth,
            "heads": self.heads,
            "filter_width": self.filter_width,
            "block": self.block,
            "dropout": self.dropout,
        }
