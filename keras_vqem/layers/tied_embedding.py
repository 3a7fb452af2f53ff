"""TiedEmbedding: one matrix for both the embeddings and the logits."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.row_dense import flat_rows


@keras.saving.register_keras_serializable(package="keras_vqem")
class TiedEmbedding(keras.layers.ReversibleEmbedding):
    """An embedding that also computes logits, with the transpose of the same matrix.

    It is `keras.layers.ReversibleEmbedding` with the scale of the Transformer paper:
    embeddings are multiplied by `output_dim ** 0.5`, which that layer leaves to its
    callers. Logits are not scaled.

    Args:
        input_dim: Number of ids, the size of the vocabulary.
        output_dim: Size of the embedding vectors.
        embeddings_initializer: Keras initializer of the matrix. None stands for a
            normal distribution with standard deviation `output_dim ** -0.5`.
        **kwargs: Other arguments of `keras.layers.ReversibleEmbedding`.

    Call arguments:
        inputs: Ids `[B, T]`, or vectors `[..., output_dim]` with `reverse=True`.
        reverse: Whether to compute logits from vectors instead of embedding ids.

    Returns:
        Embeddings `[B, T, output_dim]`, or logits `[..., input_dim]` with
        `reverse=True`.

    Example:

    >>> layer = keras_vqem.layers.TiedEmbedding(input_dim=10, output_dim=4)
    >>> vectors = layer(np.array([[1, 2, 3]]))
    >>> layer(vectors, reverse=True).shape
    TensorShape([1, 3, 10])
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: keras.initializers.Initializer | str | None = None,
        **kwargs: Any,
    ):
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(
                stddev=output_dim**-0.5
            )
        super().__init__(
            input_dim,
            output_dim,
            embeddings_initializer=embeddings_initializer,
            **kwargs,
        )
        self.supports_masking = True
        # Without this, logits are float32 in a model of half precision, since Keras
        # keeps the matrix in float32.
        self.reverse_dtype = self.reverse_dtype or self.compute_dtype

    def call(self, inputs: tf.Tensor, reverse: bool = False) -> tf.Tensor:
        if not reverse:
            return super().call(inputs) * self.output_dim**0.5
        if inputs.shape.rank != 3:
            return super().call(inputs, reverse=True)
        rows = self._logits(flat_rows(inputs))
        return ops.reshape(rows, (*ops.shape(inputs)[:2], self.input_dim))

    def _logits(self, rows):
        def many():
            return super(TiedEmbedding, self).call(rows, reverse=True)

        def few():
            matrix = ops.cast(self.embeddings, rows.dtype)
            return tf.transpose(tf.matmul(matrix, rows, transpose_b=True))

        # oneDNN multiplies a few float32 rows by a transposed matrix at a third of its
        # usual speed; the other way round it does not.
        plain = self.tie_weights and self.logit_soft_cap is None
        if not plain or self.reverse_dtype != "float32":
            return many()
        count = ops.shape(rows)[0]
        if isinstance(count, int):
            return few() if 8 <= count < 256 else many()
        return tf.cond((count >= 8) & (count < 256), few, many)
