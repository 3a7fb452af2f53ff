"""LatentPredictor: the autoregressive prior over codes."""

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers import ReplicaDropout, TiedEmbedding, TransformerDecoder
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models import stepwise


@keras.saving.register_keras_serializable(package="keras_vqem")
class LatentPredictor(keras.Model):
    """Predicts a sequence of codes one by one, given a memory such as a source.

    The last symbol that it predicts is the end, with the number `num_codes`. Codes
    are few and short-lived beside the words that they stand for, so a shallow
    predictor does: it is the only part of a latent translator that runs step by step.

    Args:
        num_codes: K, the size of the codebook.
        hidden_dim: Of embeddings and hidden states; that of the memory too.
        num_layers: How many Transformer blocks.
        num_heads: Of each attention.
        intermediate_dim: Of the feed-forward layers.
        dropout: After embeddings, attentions and feed-forward layers.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        codes: int32 [B, N]; what stands after a sequence's end does not matter.
        memory: [B, S, D].
        memory_mask: Booleans [B, S], False for padding.

    Returns:
        Logits [B, N + 1, num_codes + 1]: at each position those of the code, or the
        end, given the codes before it.

    Example:

    >>> model = keras_vqem.models.LatentPredictor(
    ...     num_codes=16, hidden_dim=8, num_layers=1, num_heads=2, intermediate_dim=32)
    >>> memory = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    >>> model(np.array([[1, 2, 3], [4, 5, 6]]), memory).shape
    TensorShape([2, 4, 17])
    >>> codes = model.search(memory, max_length=4)
    >>> len(codes)
    2
    """

    def __init__(
        self,
        num_codes: int,
        hidden_dim: int = 512,
        num_layers: int = 2,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_codes = num_codes
        self.supports_masking = True
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        # The end, which no position has before it, also starts the sequence off.
        self.end_code = num_codes
        policy = self.dtype_policy
        self.embedding = TiedEmbedding(
            num_codes + 1, hidden_dim, name="embedding", dtype=policy
        )
        self.embedding_dropout = ReplicaDropout(dropout, dtype=policy)
        self.decoder = TransformerDecoder(
            num_layers,
            num_heads,
            intermediate_dim,
            dropout,
            name="decoder",
            dtype=policy,
        )

    def build(self, codes_shape=None):
        self.embedding.build()
        self.decoder.build((None, None, self.hidden_dim))
        self.built = True

    def call(self, codes, memory, memory_mask=None, training=None):
        before = ops.pad(codes, [[0, 0], [1, 0]], constant_values=self.end_code)
        x = self.embedding(before)
        x = x + position_signal(ops.shape(before)[1], self.hidden_dim, dtype=x.dtype)
        x = self.embedding_dropout(x, training=training)
        x = self.decoder(x, memory, memory_mask=memory_mask, training=training)
        return self.embedding(x, reverse=True)

    def search(
        self,
        memory: ArrayLike,
        memory_mask: ArrayLike | None = None,
        *,
        max_length: int | tf.Tensor,
        min_length: int = 0,
        num_beams: int = 1,
        length_penalty: float = 0.6,
        temperature: float | None = None,
        seed: ArrayLike | None = None,
        all_beams: bool = False,
    ) -> tf.Tensor:
        """Finds codes for a memory: greedily, by beam search, or by sampling.

        Args:
            memory: [B, S, D].
            memory_mask: Booleans [B, S].
            max_length, min_length: Numbers of codes, the end included; the former may
                have a value a row.
            num_beams: 1 for greedy search.
            length_penalty: As in `keras_vqem.decoding.beam_search`.
            temperature: A number to sample with; None for the most probable codes.
            seed: int32 [2], or [B, 2], for sampling.
            all_beams: Whether to return all sequences of a beam search, [B, beams, L],
                best first.

        Returns:
            int32 [B, L]: codes, then from a sequence's end on `num_codes`.
        """
        return stepwise.write(
            self.embedding,
            self.decoder,
            memory,
            memory_mask,
            start_id=self.end_code,
            end_id=self.end_code,
            pad_id=self.end_code,
            min_length=min_length,
            max_length=max_length,
            num_beams=num_beams,
            length_penalty=length_penalty,
            temperature=temperature,
            seed=seed,
            all_beams=all_beams,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "hidden_dim": self.hidden_dim,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
        }
