"""How a vector is cut into the pieces that get a code each.

A bottleneck sees `[N, D]` rows. A grouping turns them into `[C, M, d]` pieces: `C`
codebooks, each with the `M` pieces it codes. Everything between `split` and `merge`
is then the same whether a vector has one code or ten.
"""

import numbers

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number


class Whole:
    """One code for the whole vector: the paper's default."""

    num_groups = 1
    num_codebooks = 1
    # Shape of one position's codes: () for a bare integer, (G,) for G of them.
    code_shape = ()

    def build(self, layer, dim):
        """Creates what the grouping needs on `layer`; returns the piece size `d`."""
        return dim

    def split(self, rows: tf.Tensor) -> tf.Tensor:
        """[N, D] vectors to [C, M, d] pieces."""
        return rows[None]

    def merge(self, pieces: tf.Tensor) -> tf.Tensor:
        """[C, M, d] pieces back to [N, D] vectors."""
        return pieces[0]

    def split_rows(self, values: tf.Tensor) -> tf.Tensor:
        """[N] values, one a vector, to [C, M], one a piece."""
        return values[None]

    def split_codes(self, codes: ArrayLike) -> tf.Tensor:
        """[N] or [N, G] codes to [C, M]."""
        return codes[None]

    def merge_codes(self, codes: ArrayLike) -> tf.Tensor:
        """[C, M, ...] integers to [N, ...] or [N, G, ...]."""
        return codes[0]


class _Groups(Whole):
    def __init__(self, num_groups: int):
        self.num_groups = whole_number("num_groups", num_groups, 1)
        self.code_shape = (self.num_groups,)

    def build(self, layer, dim):
        if dim % self.num_groups:
            raise ValueError(
                f"{type(self).__name__}({self.num_groups}) cannot cut vectors of size "
                f"{dim} into equal parts. Choose a number of groups that divides "
                f"{dim}, or put a Dense layer of a fitting width before the bottleneck."
            )
        self._dim = dim // self.num_groups
        return self._dim

    def _cut(self, rows):
        return ops.reshape(rows, (-1, self.num_groups, self._dim))

    def get_config(self):
        return {"num_groups": self.num_groups}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_vqem")
class Slices(_Groups):
    """Product quantization: contiguous slices, each with a codebook of its own.

    Args:
        num_groups: How many slices. Must divide the size of the vectors.

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

    # Transposed by hand: at `ops.transpose` of integers TensorFlow logs an error about
    # oneDNN, on any CPU, though none has happened.
    def split_codes(self, codes: ArrayLike) -> tf.Tensor:
        return ops.stack(ops.unstack(codes, self.num_groups, axis=1))

    def merge_codes(self, codes: ArrayLike) -> tf.Tensor:
        return ops.stack(ops.unstack(codes, self.num_groups), axis=1)


@keras.saving.register_keras_serializable(package="keras_vqem")
class SharedSlices(_Groups):
    """Several codes per position that share one codebook.

    The CIFAR-10 model of the paper has ten codes at each of 8 x 8 positions, all from
    one codebook: vectors of size 10 d, `SharedSlices(10)`, a codebook of `[K, d]`.

    Args:
        num_groups: How many codes per position. Must divide the size of the vectors.

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


@keras.saving.register_keras_serializable(package="keras_vqem")
class Projections(Slices):
    """Product quantization over fixed random projections, a codebook for each.

    The projections are the columns of one random orthonormal frame, kept as a
    non-trainable weight. Its transpose leads back, so quantized vectors have the size
    of the inputs; with `num_groups * dim` equal to that size it is a plain rotation
    that spreads the information evenly before slicing, otherwise what lies outside
    the frame is dropped.

    Args:
        num_groups: How many projections.
        dim: Size of each. Defaults to the size of the vectors over `num_groups`.
        seed: Seed of the frame.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     64, groups=keras_vqem.layers.Projections(4, dim=2))
    >>> layer(np.ones((2, 5, 32), "float32"))["quantized"].shape
    TensorShape([2, 5, 32])
    """

    def __init__(self, num_groups: int, dim: int | None = None, seed: int = 0):
        super().__init__(num_groups)
        self.dim = None if dim is None else whole_number("dim", dim, 1)
        self.seed = seed

    def build(self, layer, dim):
        self._dim = super().build(layer, dim) if self.dim is None else self.dim
        size = self.num_groups * self._dim
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

    def get_config(self):
        return {**super().get_config(), "dim": self.dim, "seed": self.seed}


def serialize(groups):
    """For `get_config`; `get` takes it back."""
    if groups.code_shape:
        return keras.saving.serialize_keras_object(groups)
    return None


def get(groups):
    """A grouping of the caller's own from None, a number of slices, or a grouping."""
    if groups is None:
        return Whole()
    if isinstance(groups, dict):
        return keras.saving.deserialize_keras_object(groups)
    if isinstance(groups, numbers.Real):
        return Slices(groups)
    if isinstance(groups, _Groups):
        # Cloned, since a projection's frame belongs to one layer.
        return type(groups).from_config(groups.get_config())
    raise ValueError(
        f"`groups` must be None, a number of slices, or one of Slices, SharedSlices "
        f"and Projections from keras_vqem.layers; received {groups!r}."
    )
