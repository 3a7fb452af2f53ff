"""Groupings: ways to cut a vector into pieces with one code each.

A bottleneck has rows `[N, D]`. A grouping turns them into pieces `[C, M, d]`: `C`
codebooks, each with the `M` pieces that it codes. Everything between `split` and
`merge` is then the same whether a vector has one code or ten.
"""

import numbers
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number


class Whole:
    """One code for the whole vector, the default of the paper."""

    num_groups = 1
    num_codebooks = 1
    # Shape of the codes of one vector: () for a single code, (G,) for G codes.
    code_shape = ()
    # Whether `split` and `merge` learn by gradient.
    learned = False

    def build(self, layer: keras.layers.Layer, dim: int) -> int:
        """Creates the weights that the grouping needs.

        Args:
            layer: Layer that owns the weights.
            dim: Size of the vectors, `D`.

        Returns:
            The size of a piece, `d`.
        """
        return dim

    def split(self, rows: tf.Tensor) -> tf.Tensor:
        """Turns vectors `[N, D]` into pieces `[C, M, d]`."""
        # Not rows[None], whose gradient is a copy.
        return ops.expand_dims(rows, 0)

    def merge(self, pieces: tf.Tensor) -> tf.Tensor:
        """Turns pieces `[C, M, d]` back into vectors `[N, D]`."""
        return ops.squeeze(pieces, 0)

    def split_rows(self, values: tf.Tensor) -> tf.Tensor:
        """Turns one value per vector, `[N]`, into one per piece, `[C, M]`."""
        return values[None]

    def split_codes(self, codes: ArrayLike) -> tf.Tensor:
        """Turns codes `[N]` or `[N, G]` into `[C, M]`."""
        return codes[None]

    def merge_codes(self, codes: ArrayLike) -> tf.Tensor:
        """Turns codes `[C, M, ...]` into `[N, ...]` or `[N, G, ...]`."""
        return codes[0]


class _Groups(Whole):
    def __init__(self, num_groups: int):
        self.num_groups = whole_number("num_groups", num_groups, 1)
        self.code_shape = (self.num_groups,)

    def build(self, layer: keras.layers.Layer, dim: int) -> int:
        if dim % self.num_groups:
            raise ValueError(
                f"{type(self).__name__}({self.num_groups}) cannot cut vectors of size "
                f"{dim} into equal pieces. Choose a number of groups that divides "
                f"{dim}, or put a Dense layer before the bottleneck whose number of "
                f"units is a multiple of {self.num_groups}."
            )
        self._dim = dim // self.num_groups
        return self._dim

    def _cut(self, rows):
        return ops.reshape(rows, (-1, self.num_groups, self._dim))

    def get_config(self) -> dict[str, Any]:
        return {"num_groups": self.num_groups}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "_Groups":
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_vqem")
class Slices(_Groups):
    """Product quantization: several codes per vector, each with its own codebook.

    A vector is cut into contiguous slices of equal size, and each slice gets a code.

    Args:
        num_groups: Number of slices. It must divide the size of the vectors.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(64, groups=keras_vqem.layers.Slices(4))
    >>> layer.encode(np.zeros((2, 5, 32), "float32")).shape
    TensorShape([2, 5, 4])
    """

    @property
    def num_codebooks(self) -> int:
        return self.num_groups

    def split(self, rows: tf.Tensor) -> tf.Tensor:
        return ops.transpose(self._cut(rows), (1, 0, 2))

    def merge(self, pieces: tf.Tensor) -> tf.Tensor:
        size = self.num_groups * self._dim
        return ops.reshape(ops.transpose(pieces, (1, 0, 2)), (-1, size))

    def split_rows(self, values: tf.Tensor) -> tf.Tensor:
        return ops.tile(values[None], (self.num_groups, 1))

    # Transposed by hand: for `ops.transpose` of integers, TensorFlow logs an error
    # about oneDNN on any CPU, although nothing is wrong.
    def split_codes(self, codes: ArrayLike) -> tf.Tensor:
        return ops.stack(ops.unstack(codes, self.num_groups, axis=1))

    def merge_codes(self, codes: ArrayLike) -> tf.Tensor:
        return ops.stack(ops.unstack(codes, self.num_groups), axis=1)


@keras.saving.register_keras_serializable(package="keras_vqem")
class SharedSlices(_Groups):
    """Several codes per vector that share one codebook.

    A vector is cut into contiguous slices of equal size, and each slice gets a code.
    The CIFAR-10 model of the paper has ten codes at each of 8 x 8 positions, all from
    one codebook: vectors of size `10 d`, `SharedSlices(10)`, and a codebook `[K, d]`.

    Args:
        num_groups: Number of slices. It must divide the size of the vectors.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     256, groups=keras_vqem.layers.SharedSlices(10))
    >>> layer.encode(np.zeros((1, 8, 8, 40), "float32")).shape
    TensorShape([1, 8, 8, 10])
    >>> layer.codebook.shape
    TensorShape([1, 256, 4])
    """

    def split(self, rows: tf.Tensor) -> tf.Tensor:
        return ops.reshape(rows, (1, -1, self._dim))

    def merge(self, pieces: tf.Tensor) -> tf.Tensor:
        return ops.reshape(pieces, (-1, self.num_groups * self._dim))

    def split_rows(self, values: tf.Tensor) -> tf.Tensor:
        return ops.repeat(values, self.num_groups)[None]

    def split_codes(self, codes: ArrayLike) -> tf.Tensor:
        return ops.reshape(codes, (1, -1))

    def merge_codes(self, codes: ArrayLike) -> tf.Tensor:
        return ops.reshape(codes, (-1, self.num_groups, *codes.shape[2:]))


