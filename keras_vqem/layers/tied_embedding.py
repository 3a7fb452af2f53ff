"""TiedEmbedding: one matrix for the tokens that come in and the logits that go out."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vqem")
class TiedEmbedding(keras.layers.Layer):
    """Embeds ids, times the root of the width; its transpose gives logits.

    Args:
        vocabulary_size: Number of ids.
        hidden_dim: Size of the vectors.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Ids [B, T]; or with `reverse=True` vectors [..., width].

    Example:

    >>> layer = keras_vqem.layers.TiedEmbedding(vocabulary_size=10, hidden_dim=4)
    >>> vectors = layer(np.array([[1, 2, 3]]))
    >>> layer(vectors, reverse=True).shape
    TensorShape([1, 3, 10])
    """

    def __init__(self, vocabulary_size, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.supports_masking = True

    def build(self, input_shape=None):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocabulary_size, self.hidden_dim),
            initializer=keras.initializers.RandomNormal(stddev=self.hidden_dim**-0.5),
        )
        self.built = True

    def call(self, inputs, reverse=False):
        embeddings = ops.convert_to_tensor(self.embeddings, dtype=self.compute_dtype)
        if reverse:
            return ops.matmul(inputs, ops.transpose(embeddings))
        return ops.take(embeddings, inputs, axis=0) * self.hidden_dim**0.5

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
        }
