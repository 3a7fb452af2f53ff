"""FertilityNAT: all words in one pass, one per copy of a source token."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.ids import PAD_ID
from keras_vqem.layers import TransformerDecoder
from keras_vqem.models import fertilities
from keras_vqem.models.choices import best_first, number_of_choices
from keras_vqem.models.generation import with_generation_config
from keras_vqem.models.token_scores import cross_entropy, read_positions
from keras_vqem.models.transformer import Transformer
from keras_vqem.models.translator import Translator

# Number of candidates that are written and scored together: their logits take memory.
TOGETHER = 256


@keras.saving.register_keras_serializable(package="keras_vqem")
class FertilityNAT(Translator):
    """Translates in one pass: source tokens are copied, and each copy becomes a word.

    A head on the source encoder gives each source token a distribution over its
    fertility, the number of words that it becomes, from 0 to `max_fertility`. The
    decoder reads the embeddings of the source tokens, each repeated as often as its
    fertility says, in the order of the source. It sees all of these positions and the
    source, and writes one word at each: position `t` writes target token `t`, the end
    symbol included, so the fertilities of a sentence sum to the length of its target.
    Once fertilities are given, words do not depend on each other.

    Training needs the fertilities of each pair. `keras_vqem.text.WordAligner` finds
    them by EM, and `TokenBatches(..., fertilities=...)` adds them to batches. The loss
    is the sum of two means, both in nats, which are metrics as well:

    - `token_nll`: Cross entropy of the words given the true fertilities, per target
      token, without label smoothing; the loss has it.
    - `fertility_nll`: Cross entropy of the fertilities, per source token.

    A fertility above `max_fertility` counts as `max_fertility` in the second, and is
    copied in full in the first. The metric `clipped` is the share of source tokens
    with such a fertility.

    In noisy parallel decoding, `generate(num_samples=10, rescorer=teacher)`, several
    sequences of fertilities are drawn, a translation is written for each, all in
    parallel, and an autoregressive teacher chooses among them in one pass.

    Three parts of the paper are left out: the attention of the decoder to positions
    alone and the mask that keeps a position from attending to itself, so that the
    decoder has the weights of a `Transformer` and can start from them; and the
    fine-tuning with a teacher after training.

    Args:
        tokenizer: A `keras_vqem.text.SentencePieceTokenizer`, or an object with the
            same `vocabulary_size`, `encode` and `decode`.
        max_fertility: Largest number of words that a source token can become. The
            paper has 50; tokens that are parts of words rarely become more than 3 or
            4, and `clipped` tells if more is needed.
        hidden_dim: Size of embeddings and hidden states.
        num_encoder_layers: Number of Transformer blocks that read the source.
        num_decoder_layers: Number of Transformer blocks that write the target.
        num_heads: Number of attention heads in every attention layer.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        dropout: Dropout rate after embeddings, attention and feed-forward layers.
        **kwargs: `generation_config` and `low_score` of
            `keras_vqem.models.translator.Translator`, and arguments of `keras.Model`.

    Call arguments:
        inputs: Dict of int32 tensors, padded with 0: `source_ids` `[B, S]` and
            `target_ids` `[B, T]`, each sentence ended by id 1, and `fertilities`
            `[B, S]`. Of `target_ids`, only the length T matters.

    Returns:
        A dict of logits: `logits` `[B, T, vocabulary_size]` of the words, and
        `fertility_logits` `[B, S, max_fertility + 1]`.

    Example:

    >>> from keras_vqem.text import (
    ...     ParallelCorpus, SentencePieceTokenizer, TokenBatches, WordAligner)
    >>> corpus = ParallelCorpus.from_numbers(500, seed=0)
    >>> tokenizer = SentencePieceTokenizer.train(
    ...     corpus.sources + corpus.targets, vocabulary_size=400)
    >>> source_ids = tokenizer.encode_lines(corpus.sources)
    >>> target_ids = tokenizer.encode_lines(corpus.targets)
    >>> aligner = WordAligner()
    >>> aligner.adapt(source_ids, target_ids)
    >>> batches = TokenBatches(
    ...     source_ids, target_ids, tokens_per_batch=512,
    ...     fertilities=aligner.fertilities(source_ids, target_ids))
    >>> model = keras_vqem.models.FertilityNAT(
    ...     tokenizer, hidden_dim=32, num_encoder_layers=1, num_decoder_layers=1,
    ...     num_heads=2, intermediate_dim=64)
    >>> model.compile()
    >>> history = model.fit(
    ...     batches.dataset(), steps_per_epoch=batches.steps_per_epoch, verbose=0)
    >>> sorted(history.history)
    ['clipped', 'fertility_nll', 'loss', 'token_nll']
    >>> len(model.translate(["twenty-one"], num_samples=4))
    1

    References:
        - Gu, Bradbury, Xiong, Li, Socher, 2017. Non-Autoregressive Neural Machine
          Translation. arXiv:1711.02281.
    """

    def __init__(
        self,
        tokenizer: Any,
        max_fertility: int = 8,
        hidden_dim: int = 512,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
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
        self.max_fertility = whole_number("max_fertility", max_fertility, 1)
        self.num_decoder_layers = num_decoder_layers
        self.fertility_head = keras.layers.Dense(
            self.max_fertility + 1, name="fertility_head", dtype=self.dtype_policy
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
        self.fertility_nll = keras.metrics.Mean(name="fertility_nll")
        self.clipped = keras.metrics.Mean(name="clipped")

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        for layer in (self.fertility_head, self.decoder):
            layer.build((None, None, self.hidden_dim))
        self.built = True

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> dict[str, tf.Tensor]:
        if "fertilities" not in inputs:
            raise ValueError(
                f"FertilityNAT learns from `fertilities`, and the batch has only "
                f"{sorted(inputs)}. Find them with keras_vqem.text.WordAligner and "
                f"pass them to TokenBatches(..., fertilities=...)."
            )
        memory, memory_mask = self.encode_source(inputs["source_ids"], training)
        x, mask = fertilities.copied(
            inputs["source_ids"],
            inputs["fertilities"],
            ops.shape(inputs["target_ids"])[1],
        )
        return {
            "logits": self._write(x, mask, memory, memory_mask, training),
            "fertility_logits": self.fertility_head(memory),
        }

    def _write(self, copies, mask, memory, memory_mask, training=None):
        """Logits [B, T, V] of the words for copied source ids [B, T]."""
        x = self.decoder(
            self._embed(copies, training),
            memory,
            mask=mask,
            memory_mask=memory_mask,
            training=training,
        )
        return self.embedding(x, reverse=True)

    # Training.

    @property
    def _shared_layers(self):
        return (*super()._shared_layers, "fertility_head")

    def _loss_terms(self, inputs, outputs):
        yield self._token_loss(outputs["logits"], inputs["target_ids"])
        weights = ops.cast(inputs["source_ids"] != PAD_ID, "float32")
        labels = inputs["fertilities"]
        too_large = ops.cast(labels > self.max_fertility, "float32")
        self.clipped.update_state(too_large, sample_weight=weights)
        labels = ops.minimum(labels, self.max_fertility)
        loss, _ = cross_entropy(outputs["fertility_logits"], labels)
        yield self.fertility_nll, {"loss": loss, "metric": loss}, weights

    def _loss_counts(self, inputs):
        words, added = super()._loss_counts(inputs)
        read = ops.sum(ops.cast(inputs["source_ids"] != PAD_ID, "float32"))
        return [words, read, added]

    # Translation.

    _most_tokens_untraced = 64  # There is no step per word.

    @with_generation_config
    def generate(
        self,
        source_ids: ArrayLike,
        fertility: str = "argmax",
        num_samples: int = 1,
        rescorer: Transformer | None = None,
        max_length: int | tf.Tensor | None = None,
        seed: int = 0,
        num_return_sequences: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translates ids, all words at once, one translation or several to choose from.

        Pass options by keyword. An option that is not passed is taken from
        `generation_config`, and else has the default given here.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0. A row of
                padding alone has an empty translation.
            fertility: How the fertility of a source token is chosen: `"argmax"` takes
                the most probable one, `"mean"` rounds the expectation.
            num_samples: Number of candidate translations. The first has the
                fertilities that `fertility` chooses, the others have fertilities drawn
                from the model's distribution (noisy parallel decoding). The candidate
                with the highest score wins.
            rescorer: A trained `Transformer` with the same tokenizer, for example the
                teacher. It scores the candidates, and so chooses among them.
            max_length: Maximum number of words, the end included: an integer, or a
                tensor `[B]` with one limit per row. What the last source tokens would
                write beyond it is left out. None allows twice the length of the source
                plus 10.
            seed: Integer on which the draws depend. With the same seed, a sentence has
                the same candidates in any batch.
            num_return_sequences: Number of candidates to return per sentence, at most
                `num_samples`. None returns the best without an axis for the number.

        Returns:
            A dict of tensors:

            - `target_ids`: int32 `[B, L]`, up to the first end symbol, id 1, then
              padded with 0.
            - `scores`: `[B]`, mean log probability of the ids: given the fertilities,
              or under the rescorer if there is one.

            With `num_return_sequences`, `[B, num_return_sequences, L]` and
            `[B, num_return_sequences]`, best first. Candidates may be alike.
        """
        num_samples = whole_number("num_samples", num_samples, 1)
        number = number_of_choices(
            num_return_sequences, num_samples, option="num_samples"
        )
        seed = whole_number("seed", seed, 0)
        memory, mask = self.encode_source(source_ids)
        logits = self.fertility_head(memory)
        copies = fertilities.candidates(logits, mask, fertility, num_samples, seed)
        if max_length is None:
            max_length = 2 * ops.sum(ops.cast(mask, "int32"), axis=1) + 10
        limit = ops.reshape(ops.cast(max_length, "int32"), (-1, 1, 1))
        copies = fertilities.cut(copies, limit)
        longest = ops.max(ops.sum(copies, axis=-1), initial=0)

        def write(copies, each):
            """Translations of `each` candidates per row, [B * each, S], in one pass."""
            sources, seen, there = (
                tf.repeat(x, each, axis=0) for x in (source_ids, memory, mask)
            )
            x, positions = fertilities.copied(sources, copies, longest)
            words = self._write(x, positions, seen, there)
            ids, scores = read_positions(words, positions)
            if rescorer is not None:
                scores = self.rescored(rescorer, source_ids, ids, each)
            return {"target_ids": ids, "scores": scores}

        if num_samples == 1:
            found = write(copies[:, 0], 1)
            if number is None:
                return found
            return {name: x[:, None] for name, x in found.items()}
        return best_first(_in_passes(write, copies, num_samples), number)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_fertility": self.max_fertility,
            "num_decoder_layers": self.num_decoder_layers,
        }


