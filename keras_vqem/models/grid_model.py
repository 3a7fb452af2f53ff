"""GridModel: base class of the autoregressive models of symbols on a grid."""

import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import in_range, integers, whole_number
from keras_vqem.layers import LocalTransformer, ReplicaDropout
from keras_vqem.models import grid_context, grid_endpoints
from keras_vqem.models.grid_sampling import GridSampling
from keras_vqem.models.task_model import TaskModel


class GridModel(GridSampling, TaskModel):
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
        num_classes: Number of classes of grids. Inputs and samples then need `labels`.
            None for grids without classes.
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
        num_classes: int | None = None,
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
        if num_classes is not None:
            remedy = "Use None for grids without classes."
            num_classes = whole_number("num_classes", num_classes, 1, remedy)
        self.num_classes = num_classes
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
        if self.num_classes is not None:
            self.classes = add("classes", self.num_classes, self.hidden_dim)
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

    def _checked_labels(self, labels, count):
        """Returns labels, int32 [count], or None for a model without classes."""
        name, number = type(self).__name__, self.num_classes
        if number is None and labels is not None:
            raise ValueError(
                f"This {name} has no classes, but received `labels`. Leave them out, "
                f"or train one that was made with `num_classes`."
            )
        if number is None:
            return None
        if labels is None:
            raise ValueError(
                f"This {name} has {number} classes and needs `labels`, integers from 0 "
                f"to {number - 1}: one per grid, in the inputs or as an argument."
            )
        labels = in_range("labels", integers("labels", labels, number - 1), number - 1)
        shapes = ([], [tf.get_static_value(count)])
        if not any(labels.shape.is_compatible_with(shape) for shape in shapes):
            raise ValueError(
                f"`labels` must be one integer, or one per grid, {shapes[1][0]} of "
                f"them; received shape {tuple(labels.shape)}."
            )
        return ops.broadcast_to(ops.cast(labels, "int32"), (count,))

    def _class_vectors(self, labels, count):
        """Vectors of the classes [count, 1, hidden_dim], None if there are none."""
        labels = self._checked_labels(labels, count)
        if labels is None:
            return None
        chosen = ops.one_hot(labels, self.num_classes, dtype=self.compute_dtype)
        return ops.matmul(chosen, ops.cast(self.classes, self.compute_dtype))[:, None]

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
        classes = self._class_vectors(inputs.get("labels"), ops.shape(symbols)[0])
        x = x if classes is None else x + classes
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

    # Export.

    def export(
        self,
        filepath: str | os.PathLike,
        temperature: float = 1.0,
        top_p: float | None = None,
    ) -> None:
        """Writes a SavedModel that TensorFlow Serving loads as it is.

        Its signatures, with any number of grids B; the symbols go by the name that they
        have in the inputs of the model:

        - `serving_default`: symbols [B, rows, columns, slots] to `logits` [B, rows,
          columns, slots, num_symbols];
        - `sample`: `seed`, int32 [B, 2], to the symbols of B grids.

        With classes, both also take `labels`, int32 [B].

        Args:
            filepath: Folder to write to. TensorFlow Serving expects its name to be a
                version number, such as `models/prior/1`.
            temperature: Temperature of `sample`.
            top_p: Probability of the most probable symbols from which `sample` draws,
                at each position. None draws from all symbols.
        """
        if not self.built:
            self.build()
        self._export(filepath, grid_endpoints.of_symbols(self, temperature, top_p))

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
