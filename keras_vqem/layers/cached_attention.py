"""CachedAttention: multi-head attention whose keys and values can be kept."""

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

# Of a score: far below all others, and finite in float16 too, to which Keras casts what
# layers are called with. A row that is all padding then attends evenly, without NaN.
NEVER = -3e4


def padding_bias(mask):
    """[B, 1, 1, T] to add to attention scores: large and negative where padded.

    Args:
        mask: Booleans [B, T], True for positions that may be seen; or None.
    """
    if mask is None:
        return None
    return ops.where(mask, 0.0, NEVER)[:, None, None, :]


def causal_bias(length):
    """[1, 1, T, T] to add to attention scores: no position sees those after it."""
    places = ops.arange(length)
    return ops.where(places[:, None] >= places[None, :], 0.0, NEVER)[None, None]


@keras.saving.register_keras_serializable(package="keras_vqem")
class CachedAttention(keras.layers.Layer):
    """Scaled dot-product attention with several heads, in steps that can be cached.

    `layer(query, memory)` is ordinary attention, `layer(query)` self-attention. A
    decoder that runs token by token calls its parts: `keys_values(memory)` once for
    what does not change, or once for every new token with the results concatenated;
    `split` brings them to the layout that `attend` uses.

    Args:
        num_heads: How many; they share the width between them.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        query: [B, T, D].
        memory: [B, S, D], what is attended to; None for self-attention.
        bias: Added to the scores, of a shape that broadcasts to [B, heads, T, S].

    Example:

    >>> layer = keras_vqem.layers.CachedAttention(num_heads=2)
    >>> x = np.random.default_rng(0).normal(size=(1, 3, 8)).astype("float32")
    >>> whole = layer(x, x)
    >>> kept = layer.keys_values(x)
    >>> last = layer.attend(x[:, 2:], *layer.split(kept))
    >>> bool(np.allclose(whole[:, 2:], last, atol=1e-6))
    True
    """

    def __init__(self, num_heads: int, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.supports_masking = True

    def build(self, query_shape):
        width = query_shape[-1]
        if self.num_heads < 1 or width % self.num_heads:
            raise ValueError(
                f"The width must be a multiple of `num_heads`: received width {width} "
                f"and {self.num_heads} heads. Choose a number of heads that divides it."
            )

        def dense(name, units):
            layer = keras.layers.Dense(
                units, use_bias=False, name=name, dtype=self.dtype_policy
            )
            layer.build((None, None, width))
            return layer

        self.to_query = dense("to_query", width)
        self.to_keys_values = dense("to_keys_values", 2 * width)
        self.to_output = dense("to_output", width)
        self.built = True

    def _by_head(self, x):
        batch, length, width = ops.shape(x)
        x = ops.reshape(x, (batch, length, self.num_heads, width // self.num_heads))
        return ops.transpose(x, (0, 2, 1, 3))

    def keys_values(self, memory: ArrayLike) -> tf.Tensor:
        """[B, S, 2 D]: what there is to keep of `memory` [B, S, D]."""
        return self.to_keys_values(memory)

    def split(self, keys_values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Keys and values, each [B, heads, S, D / heads]."""
        keys, values = ops.split(keys_values, 2, axis=-1)
        return self._by_head(keys), self._by_head(values)

    def extend(self, cache: tf.Tensor, keys_values: tf.Tensor) -> tf.Tensor:
        """What is kept of the positions so far [B, t, 2 D], and of those to come."""
        return ops.concatenate([cache, keys_values], axis=1)

    def attend(
        self,
        query: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        bias: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """[B, T, D]: for each of `query` [B, T, D] the mean of what it attends to."""
        batch, length, width = ops.shape(query)
        scale = (width // self.num_heads) ** -0.5
        query = self._by_head(self.to_query(query) * scale)
        scores = ops.matmul(query, ops.transpose(keys, (0, 1, 3, 2)))
        scores = ops.cast(scores, "float32")
        if bias is not None:
            scores = scores + ops.cast(bias, "float32")
        # Not ops.softmax, which warns where there is one position to attend to.
        weights = ops.cast(tf.nn.softmax(scores, axis=-1), values.dtype)
        found = ops.matmul(weights, values)
        found = ops.transpose(found, (0, 2, 1, 3))
        return self.to_output(ops.reshape(found, (batch, length, width)))

    def call(self, query, memory=None, bias=None):
        memory = query if memory is None else memory
        keys, values = self.split(self.keys_values(memory))
        return self.attend(query, keys, values, bias)

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads}
