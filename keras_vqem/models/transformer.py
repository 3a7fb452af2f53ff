"""Transformer: the autoregressive translator, baseline and teacher."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.ids import EOS_ID, PAD_ID
from keras_vqem.layers import TransformerDecoder
from keras_vqem.models import stepwise
from keras_vqem.models.choices import best_first, number_of_choices
from keras_vqem.models.generation import with_generation_config
from keras_vqem.models.token_scores import cross_entropy, divergence, mean_log_prob
from keras_vqem.models.translator import Translator


@keras.saving.register_keras_serializable(package="keras_vqem")
class Transformer(Translator):
    """Encoder-decoder Transformer that writes a translation word by word.

    It normalizes before each sublayer (pre-norm). Source, target and output logits
    share one embedding matrix. It is the baseline of `LatentNMT`, and its teacher.

    Args:
        tokenizer: A `keras_vqem.text.SentencePieceTokenizer`, or an object with the
            same `vocabulary_size`, `encode` and `decode`.
        hidden_dim: Size of embeddings and hidden states.
        num_encoder_layers: Number of Transformer blocks of the source encoder.
        num_decoder_layers: Number of Transformer blocks of the decoder. 12 encoder
            layers and 1 decoder layer are a good choice for fast decoding.
        num_heads: Number of attention heads.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        dropout: Dropout rate after embeddings, attention and feed-forward layers.
        **kwargs: `generation_config`, `low_score` and `causal_encoder` of
            `keras_vqem.models.translator.Translator`, and arguments of `keras.Model`.

    Call arguments:
        inputs: Dict of int32 ids, padded with 0, with id 1 at the end of each
            sentence: `source_ids` `[B, S]` and `target_ids` `[B, T]`.

    Returns:
        Logits `[B, T, vocabulary_size]` of each target id, given the ids before it. In
        training with a `consistency_weight`, those of two passes,
        `[2, B, T, vocabulary_size]`.

    Metrics:
        - `token_nll`: Cross entropy of the words, in nats per token, without label
          smoothing.
        - `consistency`: Divergence between two passes with different dropout, in nats
          per token, if `compile` was called with a `consistency_weight`.

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
    >>> [score] = model.score(["twenty-one"], ["einundzwanzig"])
    >>> score.log_prob < 0 and len(score.token_log_probs) == len(score.ids)
    True

    References:
        - Vaswani et al., 2017. Attention Is All You Need. arXiv:1706.03762.
        - Liang et al., 2021. R-Drop: Regularized Dropout for Neural Networks.
          arXiv:2106.14448.
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
        self.consistency_weight = 0.0
        self.consistency = keras.metrics.Mean(name="consistency")
        self.decoder = TransformerDecoder(
            num_decoder_layers,
            num_heads,
            intermediate_dim,
            dropout,
            name="decoder",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        self.decoder.build((None, None, self.hidden_dim))
        self.built = True

    # Training.

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer | str = "auto",
        label_smoothing: float = 0.1,
        consistency_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Configures training, with defaults that suit a translator.

        Args:
            optimizer: Optimizer as in `keras.Model.compile`. `"auto"` is the default
                of `keras_vqem.models.translator.Translator`.
            label_smoothing: Share of each target label that is spread evenly over the
                vocabulary.
            consistency_weight: Weight of the consistency of two passes (R-Drop). Each
                sentence is then read and written twice, with different dropout, and
                the mean of the two Kullback-Leibler divergences between the predicted
                distributions, times this weight, is added to the loss per token. It
                helps where there are few pairs, and a step takes twice as long. 0
                turns it off.
            **kwargs: Arguments of `keras.Model.compile` except `loss`.
        """
        self.consistency_weight = consistency_weight
        super().compile(optimizer, label_smoothing, **kwargs)

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        if config:  # Empty if not compiled, and must stay so.
            config["consistency_weight"] = self.consistency_weight
        return config

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        if self.consistency_weight:
            return super().metrics
        return [metric for metric in super().metrics if metric is not self.consistency]

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> tf.Tensor:
        source_ids, target_ids = inputs["source_ids"], inputs["target_ids"]
        twice = training and self.consistency_weight
        if twice:
            source_ids, target_ids = _doubled(source_ids), _doubled(target_ids)
        memory, mask = self.encode_source(source_ids, training)
        logits = self._logits(target_ids, memory, mask, training)
        return tf.stack(tf.split(logits, 2)) if twice else logits

    def _logits(self, target_ids, memory, memory_mask, training=None):
        # Each position predicts its own id from those before it, the first from
        # padding.
        shifted = ops.pad(target_ids, [[0, 0], [1, 0]])[:, :-1]
        x = self._embed(shifted, training)
        x = self.decoder(x, memory, memory_mask=memory_mask, training=training)
        return self.embedding(x, reverse=True)

    def _loss_terms(self, inputs, outputs):
        target_ids = inputs["target_ids"]
        if len(outputs.shape) == 3:
            yield self._token_loss(outputs, target_ids)
            return
        passes = tf.unstack(outputs)  # The two passes of a training step.
        (tracker, first, weights), (_, second, _) = (
            self._token_loss(logits, target_ids) for logits in passes
        )
        yield tracker, {key: (first[key] + second[key]) / 2 for key in first}, weights
        apart = divergence(*passes)
        values = {"loss": self.consistency_weight * apart, "metric": apart}
        yield self.consistency, values, weights

    def _loss_counts(self, inputs):
        words, added = super()._loss_counts(inputs)
        return [words, words, added]

    # Translation.

    @with_generation_config
    def generate(
        self,
        source_ids: ArrayLike,
        num_beams: int = 1,
        length_penalty: float = 0.6,
        patience: float | None = None,
        min_length: int = 0,
        max_length: int | tf.Tensor | None = None,
        temperature: float | None = None,
        seed: int = 0,
        num_return_sequences: int | None = None,
        target_prefix: ArrayLike | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translates ids: greedily, by beam search or by sampling, with a cache.

        Pass options by keyword. An option that is not passed is taken from
        `generation_config`, and else has the default given here.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0. A row of
                padding alone has an empty translation.
            num_beams: Number of hypotheses per sentence. 1 is greedy search.
            length_penalty: Exponent alpha of `((5 + length) / 6) ** alpha`, by which
                the log probability of a hypothesis is divided.
            patience: Factor, at least 1, by which the beam search assumes that a
                hypothesis grows at most before it ends. The search stops earlier, but
                may miss a longer hypothesis with a better score. None lets them grow
                to `max_length`.
            min_length: Number of ids that must come before the end.
            max_length: Maximum number of ids, the end included: an integer, or a
                tensor `[B]` with one limit per row. None allows twice the length of
                the source plus 10, and the `target_prefix` before them.
            temperature: Divisor of the logits from which each id is drawn; it needs
                `num_beams=1`. 1 samples from the model's own distribution, lower
                values stay closer to its first choice. None searches instead.
            seed: Integer on which the draws depend. The same seed gives the same
                translations of the same `source_ids`.
            num_return_sequences: Number of translations per sentence: the best of the
                beam search, which must have as many beams, or independent samples.
                None returns one translation without an axis for the number.
            target_prefix: Ids with which the translations begin: int32 `[B, P]`, padded
                with 0, or `[P]` for all rows, without an end. The model goes on from
                there. The search compares the probabilities of what follows, and
                `scores` are those of the whole. None leaves the beginning to the model.

        Returns:
            A dict of tensors:

            - `target_ids`: int32 `[B, L]`, with id 1 at the end of each row, unless
              it was cut, then padded with 0.
            - `scores`: `[B]`, mean log probability of the ids.

            With `num_return_sequences`, `[B, num_return_sequences, L]` and
            `[B, num_return_sequences]`, best first: beams in the order of the search,
            so that the first is the translation of the search, and samples by score.
        """
        number = number_of_choices(
            num_return_sequences, num_beams, temperature, can_sample=True
        )
        samples = temperature is not None
        memory, mask = self.encode_source(source_ids)
        prefix = _prefix(target_prefix, source_ids)
        most = max_length if isinstance(max_length, int) else None
        if max_length is None:
            max_length = 2 * ops.sum(ops.cast(mask, "int32"), axis=1) + 10
            most = 2 * ops.shape(mask)[1] + 10
            if prefix is not None:
                max_length += ops.sum(ops.cast(prefix >= 0, "int32"), axis=1)
                most += ops.shape(prefix)[1]
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
            patience=patience,
            temperature=temperature,
            seed=(0, whole_number("seed", seed, 0)) if samples else None,
            num_samples=number if samples else None,
            all_beams=number is not None,
            prefix=prefix,
            most=most,
        )
        # A graph that returns only the ids does not compute the scores, unless they
        # decide on the order.
        if number is None:
            return {"target_ids": ids, "scores": self.mean_log_probs(ids, memory, mask)}
        if len(ids.shape) == 2:  # Greedy search has no axis of beams.
            ids = ids[:, None]
        ids = ids[:, :number]
        rows, length = ops.shape(memory)[0], ops.shape(ids)[2]
        flat = ops.reshape(ids, (rows * number, length))
        memory, mask = (ops.repeat(x, number, axis=0) for x in (memory, mask))
        scores = self.mean_log_probs(flat, memory, mask)
        scores = ops.reshape(scores, (rows, number))
        found = {"target_ids": ids, "scores": scores}
        return best_first(found, number) if samples else found

    def mean_log_probs(
        self, target_ids: ArrayLike, memory: ArrayLike, memory_mask: ArrayLike | None
    ) -> tf.Tensor:
        """Computes the mean log probability of given translations in one pass.

        Args:
            target_ids: int32 `[B, L]`, with id 1 at the end of each row, padded with
                0.
            memory: Floats `[B, S, hidden_dim]` of the sources, from `encode_source`.
            memory_mask: Booleans `[B, S]` of the sources, from `encode_source`.

        Returns:
            float32 `[B]`, log probability per id.
        """
        logits = self._logits(target_ids, memory, memory_mask)
        return mean_log_prob(logits, target_ids)

    def score_ids(
        self, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> dict[str, tf.Tensor]:
        """Computes the log probability of given translations.

        It is exact: the sum of the log probabilities of all ids, each given the source
        and the ids before it.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            target_ids: int32 `[B, T]`, translations, with id 1 at the end of each row,
                padded with 0.

        Returns:
            A dict of float32 tensors:

            - `log_probs`: `[B]`, of the whole translations.
            - `token_log_probs`: `[B, T]`, of the ids, 0 for padding.
        """
        logits = self({"source_ids": source_ids, "target_ids": target_ids})
        there = ops.cast(target_ids != PAD_ID, "float32")
        found = -cross_entropy(logits, target_ids)[1] * there
        return {"log_probs": ops.sum(found, axis=1), "token_log_probs": found}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "num_decoder_layers": self.num_decoder_layers}


def _doubled(ids):
    return ops.concatenate([ids, ids])


def _prefix(target_prefix, source_ids):
    """int32 [B, P], -1 from where on nothing is given; None if nothing is at all."""
    if target_prefix is None:
        return None
    if isinstance(target_prefix, str):
        raise ValueError(
            f"`target_prefix` of `generate` must be ids, received {target_prefix!r}. "
            f"Pass strings to `translate`."
        )
    ids = ops.cast(target_prefix, "int32")
    ids = ops.broadcast_to(ids, (ops.shape(source_ids)[0], ops.shape(ids)[-1]))
    return ops.where(ids != PAD_ID, ids, -1)
