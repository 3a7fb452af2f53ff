"""What a position of a `GridModel` sees directly, before any attention."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops


class PreviousSymbol:
    """The symbol before the position alone: the plain form of the paper.

    All else comes through attention.

    Args:
        model: The `GridModel`.
    """

    # `reach` is the number of symbols that a step of `GridModel.sample` remembers.
    # `places` says which of them it needs, [slots, number]. Place `reach`, after all
    # remembered symbols, stands for symbols that are not known yet.
    reach = 1

    def __init__(self, model: Any):
        self.model = model
        self.places = np.zeros((model.grid[2], 1), "int32")

    def build(self, add: Callable) -> None:
        """Adds weights by `add(name, *shape, size)`."""
        size = self.model.vector_dim
        self.kernel = add("previous", size, self.model.hidden_dim, size=size**-0.5)

    def kernels(self) -> tuple[tf.Tensor, ...]:
        """Returns what all steps of a sample share, to be computed once."""
        return (ops.cast(self.kernel, self.model.compute_dtype),)

    def whole(self, vectors: tf.Tensor) -> tf.Tensor:
        """Embeds whole grids.

        Args:
            vectors: Vectors of all symbols, `[B, cells, slots * vector_dim]`.

        Returns:
            `[B, length, hidden_dim]`.
        """
        model = self.model
        vectors = ops.reshape(vectors, (-1, model.length, model.vector_dim))
        before = ops.pad(vectors, [[0, 0], [1, 0], [0, 0]])[:, : model.length]
        return ops.matmul(before, self.kernels()[0])

    def step(
        self, kernels: tuple[tf.Tensor, ...], vectors: tf.Tensor, slot: tf.Tensor
    ) -> tf.Tensor:
        """Embeds one position.

        Args:
            kernels: What `kernels` returned.
            vectors: Vectors at the `places` of the slot, `[B, number, vector_dim]`.
            slot: Scalar, the slot of the position.

        Returns:
            `[B, hidden_dim]`.
        """
        return ops.matmul(vectors[:, 0], kernels[0])


class NeighbourCells(PreviousSymbol):
    """Symbols before the position in its cell, and all of the cells around it.

    These are the cell to the left, and the left, middle and right ones in the row
    above.

    Args:
        model: The `GridModel`.
    """

    def __init__(self, model: Any):
        self.model = model
        _, columns, slots = model.grid
        # Distance in cells to the left neighbour, and to the right, middle and left
        # neighbours in the row above. At the sides of the grid these are other cells,
        # which does no harm. In narrow grids some coincide, or are the cell itself.
        self.cells_back = sorted({1, columns - 1, columns, columns + 1} - {0})
        self.reach = (max(self.cells_back) + 1) * slots - 1
        places = []
        for slot in range(slots):
            first = self.reach - slot
            cells = [
                first - back * slots + np.arange(slots) for back in self.cells_back
            ]
            cells.append(np.minimum(first + np.arange(slots), self.reach))
            places.append(np.concatenate(cells))
        self.places = np.stack(places).astype("int32")

    def build(self, add: Callable) -> None:
        """Adds weights by `add(name, *shape, size)`."""
        slots, hidden_dim = self.model.grid[2], self.model.hidden_dim
        cell = slots * self.model.vector_dim
        # From the vector of each slot to all slots of the cell. Only those to later
        # slots are used.
        self.own = add("own", cell, slots, hidden_dim, size=cell**-0.5)
        size = len(self.cells_back) * cell
        self.neighbours = add("neighbours", size, hidden_dim, size=size**-0.5)

    def kernels(self) -> tuple[tf.Tensor, ...]:
        """Kernels from slots to later slots of the cell, and from the cells around."""
        slots, dtype = self.model.grid[2], self.model.compute_dtype
        later = np.triu(np.ones((slots, slots), "float32"), 1)
        later = later.repeat(self.model.vector_dim, axis=0)
        own = ops.cast(self.own * later[..., None], dtype)
        return own, ops.cast(self.neighbours, dtype)

    def whole(self, vectors: tf.Tensor) -> tf.Tensor:
        """Embeds whole grids; see `PreviousSymbol`."""
        own, neighbours = self.kernels()
        cells = vectors.shape[1]
        before = [
            ops.pad(vectors, [[0, 0], [back, 0], [0, 0]])[:, :cells]
            for back in self.cells_back
        ]
        around = ops.matmul(ops.concatenate(before, axis=-1), neighbours)
        x = ops.einsum("bcv,vsw->bcsw", vectors, own) + around[:, :, None]
        return ops.reshape(x, (-1, self.model.length, self.model.hidden_dim))

    def step(
        self, kernels: tuple[tf.Tensor, ...], vectors: tf.Tensor, slot: tf.Tensor
    ) -> tf.Tensor:
        """Embeds one position; see `PreviousSymbol`."""
        own, neighbours = kernels
        split = vectors.shape[1] - self.model.grid[2]
        around, mine = (
            ops.reshape(part, (-1, part.shape[1] * part.shape[2]))
            for part in (vectors[:, :split], vectors[:, split:])
        )
        x = ops.matmul(around, neighbours)
        return x + ops.matmul(mine, ops.take(own, slot, axis=1))


CONTEXTS = {"neighbours": NeighbourCells, "previous": PreviousSymbol}


def get(name: str, model: Any) -> PreviousSymbol:
    """Returns the context of a name, for a model."""
    if name not in CONTEXTS:
        raise ValueError(
            f"`context` must be one of {', '.join(map(repr, CONTEXTS))}, received "
            f"{name!r}."
        )
    return CONTEXTS[name](model)