def _in_passes(write, copies, number):
    """Writes candidates [B, number, S], as many in a pass as memory allows."""
    rows, _, length = ops.shape(copies)
    each = tf.clip_by_value(TOGETHER // ops.maximum(rows, 1), 1, number)
    passes = -(-number // each)
    # Candidates that fill the last pass have no words.
    copies = tf.pad(copies, [[0, 0], [0, passes * each - number], [0, 0]])
    copies = tf.reshape(copies, (rows, passes, each, length))
    copies = tf.reshape(
        tf.transpose(copies, (1, 0, 2, 3)), (passes, rows * each, length)
    )
    found = tf.map_fn(
        lambda part: write(part, each),
        copies,
        fn_output_signature={
            "target_ids": tf.TensorSpec([None, None], "int32"),
            "scores": tf.TensorSpec([None], "float32"),
        },
    )

    def per_row(x):
        """From [passes, B * each, ...] to [B, number, ...]."""
        more = tf.shape(x)[2:]
        x = tf.reshape(x, tf.concat([[passes, rows, each], more], 0))
        x = tf.transpose(x, (1, 0, 2, *range(3, len(x.shape))))
        x = tf.reshape(x, tf.concat([[rows, passes * each], more], 0))
        return x[:, :number]

    return {name: per_row(x) for name, x in found.items()}