class ProjectedSlices(Slices):
    """Base class of the groupings whose pieces are projections of a vector.

    Args:
        num_groups: Number of projections, and of codes per vector. None for a single
            code per vector: codes then have the shape `[...]` instead of `[..., 1]`.
        dim: Size of each projection. None for the size of the vectors divided by the
            number of projections.
        seed: Integer seed of the first values of the weights.
    """

    def __init__(
        self, num_groups: int | None = None, dim: int | None = None, seed: int = 0
    ):
        super().__init__(1 if num_groups is None else num_groups)
        if num_groups is None:
            self.code_shape = ()
        self.dim = None if dim is None else whole_number("dim", dim, 1)
        self.seed = seed

    def build(self, layer: keras.layers.Layer, dim: int) -> int:
        self._dim = super().build(layer, dim) if self.dim is None else self.dim
        return self._dim

    def split_codes(self, codes: ArrayLike) -> tf.Tensor:
        return super().split_codes(codes) if self.code_shape else codes[None]

    def merge_codes(self, codes: ArrayLike) -> tf.Tensor:
        return super().merge_codes(codes) if self.code_shape else codes[0]

    def get_config(self) -> dict[str, Any]:
        num_groups = self.num_groups if self.code_shape else None
        return {"num_groups": num_groups, "dim": self.dim, "seed": self.seed}


@keras.saving.register_keras_serializable(package="keras_vqem")
class Projections(ProjectedSlices):
    """Product quantization of random projections, each with its own codebook.

    The projections are the columns of one random orthonormal frame, which is a
    non-trainable weight. Its transpose turns quantized projections back into vectors of
    the size of the inputs. If `num_groups * dim` equals that size, the frame is a
    rotation that spreads the information evenly over the slices. If it is smaller, the
    part of the vectors outside the frame is dropped.

    Args:
        num_groups: Number of projections, and of codes per vector. None for a single
            code per vector: codes then have the shape `[...]` instead of `[..., 1]`.
        dim: Size of each projection. None for the size of the vectors divided by the
            number of projections.
        seed: Integer seed of the frame.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     64, groups=keras_vqem.layers.Projections(4, dim=2))
    >>> layer(np.ones((2, 5, 32), "float32"))["quantized"].shape
    TensorShape([2, 5, 32])
    """

    def build(self, layer: keras.layers.Layer, dim: int) -> int:
        size = self.num_groups * super().build(layer, dim)
        if size > dim:
            raise ValueError(
                f"Projections({self.num_groups}, dim={self._dim}) needs {size} "
                f"orthonormal directions, but the vectors have size {dim}. Choose "
                f"num_groups * dim <= {dim}."
            )
        self._frame = layer.add_weight(
            name="projection",
            shape=(dim, size),
            initializer=keras.initializers.Orthogonal(seed=self.seed),
            dtype="float32",
            trainable=False,
            autocast=False,
        )
        return self._dim

    def split(self, rows: tf.Tensor) -> tf.Tensor:
        return super().split(ops.matmul(rows, self._frame))

    def merge(self, pieces: tf.Tensor) -> tf.Tensor:
        return ops.matmul(super().merge(pieces), ops.transpose(self._frame))


def serialize(groups: Whole) -> dict[str, Any] | None:
    """Returns a grouping as a value for `get_config`, which `get` accepts.

    Args:
        groups: Grouping of a layer.

    Returns:
        The serialized grouping, or None for `Whole`.
    """
    if isinstance(groups, _Groups):
        return keras.saving.serialize_keras_object(groups)
    return None


def get(groups: int | Whole | dict[str, Any] | None) -> Whole:
    """Returns a new grouping that the caller may build.

    Args:
        groups: None for one code per vector, a number of slices, a grouping to copy, or
            a serialized grouping.

    Returns:
        A grouping that no other layer has.
    """
    if groups is None:
        return Whole()
    if isinstance(groups, dict):
        return keras.saving.deserialize_keras_object(groups)
    if isinstance(groups, numbers.Real):
        return Slices(groups)
    if isinstance(groups, _Groups):
        # Copied, because the weights of projections belong to one layer.
        return type(groups).from_config(groups.get_config())
    raise ValueError(
        f"`groups` must be None for one code per vector, an integer number of slices, "
        f"or one of Slices, SharedSlices, Projections and LearnedProjections from "
        f"keras_vqem.layers, for example Slices(4). Received {groups!r}."
    )
