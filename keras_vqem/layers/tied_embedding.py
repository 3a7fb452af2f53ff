"""TiedEmbedding: one matrix for the tokens that come in and the logits that go out."""

import keras


@keras.saving.register_keras_serializable(package="keras_vqem")
class TiedEmbedding(keras.layers.ReversibleEmbedding):
    """Embeds ids, times the root of the width; its transpose gives logits.

    `keras.layers.ReversibleEmbedding` with the scale of the Transformer paper, which
    that layer leaves to each of its callers.

    Args:
        input_dim: Number of ids.
        output_dim: Size of the vectors.
        embeddings_initializer: A Keras initializer. By default normal, with a standard
            deviation of `output_dim ** -0.5`.
        **kwargs: Arguments of `keras.layers.ReversibleEmbedding`.

    Call arguments:
        inputs: Ids [B, T]; or with `reverse=True` vectors [..., output_dim].

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
        **kwargs,
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
        # Keras keeps the matrix in float32 inside a model of half precision.
        self.reverse_dtype = self.reverse_dtype or self.compute_dtype

    def call(self, inputs, reverse: bool = False):
        outputs = super().call(inputs, reverse=reverse)
        return outputs if reverse else outputs * self.output_dim**0.5
