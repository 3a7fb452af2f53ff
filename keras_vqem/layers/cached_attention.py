"""CachedAttention: multi-head attention whose keys and values can be cached."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers.row_dense import RowDense, flat_rows

# Added to the score of a position that may not be attended to. It is far below all real
# scores, but finite in float16 as well, because Keras casts the arguments of layers to
# the compute dtype. A row of padding then attends evenly, without NaN.
NEVER = -3e4


def at_least_float32(x: tf.Tensor) -> tf.Tensor:
    """Returns a tensor as float32 if it is in half precision, and as it is otherwise.

    Args:
        x: Tensor of floats.
    """
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))


def padding_bias(mask: ArrayLike | None) -> tf.Tensor | None:
    """Returns a bias for attention scores that hides padding.

    Args:
        mask: Booleans `[B, T]`, False for padding. None if there is no padding.

    Returns:
        Float32 `[B, 1, 1, T]`: 0, and large and negative for padding. None if `mask` is
        None.
    """
    if mask is None:
        return None
    return ops.where(mask, 0.0, NEVER)[:, None, None, :]


def causal_bias(length: int | tf.Tensor) -> tf.Tensor:
    """Returns a bias for attention scores that hides all later positions.

    Args:
        length: Length `T` of the sequence.

    Returns:
        Float32 `[1, 1, T, T]`.
    """
    places = ops.arange(length)
    return ops.where(places[:, None] >= places[None, :], 0.0, NEVER)[None, None]


@keras.saving.register_keras_serializable(package="keras_vqem")
class CachedAttention(keras.layers.Layer):
    """Scaled dot-product attention with several heads and cacheable keys and values.

    `layer(query, memory)` is ordinary attention, and `layer(query)` is self-attention.
    A decoder that runs token by token calls the parts instead. It calls
    `keys_values(memory)` once for a memory that does not change, and `attend` for each
    token. For self-attention, it calls `keys_values` on each new token and appends the
    result to its cache with `extend`.

    Args:
        num_heads: Number of attention heads. It must divide `D`, the size of the
            vectors; each head has size `D / num_heads`.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        query: Query vectors `[B, T, D]`.
        memory: Vectors to attend to, `[B, S, D]`. None for self-attention.
        bias: Bias to add to the attention scores, of a shape that broadcasts to
            `[B, num_heads, T, S]`. None for no bias.

    Returns:
        Vectors `[B, T, D]`.

    Example:

    >>> layer = keras_vqem.layers.CachedAttention(num_heads=2)
    >>> x = np.random.default_rng(0).normal(size=(1, 3, 8)).astype("float32")
    >>> whole = layer(x, x)
    >>> last = layer.attend(x[:, 2:], *layer.keys_values(x))
    >>> bool(np.allclose(whole[:, 2:], last, atol=1e-6))
    True
    """

    def __init__(self, num_heads: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.supports_masking = True

    def build(self, query_shape: tuple[int | None, ...]) -> None:
        width = query_shape[-1]
        if self.num_heads < 1 or width % self.num_heads:
            raise ValueError(
                f"The size of the vectors must be a multiple of `num_heads`: received "
                f"vectors of size {width} and num_heads={self.num_heads}. Choose a "
                f"number of heads that divides {width}."
            )

        def dense(name, units):
            layer = RowDense(units, use_bias=False, name=name, dtype=self.dtype_policy)
            layer.build((None, None, width))
            return layer

        self.to_query = dense("to_query", width)
        self.to_keys_values = dense("to_keys_values", 2 * width)
        self.to_output = dense("to_output", width)
        self._head_dim = width // self.num_heads
        self.built = True

    def _by_head(self, rows, batch, length, parts=1):
        """Splits rows [B T, parts D], each part [B, num_heads, T, D / num_heads]."""
        heads = (self.num_heads, self._head_dim)
        if isinstance(length, int) and length == 1:  # Nothing changes places.
            shape = (batch, self.num_heads, 1, self._head_dim)
            return [ops.reshape(x, shape) for x in ops.split(rows, parts, axis=-1)]
        x = ops.reshape(rows, (batch, length, parts, *heads))
        return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), parts)

    def keys_values(self, memory: ArrayLike) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes keys and values, in the layout to cache and to attend to.

        Args:
            memory: Vectors `[B, S, D]`.

        Returns:
            A tuple `(keys, values)`, each `[B, num_heads, S, D / num_heads]`.
        """
        shape = ops.shape(memory)[:2]
        rows = self.to_keys_values(flat_rows(memory))
        return tuple(self._by_head(rows, *shape, parts=2))

    def extend(
        self,
        cache: tuple[tf.Tensor, tf.Tensor],
        keys_values: tuple[tf.Tensor, tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Appends the keys and values of new positions to a cache.

        Args:
            cache: Keys and values of the positions so far, each
                `[B, num_heads, t, D / num_heads]`.
            keys_values: Keys and values of the new positions, from `keys_values`.

        Returns:
            The new cache, a tuple of the same layout.
        """
        return tuple(
            ops.concatenate(pair, axis=2)
            for pair in zip(cache, keys_values, strict=True)
        )

    def replace(
        self,
        cache: tuple[tf.Tensor, tf.Tensor],
        keys_values: tuple[tf.Tensor, tf.Tensor],
        position: int | tf.Tensor,
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        """Writes the keys and values of a position into a cache of fixed length.

        Args:
            cache: Keys and values, each `[B, num_heads, L, D / num_heads]`.
            keys_values: Keys and values of one position, from `keys_values`.
            position: Place of the position, from 0 to L - 1.

        Returns:
            A tuple of the new cache, and of a bias `[L]` that hides later places.
        """
        places = ops.arange(ops.shape(cache[0])[2])
        here = (places == position)[:, None]
        cache = tuple(
            ops.where(here, new, old)
            for new, old in zip(keys_values, cache, strict=True)
        )
        return cache, ops.where(places <= position, 0.0, NEVER)

    def attend(
        self,
        query: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Attends to keys and values that were computed before.

        Args:
            query: Query vectors `[B, T, D]`.
            keys: Keys from `keys_values`, `[B, num_heads, S, D / num_heads]`.
            values: Values from `keys_values`, of the same shape.
            bias: Bias to add to the attention scores, of a shape that broadcasts to
                `[B, num_heads, T, S]`. None for no bias.

        Returns:
            Vectors `[B, T, D]`.
        """
        batch, length, width = ops.shape(query)
        rows = self.to_query(flat_rows(query)) * self._head_dim**-0.5
        [queries] = self._by_head(rows, batch, length)
        # The transpose is an option of the product: nothing is copied.
        scores = tf.matmul(queries, keys, transpose_b=True)
        scores = at_least_float32(scores)
        if bias is not None:
            scores = scores + ops.cast(bias, scores.dtype)
        # Not ops.softmax, which warns if there is only one position to attend to.
        weights = ops.cast(tf.nn.softmax(scores, axis=-1), values.dtype)
        found = ops.matmul(weights, values)
        if not isinstance(length, int) or length != 1:
            found = ops.transpose(found, (0, 2, 1, 3))
        found = self.to_output(ops.reshape(found, (-1, width)))
        return ops.reshape(found, (batch, length, width))

    def call(
        self,
        query: tf.Tensor,
        memory: tf.Tensor | None = None,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        memory = query if memory is None else memory
        return self.attend(query, *self.keys_values(memory), bias)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_heads": self.num_heads}
