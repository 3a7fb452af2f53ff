"""Transformer: the autoregressive translator, baseline and teacher."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.ids import EOS_ID, PAD_ID
from keras_vqem.layers import TransformerDecoder
from keras_vqem.models import stepwise
from keras_vqem.models.translator import (
    Translator,
    mean_log_prob,
    with_generation_config,
)


@keras.saving.register_keras_serializable(package="keras_vqem")
class Transformer(Translator):
    """Encoder-decoder Transformer, pre-norm, with one embedding matrix for all.

    Args:
        tokenizer: A `keras_vqem.text.SentencePieceTokenizer`, or what has its
            `vocabulary_size`, `encode` and `decode`.
        hidden_dim: Of embeddings and hidden states.
        num_encoder_layers, num_decoder_layers: The two depths; 12 and 1 are a good
            choice where decoding must be fast.
        num_heads: Of each attention.
        intermediate_dim: Of the feed-forward layers.
        dropout: After embeddings, attentions and feed-forward layers.
        **kwargs: `generation_config`, `low_score`, and arguments of `keras.Model`.

    Call arguments:
        inputs: A dict of int32 ids padded with 0: `source_ids` [B, S] and `target_ids`
            [B, T], each sentence ended by id 1.

    Returns:
        Logits [B, T, vocabulary_size]: for each target position, given those before.

    Example:

    >>> from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TokenBatches
    >>> corpus = ParallelCorpus.from_numbers(500, seed=0)
    >>> tokenizer = SentencePieceTokenizer.train(
    ...     corpus.sources + corpus.targets, vocabulary_size=400)
    >>> batches = TokenBatches(
    ...     tokenizer.encode_lines(corpus.sources),
    ...     tokenizer.encode_lines(corpus.targets), tokens_per_batch=512)
    >>> model = keras_vqem.models.Transformer(
    ...     tokenizer, hidden_dim=32, num_encoder_layers=1, num_decoder_layers=1,
    ...     num_heads=2, intermediate_dim=64)
    >>> model.compile()
    >>> history = model.fit(
    ...     batches.dataset(), steps_per_epoch=batches.steps_per_epoch, verbose=0)
    >>> len(model.translate(["twenty-one"], num_beams=4))
    1

    References:
        - Vaswani et al., 2017. Attention Is All You Need. arXiv:1706.03762.
    """

    def __init__(
        self,
        tokenizer: Any,
        hidden_dim: int = 512,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        **kwargs,
    ):
        super().__init__(
            tokenizer,
            hidden_dim,
            num_encoder_layers,
            num_heads,
            intermediate_dim,
            dropout,
            **kwargs,
        )
        self.num_decoder_layers = num_decoder_layers
        self.decoder = TransformerDecoder(
            num_decoder_layers,
            num_heads,
            intermediate_dim,
            dropout,
            name="decoder",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape=None):
        super().build(input_shape)
        self.decoder.build((None, None, self.hidden_dim))
        self.built = True

    def call(self, inputs, training=None):
        memory, mask = self.encode_source(inputs["source_ids"], training)
        return self._logits(inputs["target_ids"], memory, mask, training)

    def _logits(self, target_ids, memory, memory_mask, training=None):
        # Each position predicts its own id from those before; padding starts it off.
        shifted = ops.pad(target_ids, [[0, 0], [1, 0]])[:, :-1]
        x = self._embed(shifted, training)
        x = self.decoder(x, memory, memory_mask=memory_mask, training=training)
        return self.embedding(x, reverse=True)

    def _loss_terms(self, inputs, outputs):
        yield self._token_loss(outputs, inputs["target_ids"])

    @with_generation_config
    def generate(
        self, source_ids, num_beams=1, length_penalty=0.6, min_length=0, max_length=None
    ):
        """Translates ids, greedily or by beam search, with cached keys and values.

        The options, by keyword, default to those of `generation_config`, then to these.

        Args:
            source_ids: int32 [B, S].
            num_beams: 1 for greedy decoding.
            length_penalty: alpha of ((5 + length) / 6) ** alpha, by which the log
                probability of a hypothesis is divided.
            min_length, max_length: Of the translation in ids, its end included. By
                default at most twice the length of the source and 10 more.

        Returns:
            A dict: `target_ids` int32 [B, L], each row ended by id 1 (unless cut), then
            padded with 0; and `scores` [B], the mean log probability of the ids.
        """
        memory, mask = self.encode_source(source_ids)
        if max_length is None:
            max_length = 2 * ops.sum(ops.cast(mask, "int32"), axis=1) + 10
        ids = stepwise.write(
            self.embedding,
            self.decoder,
            memory,
            mask,
            start_id=PAD_ID,
            end_id=EOS_ID,
            pad_id=PAD_ID,
            min_length=min_length,
            max_length=max_length,
            num_beams=num_beams,
            length_penalty=length_penalty,
        )
        # Where only the ids are asked for, the graph leaves the scores out.
        return {"target_ids": ids, "scores": self.score(ids, memory, mask)}

    def score(
        self, target_ids: ArrayLike, memory: ArrayLike, memory_mask: ArrayLike | None
    ) -> tf.Tensor:
        """The mean log probability [B] of translations, all words at once.

        Args:
            target_ids: int32 [B, L], each row ended by id 1 and padded with 0.
            memory, memory_mask: Of their sources, from `encode_source`.
        """
        logits = self._logits(target_ids, memory, memory_mask)
        return mean_log_prob(logits, target_ids)

    def get_config(self):
        return {**super().get_config(), "num_decoder_layers": self.num_decoder_layers}
