"""LatentPredictor: the autoregressive prior over codes."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.layers import ReplicaDropout, TiedEmbedding, TransformerDecoder
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models import stepwise


@keras.saving.register_keras_serializable(package="keras_vqem")
class LatentPredictor(keras.Model):
    """Predicts a sequence of codes one by one from a memory, such as a source.

    The number `num_codes` marks the end of a sequence. There are far fewer codes than
    words, so a shallow predictor is enough. It is the only part of a latent translator
    that runs step by step.

    Args:
        num_codes: Size of the codebook.
        hidden_dim: Size of embeddings and hidden states, and of the memory.
        num_layers: Number of Transformer blocks.
        num_heads: Number of attention heads.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        dropout: Dropout rate after embeddings, attention and feed-forward layers.
        **kwargs: Arguments of `keras.Model`.

    Call arguments:
        codes: int32 `[B, N]`. Values after the end of a sequence do not matter.
        memory: Floats `[B, S, hidden_dim]` to attend to.
        memory_mask: Booleans `[B, S]`, False for padding. None means no padding.

    Returns:
        Logits `[B, N + 1, num_codes + 1]` of the next code, or of the end, given the
        codes before it.

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
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_codes = num_codes
        self.supports_masking = True
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        # No position follows the end, so the same code can start the sequence.
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

    def build(self, codes_shape: Any = None) -> None:
        self.embedding.build()
        self.decoder.build((None, None, self.hidden_dim))
        self.built = True

    def call(
        self,
        codes: tf.Tensor,
        memory: tf.Tensor,
        memory_mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
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
        num_samples: int | None = None,
        all_beams: bool = False,
        end_threshold: float | None = None,
        first_code: int | tf.Tensor | None = None,
        most: int | tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Finds codes for a memory: greedily, by beam search, or by sampling.

        Args:
            memory: Floats `[B, S, hidden_dim]` to attend to.
            memory_mask: Booleans `[B, S]`, False for padding. None means no padding.
            max_length: Maximum number of codes, the end included: an integer, or a
                tensor `[B]` with one limit per row.
            min_length: Number of codes that must come before the end.
            num_beams: Number of hypotheses per row. 1 is greedy search.
            length_penalty: Exponent of the length in the score of a hypothesis, as in
                `keras_vqem.decoding.beam_search`.
            temperature: Temperature of sampling. None searches for the most probable
                codes instead.
            seed: Seed of sampling: int32 `[2]`, or `[B, 2]` with one seed per row.
            num_samples: Number of sequences to draw for each row; then `seed` is
                `[2]`. None draws one, without an axis of its own.
            all_beams: Whether to return all hypotheses of a beam search instead of the
                best.
            end_threshold: Probability of the end above which a sequence ends, and
                below which it goes on. None treats the end as any other code.
            first_code: Code that comes first: an integer, or int32 `[B]`, -1 for rows
                whose first code is predicted. None predicts all.
            most: Number that no `max_length` is above, which greedy search needs if XLA
                compiles it. None if there is no such number.

        Returns:
            int32 `[B, L]`, codes, followed by `num_codes` from the end on. With
            `all_beams` and several beams, `[B, num_beams, L]`, best first. With
            `num_samples`, `[B, num_samples, L]`.
        """
        prefix = None
        if first_code is not None:
            first = ops.cast(first_code, "int32")
            prefix = ops.broadcast_to(first, ops.shape(memory)[:1])[:, None]
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
            num_samples=num_samples,
            all_beams=all_beams,
            end_threshold=end_threshold,
            prefix=prefix,
            most=most,
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "hidden_dim": self.hidden_dim,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
        }
