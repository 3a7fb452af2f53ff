"""CTCTranslator: all words in one pass, without codes and without a loop."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule
from numpy.typing import ArrayLike

from keras_vqem import replicas
from keras_vqem.checks import whole_number
from keras_vqem.decoding import ctc_best_path, ctc_prefix_beam_search
from keras_vqem.ids import EOS_ID, PAD_ID
from keras_vqem.layers import TransformerDecoder, ctc_alignment
from keras_vqem.layers.bottlenecks.scheduled import Scheduled
from keras_vqem.layers.ctc_loss import time_first
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.layers.row_dense import RowDense
from keras_vqem.models import compiled, ctc_words
from keras_vqem.models.choices import best_first, number_of_choices
from keras_vqem.models.generation import with_generation_config
from keras_vqem.models.transformer import Transformer
from keras_vqem.models.translator import Translator


@keras.saving.register_keras_serializable(package="keras_vqem")
class CTCTranslator(Translator):
    """Translates in one pass: all positions are written at once, words read off them.

    A dense layer turns each source state into `upsample` positions. A decoder that
    sees all of them and the source gives each position a distribution over words and
    the blank, which is id 0. Merging runs of equal ids and then dropping blanks turns
    positions into words. Training sums over all alignments of the target to the
    positions (connectionist temporal classification, CTC), so nobody has to say which
    position writes which word. There are no codes: this is what a translator with
    codes is measured against.

    Label smoothing spreads a share of each position's label evenly over all ids. The
    label of a position is the distribution over ids that alignments to the target have
    there. So with a smoothing of `s` the loss of a sentence is `(1 - s)` times its CTC
    loss plus `s` times the sum over positions of the cross entropy between the uniform
    distribution and the position's.

    A sentence whose target does not fit its positions (see
    `keras_vqem.layers.ctc_loss`) is left out of the loss. The metric `unfit` is the
    share of such sentences; `token_nll` is the CTC loss in nats per target token, and
    `middle_nll` that of the words read off the middle of the decoder, if `compile` was
    called with a `middle_weight`.

    Args:
        tokenizer: A `keras_vqem.text.SentencePieceTokenizer`, or an object with its
            `vocabulary_size`, `encode` and `decode`.
        upsample: Number of positions per source token. A translation has at most as
            many tokens as there are positions.
        hidden_dim: Size of embeddings and hidden states.
        num_encoder_layers: Number of Transformer blocks that read the source.
        num_decoder_layers: Number of Transformer blocks that write the target.
        num_heads: Number of attention heads in every attention layer.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        dropout: Share of activations that are dropped in training, after embeddings,
            attentions and feed-forward layers.
        glancing: Share from 0 to 1 of what the decoder gets wrong that it is shown in
            training, or a `keras.optimizers.schedules` schedule of it (glancing
            training). Before each step the decoder writes once without learning. Its
            most probable alignment of the target says which positions are wrong. Then
            random positions, `glancing` times as many, are given the embedding of
            their aligned id in place of the source state, and the decoder learns to
            write all positions. Lower it over the run, from about 0.5. The metrics of
            `fit` are then those of the easier task. 0 turns it off, and saves the
            first pass.
        **kwargs: `generation_config`, `low_score`, `causal_encoder`, and arguments of
            `keras.Model`.

    Call arguments:
        inputs: Dict of int32 ids, padded with 0: `source_ids` `[B, S]`, and for the
            loss `target_ids` `[B, T]`, each sentence ended by id 1.

    Returns:
        Logits `[B, S * upsample, vocabulary_size]`, one distribution per position. In
        training with a `middle_weight`, a tuple of these and of the logits after half
        of the decoder's blocks.

    Example:

    >>> from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TokenBatches
    >>> corpus = ParallelCorpus.from_numbers(500, seed=0)
    >>> tokenizer = SentencePieceTokenizer.train(
    ...     corpus.sources + corpus.targets, vocabulary_size=400)
    >>> batches = TokenBatches(
    ...     tokenizer.encode_lines(corpus.sources),
    ...     tokenizer.encode_lines(corpus.targets), tokens_per_batch=512)
    >>> model = keras_vqem.models.CTCTranslator(
    ...     tokenizer, hidden_dim=32, num_encoder_layers=1, num_decoder_layers=1,
    ...     num_heads=2, intermediate_dim=64)
    >>> model.compile()
    >>> history = model.fit(
    ...     batches.dataset(), steps_per_epoch=batches.steps_per_epoch, verbose=0)
    >>> sorted(history.history)
    ['loss', 'token_nll', 'unfit']
    >>> len(model.translate(["twenty-one"], num_beams=4))
    1

    References:
        - Graves et al., 2006. Connectionist Temporal Classification.
        - Libovický, Helcl, 2018. End-to-End Non-Autoregressive Neural Machine
          Translation with Connectionist Temporal Classification. arXiv:1811.04719.
        - Qian et al., 2021. Glancing Transformer for Non-Autoregressive Neural Machine
          Translation. arXiv:2008.07905.
        - Lee, Watanabe, 2021. Intermediate Loss Regularization for CTC-based Speech
          Recognition. arXiv:2102.03216.
        - Gu, Kong, 2021. Fully Non-autoregressive Neural Machine Translation: Tricks of
          the Trade. arXiv:2012.15833.
    """

    def __init__(
        self,
        tokenizer: Any,
        upsample: int = 2,
        hidden_dim: int = 512,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        glancing: float | LearningRateSchedule = 0.0,
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
        self.upsample = whole_number("upsample", upsample, 1)
        self.num_decoder_layers = num_decoder_layers
        self.upsampler = RowDense(
            self.upsample * hidden_dim, name="upsampler", dtype=self.dtype_policy
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
        self.glancing = Scheduled(glancing, "glancing", within=(0, 1))
        self.seed_generator = replicas.ReplicaSeedGenerator()
        self.unfit = keras.metrics.Mean(name="unfit")
        self.middle_weight = 0.0
        self.middle_nll = keras.metrics.Mean(name="middle_nll")

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        for layer in (self.upsampler, self.decoder):
            layer.build((None, None, self.hidden_dim))
        self.glancing.build(self)
        self.built = True

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> tf.Tensor:
        return self._write(inputs["source_ids"], training, inputs.get("target_ids"))[0]

    def _write(self, source_ids, training=None, target_ids=None):
        """Logits [B, P, V] of all positions, and which of them are there [B, P]."""
        memory, memory_mask = self.encode_source(source_ids, training)
        x, mask = ctc_words.positions(memory, memory_mask, self.upsampler)

        def decode(x, training=None):
            middle = bool(training and self.middle_weight)
            signal = position_signal(ops.shape(x)[1], self.hidden_dim, dtype=x.dtype)
            x = self.decoder(
                x + signal,
                memory,
                mask=mask,
                memory_mask=memory_mask,
                training=training,
                return_middle=middle,
            )
            if middle:
                return tuple(self.embedding(part, reverse=True) for part in x)
            return self.embedding(x, reverse=True)

        if training and self.glancing.serialize():
            first = ops.stop_gradient(decode(x, training=False))
            x = self._glance(x, first, target_ids, mask)
        return compiled.part(decode, x, training), mask

    # Training.

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer | str = "auto",
        label_smoothing: float = 0.1,
        middle_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Configures training, with defaults that suit a translator.

        Args:
            optimizer: Optimizer as in `keras.Model.compile`. `"auto"` is the default
                of `keras_vqem.models.translator.Translator`.
            label_smoothing: Share of each position's label that is spread evenly over
                the vocabulary.
            middle_weight: Weight of a second loss: words are also read off the
                positions after half of the decoder's blocks, and their CTC loss is
                added (deep supervision). 0 turns it off.
            **kwargs: Arguments of `keras.Model.compile` except `loss`.
        """
        self.middle_weight = middle_weight
        super().compile(optimizer, label_smoothing, **kwargs)

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        if config:  # Empty if not compiled, and must stay so.
            config["middle_weight"] = self.middle_weight
        return config

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        if self.middle_weight:
            return super().metrics
        return [metric for metric in super().metrics if metric is not self.middle_nll]

    @property
    def _shared_layers(self):
        return (*super()._shared_layers, "upsampler")

    def _glance(self, x, logits, target_ids, mask):
        """Shows some of the target: decoder inputs [B, P, D], some of them words."""
        aligned = ctc_alignment(logits, target_ids, mask, blank_id=PAD_ID)
        written = tf.argmax(logits, axis=-1, output_type=tf.int32)
        wrong, there = (
            ops.sum(ops.cast(places, "float32"), axis=1, keepdims=True)
            for places in (mask & (written != aligned), mask)
        )
        share = self.glancing.value() * wrong / ops.maximum(there, 1.0)
        self.glancing.step()
        draws = keras.random.uniform(
            ops.shape(aligned), dtype="float32", seed=self.seed_generator
        )
        shown = mask & (draws < share)
        return ops.where(shown[..., None], self.embedding(aligned), x)

    def _loss_terms(self, inputs, outputs):
        mask = ctc_words.position_mask(inputs["source_ids"] != PAD_ID, self.upsample)
        logits, *middle = outputs if isinstance(outputs, tuple) else (outputs,)
        for part, tracker, weight in zip(
            (logits, *middle),
            (self.token_nll, self.middle_nll),
            (1.0, self.middle_weight),
            strict=False,
        ):
            values, weights = ctc_words.loss_term(
                part, inputs["target_ids"], mask, self.label_smoothing, self.unfit
            )
            yield tracker, {**values, "loss": weight * values["loss"]}, weights

    def _loss_counts(self, inputs):
        mask = ctc_words.position_mask(inputs["source_ids"] != PAD_ID, self.upsample)
        words = ops.sum(ctc_words.weights(inputs["target_ids"], mask))
        return [words, words, words]

    # Translation.

    _most_tokens_untraced = 64  # There is no step per word.

    @with_generation_config
    def generate(
        self,
        source_ids: ArrayLike,
        num_beams: int = 1,
        blank_bias: float = 0.0,
        length_bonus: float = 0.0,
        length_penalty: float = 0.0,
        top_k: int = 8,
        rescorer: Transformer | None = None,
        num_return_sequences: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translates ids, all words at once.

        Pass options by keyword. An option that is not passed is taken from
        `generation_config`, and else has the default given here.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0. A row of
                padding alone has an empty translation.
            num_beams: Number of candidate translations. With 1, each position takes
                its most probable id, without a loop. With more, a prefix beam search
                goes through the positions, sums the probability of each candidate over
                its alignments, and the best candidate wins.
            blank_bias: Number to add to the blank's logit at each position. Negative
                values give longer translations. Where two words share the probability,
                the blank can win against each of them, and the word is lost.
            length_bonus: Number to add to the log probability of a beam per token.
            length_penalty: Exponent of the length by which scores of beams are
                divided, as in `keras_vqem.decoding.ctc_prefix_beam_search`.
            top_k: Number of most probable ids per position by which beams grow.
            rescorer: A trained `Transformer` with the same tokenizer, for example the
                teacher. It chooses among the beams, and scores all of them in one pass.
            num_return_sequences: Number of candidates to return per sentence, at most
                `num_beams`. None returns the best without an axis for the number.

        Returns:
            A dict of tensors:

            - `target_ids`: int32 `[B, L]`, with id 1 at the end of each row, unless
              the model wrote no end, then padded with 0.
            - `scores`: `[B]`, log probability per token of the translation: under CTC
              without the bias, or under the rescorer if there is one.

            With `num_return_sequences`, `[B, num_return_sequences, L]` and
            `[B, num_return_sequences]`, best first: in the order of the search, or by
            score if there is a rescorer.
        """
        number = number_of_choices(num_return_sequences, num_beams)
        logits, mask = self._write(source_ids)
        if num_beams == 1:
            ids = ctc_best_path(
                logits, EOS_ID, mask, blank_id=PAD_ID, blank_bias=blank_bias
            )
            ids = ids[:, None]
        else:
            logits = ops.cast(logits, "float32")
            bias = blank_bias * tf.one_hot(PAD_ID, self.tokenizer.vocabulary_size)
            ids, _ = ctc_prefix_beam_search(
                logits + bias,
                EOS_ID,
                mask,
                blank_id=PAD_ID,
                num_beams=num_beams,
                top_k=top_k,
                length_bonus=length_bonus,
                length_penalty=length_penalty,
            )
        ids = ctc_words.without_padding(ids)
        if rescorer is None:
            if number is None:
                ids = ids[:, 0]
                scores = ctc_words.mean_log_prob(logits, mask, ids)
                return {"target_ids": ids, "scores": scores}
            # One candidate at a time: the logits are too large to be repeated.
            scores = ops.map(
                lambda own: ctc_words.mean_log_prob(logits, mask, own),
                time_first(ids[:, :number]),
            )
            return {"target_ids": ids[:, :number], "scores": ops.transpose(scores)}
        rows, _, longest = ops.shape(ids)
        flat = ops.reshape(ids, (rows * num_beams, longest))
        scores = self.rescored(rescorer, source_ids, flat, num_beams)
        scores = ops.reshape(scores, (rows, num_beams))
        return best_first({"target_ids": ids, "scores": scores}, number)

    def score_ids(
        self, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> dict[str, tf.Tensor]:
        """Computes the log probability of given translations.

        It is the CTC likelihood, which sums over all alignments of the ids to the
        positions, with nothing written behind the end and without a bias of the blank.
        There are no probabilities of single ids.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            target_ids: int32 `[B, T]`, translations, with id 1 at the end of each row,
                padded with 0.

        Returns:
            A dict of `log_probs`, float32 `[B]`: minus infinity for a translation that
            has more ids than there are positions, counting one more position between
            two equal ids.
        """
        logits, mask = self._write(source_ids)
        return {"log_probs": ctc_words.log_prob(logits, mask, target_ids)}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "upsample": self.upsample,
            "num_decoder_layers": self.num_decoder_layers,
            "glancing": self.glancing.serialize(),
        }
