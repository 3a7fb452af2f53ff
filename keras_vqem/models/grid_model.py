"""GridModel: base class of the autoregressive models of symbols on a grid."""

import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import decoding
from keras_vqem.checks import integers
from keras_vqem.layers import LocalTransformer, ReplicaDropout
from keras_vqem.layers.cached_attention import at_least_float32
from keras_vqem.models import grid_context
from keras_vqem.models.task_model import TaskModel


class GridModel(TaskModel):
    """Base class of `GridTransformer` and `ImageTransformer`.

    A grid has `rows` x `columns` cells with `slots` symbols each. It is read row by
    row, cell by cell, slot by slot. Each slot has its own set of symbols, and each
    symbol has a vector. The prediction of a symbol depends on the symbols before it in
    two ways: on all of them through masked local attention, and directly on the
    vectors of some of them, its context.

    A subclass names its input and its metric, and describes the grid in its config.

    Args:
        grid: Tuple `(rows, columns, slots)`.
        num_symbols: Number of symbols per slot.
        hidden_dim: Size of embeddings and hidden states.
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        block_length: Number of positions per block of the local attention.
        dropout: Dropout rate after embeddings, attention and feed-forward layers.
        vector_dim: Size of a symbol's vector.
        context: Symbols whose vectors a position sees directly: `"neighbours"` or
            `"previous"`.
        **kwargs: Arguments of `keras.Model`.
    """

    input_name: str  # Key of the symbols in a dict of inputs.
    symbol_dtype = "int32"  # Type of the symbols in an exported model.
    metric_name: str  # Name of the metric, in bits per symbol.

    def __init__(
        self,
        grid: tuple[int, int, int],
        num_symbols: int,
        hidden_dim: int,
        num_layers: int,
        num_heads: int,
        intermediate_dim: int,
        block_length: int,
        dropout: float,
        vector_dim: int,
        context: str,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        if len(self.grid) != 3 or min(self.grid) < 1:
            raise ValueError(
                f"`grid` must be three integers of at least 1, (rows, columns, "
                f"slots), received {grid!r}."
            )
        self.num_symbols = num_symbols
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.block_length = block_length
        self.dropout = dropout
        self.vector_dim = vector_dim
        rows, columns, slots = self.grid
        self.length = rows * columns * slots
        self.context = context
        self._context = grid_context.get(context, self)
        policy = self.dtype_policy
        self.embedding_dropout = ReplicaDropout(dropout, dtype=policy)
        self.transformer = LocalTransformer(
            num_layers,
            num_heads,
            intermediate_dim,
            block_length,
            dropout,
            name="transformer",
            dtype=policy,
        )
        self.bits = keras.metrics.Mean(name=self.metric_name)

    def build(self, input_shape: Any = None) -> None:
        rows, columns, slots = self.grid

        def add(name, *shape, size=0.02):
            # One initializer per weight: each draws the same numbers every time.
            initializer = keras.initializers.RandomNormal(stddev=size)
            return self.add_weight(name=name, shape=shape, initializer=initializer)

        self.vectors = add(
            "vectors", slots, self.num_symbols, self.vector_dim, size=1.0
        )
        self._context.build(add)
        self.row_signal = add("rows", rows, 1, 1, self.hidden_dim)
        self.column_signal = add("columns", columns, 1, self.hidden_dim)
        self.slot_signal = add("slots", slots, self.hidden_dim)
        self.kernel = add("kernel", slots, self.hidden_dim, self.num_symbols)
        self.bias = add("bias", slots, self.num_symbols, size=0.0)
        self.transformer.build((None, None, self.hidden_dim))
        self.built = True

    def init_from_codebook(self, vectors: ArrayLike, symbols: ArrayLike) -> None:
        """Initializes vectors and output layer from a codebook and symbol counts.

        Symbols with similar vectors are then similar from the first step on, and the
        model does not have to learn it for each of them. Call this before `fit`.

        Args:
            vectors: Codebook, floats `[slots, num_symbols, n]` with n up to
                `vector_dim`, or `[1, num_symbols, n]` if all slots share it.
            symbols: Integers `[N, rows, columns, slots]` whose frequencies are
                counted, such as the codes of a few thousand images.
        """
        if not self.built:
            self.build()
        vectors, symbols = np.asarray(vectors, "float32"), np.asarray(symbols)
        slots, size = self.grid[2], self.vector_dim
        if vectors.shape[0] == 1:
            vectors = vectors.repeat(slots, axis=0)
        if vectors.shape[:2] != (slots, self.num_symbols) or vectors.shape[2] > size:
            raise ValueError(
                f"`vectors` must have shape ({slots}, {self.num_symbols}, n) with n up "
                f"to {size}, received {vectors.shape}. Set `vector_dim` to at least n."
            )
        rng = np.random.default_rng(0)
        counts = 1.0 + np.stack(
            [
                np.bincount(np.ravel(symbols[..., s]), minlength=self.num_symbols)
                for s in range(slots)
            ]
        )
        shares = (counts / counts.sum(-1, keepdims=True))[..., None]
        vectors = vectors - np.sum(shares * vectors, axis=1, keepdims=True)
        power = np.sum(shares * np.square(vectors), axis=(1, 2), keepdims=True)
        # The vectors of each slot get the mean length of random ones.
        vectors = vectors * np.sqrt(size / np.maximum(power, 1e-12))
        padding = [(0, 0), (0, 0), (0, size - vectors.shape[2])]
        self.vectors.assign(np.pad(vectors, padding))
        # The log of a Gaussian around a prediction is linear in v and |v|^2.
        length = np.square(vectors).sum(-1, keepdims=True) / size - 1.0
        features = np.concatenate([vectors, length], axis=-1)
        mixing = rng.normal(size=(slots, self.hidden_dim, features.shape[-1]))
        self.kernel.assign(
            0.02 * size**-0.5 * np.einsum("swf,skf->swk", mixing, features)
        )
        self.bias.assign(np.log(shares[..., 0]))

    # Inputs and outputs.

    def _positions(self):
        """Position signals [length, hidden_dim]."""
        signal = self.row_signal + self.column_signal + self.slot_signal
        signal = ops.reshape(signal, (self.length, self.hidden_dim))
        return ops.cast(signal, self.compute_dtype)

    def _vector_table(self):
        """Vectors [slots * num_symbols + 1, vector_dim]; the last, 0, is outside."""
        flat = ops.reshape(self.vectors, (-1, self.vector_dim))
        return ops.cast(ops.pad(flat, [[0, 1], [0, 0]]), self.compute_dtype)

    def _outside(self):
        return self.grid[2] * self.num_symbols

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> tf.Tensor:
        rows, columns, slots = self.grid
        cells = rows * columns
        name = self.input_name
        symbols = integers(name, inputs[name], self.num_symbols - 1)
        if tuple(symbols.shape[1:]) != self.grid:
            raise ValueError(
                f"`{name}` must have shape [B, {rows}, {columns}, {slots}], received "
                f"{list(symbols.shape)}. Make a {type(self).__name__} of that size."
            )
        symbols = ops.reshape(symbols, (-1, cells, slots))
        table_rows = ops.cast(symbols, "int32") + ops.arange(slots) * self.num_symbols
        vectors = ops.take(self._vector_table(), table_rows, axis=0)
        vectors = ops.reshape(vectors, (-1, cells, slots * self.vector_dim))
        x = self._context.whole(vectors) + self._positions()
        x = self.embedding_dropout(x, training=training)
        x = self.transformer(x, training=training)
        x = ops.reshape(x, (-1, *self.grid, self.hidden_dim))
        kernel = ops.cast(self.kernel, self.compute_dtype)
        logits = ops.einsum("brcsw,swk->brcsk", x, kernel)
        return logits + ops.cast(self.bias, self.compute_dtype)

    # Training.

    def nats(self, inputs: dict[str, tf.Tensor], logits: tf.Tensor) -> tf.Tensor:
        """Computes the cross entropy of the labels in `inputs`, in nats per symbol.

        Args:
            inputs: Dict as the model is called with.
            logits: Logits that the model returned for it.

        Returns:
            float32 `[B, rows, columns, slots]`.
        """
        logits = ops.cast(logits, "float32")
        labels = inputs.get("samples")
        if labels is None:
            labels = inputs[self.input_name][..., None]
        labels = ops.cast(labels, "int32")
        picked = ops.mean(ops.take_along_axis(logits, labels, axis=-1), axis=-1)
        return ops.logsumexp(logits, axis=-1) - picked

    def _loss_terms(self, inputs, outputs):
        nats = self.nats(inputs, outputs)
        values = {"loss": nats, "metric": nats / ops.log(2.0)}
        yield self.bits, values, ops.ones_like(nats)

    def _loss_counts(self, inputs):
        symbols = inputs[self.input_name]
        return [ops.size(symbols), ops.shape(symbols)[0]]

    # Step by step.

    def step_constants(self) -> tuple:
        """Returns what all calls of `step` share, to be computed once."""
        return self._positions(), self._vector_table(), self._context.kernels()

    def start(self, count: int | tf.Tensor) -> tuple:
        """Returns the state before the first call of `step`.

        Args:
            count: Number of grids, an integer or a scalar tensor.
        """
        before = ops.full((count, self._context.reach + 1), self._outside(), "int32")
        return self.transformer.empty_caches(count), before

    def step(
        self, ids: tf.Tensor, state: tuple, position: tf.Tensor, constants: tuple
    ) -> tuple[tf.Tensor, tuple]:
        """Predicts the symbols at a position from those before it.

        The logits are those of a call with whole grids, up to rounding.

        Args:
            ids: int32 `[N]`, the symbols at the position before. They do not matter at
                the first position.
            state: State that `start` or the call before returned.
            position: Scalar, the position in reading order.
            constants: What `step_constants` returned.

        Returns:
            A tuple `(logits, state)`: logits `[N, num_symbols]`, and the state for the
            next position.
        """
        (caches, before), (positions, table, kernels) = state, constants
        slots, reach = self.grid[2], self._context.reach
        slot = position % slots
        row = ids + (position - 1) % slots * self.num_symbols
        # There is no symbol before the first position.
        row = ops.where(position == 0, self._outside(), row)
        before = ops.concatenate(
            [before[:, 1:reach], row[:, None], before[:, reach:]], axis=1
        )
        seen = ops.take(self._context.places, slot, axis=0)
        vectors = ops.take(table, ops.take(before, seen, axis=1), axis=0)
        x = self._context.step(kernels, vectors, slot)[:, None] + positions[position]
        x, caches = self.transformer.step(x, caches)
        kernel = ops.cast(self.kernel[slot], self.compute_dtype)
        bias = ops.cast(self.bias[slot], self.compute_dtype)
        logits = at_least_float32(ops.matmul(x[:, 0], kernel) + bias)
        return logits, (caches, before)

    # Sampling.

    def sample(
        self,
        count: int,
        seed: ArrayLike,
        temperature: float = 1.0,
        prefix: ArrayLike | None = None,
    ) -> tf.Tensor:
        """Draws grids, symbol by symbol, with cached keys and values.

        Args:
            count: Number of grids.
            seed: Two integers, or int32 `[count, 2]` with one seed per grid. A grid
                with its own seed does not depend on the others.
            temperature: Temperature of sampling. Values below 1 give more probable
                grids; 0 takes the most probable symbol at each position.
            prefix: Integers `[count, P]`, the first P symbols of each grid in reading
                order, for example the upper half of an image. None for grids without
                given symbols.

        Returns:
            int32 `[count, rows, columns, slots]`.
        """
        if not self.built:
            self.build()
        constants = self.step_constants()

        def step(ids, state, position):
            logits, state = self.step(ids, state, position, constants)
            if prefix is not None:
                place = ops.minimum(position, prefix.shape[1] - 1)
                given = ops.one_hot(prefix[:, place], self.num_symbols) * 1e9
                given = ops.cast(given, logits.dtype)
                logits = ops.where(position < prefix.shape[1], given, logits)
            return logits, state

        if prefix is not None:
            prefix = self._check_prefix(prefix, count)
        ids = decoding.sample_search(
            step,
            self.start(count),
            count,
            start_id=0,
            end_id=None,
            max_length=self.length,
            temperature=temperature,
            seed=seed,
        )
        return tf.reshape(ids, (count, *self.grid))

    def _check_prefix(self, prefix, count):
        """Returns `prefix` as int32, or None if it is empty."""
        prefix = ops.cast(prefix, "int32")
        shape = prefix.shape
        if len(shape) != 2 or shape[0] not in (count, None) or shape[1] > self.length:
            raise ValueError(
                f"`prefix` must have shape ({count}, P) with P up to {self.length}, "
                f"received {tuple(shape)}. Pass the first symbols of each grid in "
                f"reading order."
            )
        if tf.executing_eagerly() and len(prefix) and shape[1]:
            low, high = int(ops.min(prefix)), int(ops.max(prefix))
            if low < 0 or high >= self.num_symbols:
                raise ValueError(
                    f"Symbols must be from 0 to {self.num_symbols - 1}, those in "
                    f"`prefix` are from {low} to {high}."
                )
        return prefix if shape[1] else None

    # Export.

    def export(self, filepath: str | os.PathLike) -> None:
        """Writes a SavedModel that TensorFlow Serving loads as it is.

        Its signatures, with any number of grids B; the symbols go by the name that they
        have in the inputs of the model:

        - `serving_default`: symbols [B, rows, columns, slots] to `logits` [B, rows,
          columns, slots, num_symbols];
        - `sample`: `seed`, int32 [B, 2], to the symbols of B grids.

        Args:
            filepath: Folder to write to. TensorFlow Serving expects its name to be a
                version number, such as `models/prior/1`.
        """
        if not self.built:
            self.build()
        name = self.input_name

        def serve(symbols):
            # A symbol that does not exist fails no other row.
            symbols = ops.clip(symbols, 0, self.num_symbols - 1)
            return {"logits": self({name: symbols})}

        def sample(seed):
            return {name: self.sample(ops.shape(seed)[0], seed)}

        symbols = tf.TensorSpec([None, *self.grid], self.symbol_dtype, name=name)
        seed = tf.TensorSpec([None, 2], "int32", name="seed")
        self._export(
            filepath, {"serve": (serve, [symbols]), "sample": (sample, [seed])}
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "hidden_dim": self.hidden_dim,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "block_length": self.block_length,
            "dropout": self.dropout,
            "vector_dim": self.vector_dim,
            "context": self.context,
        }
