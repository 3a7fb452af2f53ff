"""RefinementNAT: all words at once, again and again, each time a little better."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import replicas
from keras_vqem.checks import whole_number
from keras_vqem.ids import PAD_ID
from keras_vqem.layers import TransformerDecoder
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models.choices import best_first, number_of_choices
from keras_vqem.models.ctc_words import without_padding
from keras_vqem.models.generation import with_generation_config
from keras_vqem.models.refinements import Denoising, Refinement
from keras_vqem.models.token_scores import cross_entropy
from keras_vqem.models.transformer import Transformer
from keras_vqem.models.translator import Translator

# A sentence has one length and many words.
LENGTH_WEIGHT = 0.1


@keras.saving.register_keras_serializable(package="keras_vqem")
class RefinementNAT(Translator):
    """Writes all words at once, then reads and rewrites them for a number of passes.

    First the length of the translation is predicted: a dense layer on the mean of the
    source states gives a distribution over the number of target tokens minus the
    number of source tokens. Both count the end symbol. Then a decoder that sees all
    positions and the source writes one token per position. The last one is the end
    symbol, all others are words. `refinement` says what the decoder reads in the first
    pass and in later ones, and how it learns to write from that: `Denoising` (Lee
    2018) or `MaskPredict` (conditional masked language model, Ghazvininejad 2019).

    In training the length is that of the target. The loss is that of the words per
    token, plus 0.1 times the cross entropy of the length per sentence.

    Args:
        tokenizer: A `keras_vqem.text.SentencePieceTokenizer`, or an object with its
            `vocabulary_size`, `encode` and `decode`.
        refinement: A `keras_vqem.models.Denoising` or `keras_vqem.models.MaskPredict`.
            None is `Denoising()`.
        hidden_dim: Size of embeddings and hidden states.
        num_encoder_layers: Number of Transformer blocks that read the source.
        num_decoder_layers: Number of Transformer blocks that write the target.
        num_heads: Number of attention heads in every attention layer.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        dropout: Share of activations that are dropped in training, after embeddings,
            attentions and feed-forward layers.
        max_length_difference: Largest difference between the lengths of a source and
            its translation. Larger ones in the training data count as this one.
        **kwargs: `generation_config`, `low_score`, and arguments of `keras.Model`.

    Call arguments:
        inputs: Dict of int32 ids, padded with 0, each sentence ended by id 1:
            `source_ids` `[B, S]` and `target_ids` `[B, T]`.

    Returns:
        A dict of tensors:

        - `logits`: `[B, T, vocabulary_size]`, those of the last pass.
        - `length_logits`: `[B, 2 * max_length_difference + 1]`, of differences from
          `-max_length_difference` up.
        - `first_logits`, with `Denoising`: `[B, T, vocabulary_size]`, those of the
          first pass.
        - `token_weights`, with `MaskPredict`: float32 `[B, T]`, how much each token
          counts, 0 for those that were shown.

    Metrics:
        - `token_nll`: Cross entropy of the words in the last pass, in nats per token,
          without label smoothing.
        - `first_nll`: That of the first pass, with `Denoising`.
        - `length_nll`: Cross entropy of the length, in nats per sentence.

    Example:

    >>> from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TokenBatches
    >>> corpus = ParallelCorpus.from_numbers(500, seed=0)
    >>> tokenizer = SentencePieceTokenizer.train(
    ...     corpus.sources + corpus.targets, vocabulary_size=400)
    >>> batches = TokenBatches(
    ...     tokenizer.encode_lines(corpus.sources),
    ...     tokenizer.encode_lines(corpus.targets), tokens_per_batch=512)
    >>> model = keras_vqem.models.RefinementNAT(
    ...     tokenizer, keras_vqem.models.MaskPredict(), hidden_dim=32,
    ...     num_encoder_layers=1, num_decoder_layers=1, num_heads=2,
    ...     intermediate_dim=64)
    >>> model.compile()
    >>> history = model.fit(
    ...     batches.dataset(), steps_per_epoch=batches.steps_per_epoch, verbose=0)
    >>> sorted(history.history)
    ['length_nll', 'loss', 'token_nll']
    >>> len(model.translate(["twenty-one"], num_iterations=4, num_beams=3))
    1

    References:
        - Lee, Mansimov, Cho, 2018. Deterministic Non-Autoregressive Neural Sequence
          Modeling by Iterative Refinement. arXiv:1802.06901.
        - Ghazvininejad et al., 2019. Mask-Predict: Parallel Decoding of Conditional
          Masked Language Models. arXiv:1904.09324.
    """

    def __init__(
        self,
        tokenizer: Any,
        refinement: Refinement | None = None,
        hidden_dim: int = 512,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        max_length_difference: int = 50,
        **kwargs: Any,
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
        self.max_length_difference = whole_number(
            "max_length_difference", max_length_difference, 1
        )
        self.decoder = TransformerDecoder(
            num_decoder_layers,
            num_heads,
            intermediate_dim,
            dropout,
            causal=False,
            name="decoder",
            dtype=self.dtype_policy,
        )
        self.length_dense = keras.layers.Dense(
            2 * self.max_length_difference + 1,
            name="length_dense",
            dtype=self.dtype_policy,
        )
        self.length_nll = keras.metrics.Mean(name="length_nll")
        self.seed_generator = replicas.ReplicaSeedGenerator()
        self.refinement = Denoising() if refinement is None else refinement
        if not isinstance(self.refinement, Refinement):
            raise ValueError(
                f"`refinement` must be an object such as keras_vqem.models.Denoising() "
                f"or keras_vqem.models.MaskPredict(), received {refinement!r}."
            )
        self._refinement_layers = self.refinement.attach(self)

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        self.decoder.build((None, None, self.hidden_dim))
        self.length_dense.build((None, self.hidden_dim))
        for layer in self._refinement_layers:
            layer.build()
        self.built = True

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> dict[str, tf.Tensor]:
        seen = self.encode_source(inputs["source_ids"], training)
        decode = self._decode(*seen, inputs["target_ids"] != PAD_ID, training)
        written = self.refinement.teach(self, inputs, decode, training)
        return {**written, "length_logits": self._length_logits(*seen)}

    def _decode(self, memory, memory_mask, mask, training=None):
        """Function from vectors [B, T, D] to logits [B, T, V] of one pass."""
        length = ops.shape(mask)[1]
        signal = position_signal(length, self.hidden_dim, dtype=memory.dtype)

        def decode(x):
            x = self.decoder(
                self.embedding_dropout(x + signal, training=training),
                memory,
                mask=mask,
                memory_mask=memory_mask,
                training=training,
            )
            return self.embedding(x, reverse=True)

        return decode

    def _length_logits(self, memory, memory_mask):
        there = ops.cast(memory_mask, memory.dtype)[..., None]
        number = ops.maximum(ops.sum(there, axis=1), 1.0)
        return self.length_dense(ops.sum(memory * there, axis=1) / number)

    # Training.

    def _loss_terms(self, inputs, outputs):
        yield from self.refinement.losses(self, inputs["target_ids"], outputs)
        source, target = (_lengths(inputs[x]) for x in ("source_ids", "target_ids"))
        most = self.max_length_difference
        labels = ops.clip(target - source, -most, most) + most
        nll, _ = cross_entropy(outputs["length_logits"], labels)
        values = {"loss": LENGTH_WEIGHT * nll, "metric": nll}
        yield self.length_nll, values, ops.cast(target > 0, "float32")

    def _loss_counts(self, inputs):
        words, added = super()._loss_counts(inputs)
        sentences = ops.sum(ops.cast(_lengths(inputs["target_ids"]) > 0, "float32"))
        return [*[words] * self.refinement.num_losses, sentences, added]

    # Translation.

    _most_tokens_untraced = 64  # There is no step per word.

    @with_generation_config
    def generate(
        self,
        source_ids: ArrayLike,
        num_iterations: int = 10,
        num_beams: int = 1,
        rescorer: Transformer | None = None,
        num_return_sequences: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translates ids, all words at once, in several passes.

        Pass options by keyword. An option that is not passed is taken from
        `generation_config`, and else has the default given here.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0. A row of
                padding alone has an empty translation.
            num_iterations: Number of passes of the decoder, the first included. With
                `Denoising` it is a limit: passes end when they no longer change
                anything.
            num_beams: Number of candidate translations, each of another length: the
                most probable lengths, all written at the same time. The one with the
                highest score wins.
            rescorer: A trained `Transformer` with the same tokenizer, for example the
                teacher. It scores all candidates in one pass, and so chooses.
            num_return_sequences: Number of candidates to return per sentence, at most
                `num_beams`. None returns the best without an axis for the number.

        Returns:
            A dict of tensors:

            - `target_ids`: int32 `[B, L]`, with id 1 at the end of each row, then
              padded with 0.
            - `scores`: `[B]`, mean log probability of the ids: each as it was when it
              was last written, or under the rescorer if there is one.

            With `num_return_sequences`, `[B, num_return_sequences, L]` and
            `[B, num_return_sequences]`, best first.
        """
        num_iterations = whole_number("num_iterations", num_iterations, 1)
        num_beams = whole_number("num_beams", num_beams, 1)
        number = number_of_choices(num_return_sequences, num_beams)
        memory, memory_mask = self.encode_source(source_ids)
        lengths = self._likely_lengths(memory, memory_mask, num_beams)
        longest = ops.max(lengths, initial=0)
        mask = ops.arange(longest) < ops.reshape(lengths, (-1, 1))
        rows = ops.shape(lengths)[0]
        source, *seen = (
            ops.repeat(x, num_beams, axis=0) for x in (source_ids, memory, memory_mask)
        )
        ids, log_probs = self.refinement.write(
            self, source, mask, self._decode(*seen, mask), num_iterations
        )
        if rescorer is None:
            total = ops.sum(ops.where(mask, log_probs, 0.0), axis=1)
            tokens = ops.sum(ops.cast(mask, "float32"), axis=1)
            scores = total / ops.maximum(tokens, 1.0)
        else:
            scores = self.rescored(rescorer, source_ids, ids, num_beams)
        candidates = {
            "target_ids": ops.reshape(ids, (rows, num_beams, longest)),
            "scores": ops.reshape(scores, (rows, num_beams)),
        }
        found = best_first(candidates, number)
        return {**found, "target_ids": without_padding(found["target_ids"])}

    def _likely_lengths(self, memory, memory_mask, number):
        """The most probable lengths int32 [B, number], 0 where there is no source."""
        most = self.max_length_difference
        if number > most + 1:
            raise ValueError(
                f"num_beams={number} is more than the {most + 1} lengths that every "
                f"sentence may have with max_length_difference={most}. Use fewer beams."
            )
        source = ops.sum(ops.cast(memory_mask, "int32"), axis=1, keepdims=True)
        lengths = source + ops.arange(-most, most + 1)
        logits = ops.cast(self._length_logits(memory, memory_mask), "float32")
        logits = ops.where(lengths > 0, logits, -float("inf"))
        lengths = tf.gather(
            lengths, tf.math.top_k(logits, number).indices, batch_dims=1
        )
        return ops.where(source > 0, lengths, 0)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "refinement": keras.saving.serialize_keras_object(self.refinement),
            "num_decoder_layers": self.num_decoder_layers,
            "max_length_difference": self.max_length_difference,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RefinementNAT":
        refinement = keras.saving.deserialize_keras_object(config["refinement"])
        return super().from_config({**config, "refinement": refinement})


def _lengths(ids):
    return ops.sum(ops.cast(ids != PAD_ID, "int32"), axis=1)
