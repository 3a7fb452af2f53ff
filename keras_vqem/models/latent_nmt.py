"""LatentNMT: the paper's translator, through a few discrete codes."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import replicas
from keras_vqem.ids import EOS_ID, PAD_ID
from keras_vqem.layers import (
    DiscreteBottleneck,
    SequenceCompressor,
    SequenceDecompressor,
    TransformerDecoder,
)
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models import translation_endpoints as endpoints
from keras_vqem.models.latent_predictor import LatentPredictor
from keras_vqem.models.translator import (
    Translator,
    mean_log_prob,
    with_generation_config,
)


@keras.saving.register_keras_serializable(package="keras_vqem")
class LatentNMT(Translator):
    """Translates by predicting a few codes, then writing all words at once.

    In training a compressor makes the target 2 ** `num_compress_steps` times shorter
    and the bottleneck turns each of its vectors into a code. From the codes and the
    source a decompressor and a decoder that sees all positions rebuild the target,
    every word at once. A latent predictor learns to name the codes from the source. To
    translate, the predictor finds codes one by one and ends when it predicts the end;
    the decoder then writes the words in one pass, up to the first end of sentence.

    Args:
        tokenizer: A `keras_vqem.text.SentencePieceTokenizer`, or what has its
            `vocabulary_size`, `encode` and `decode`.
        bottleneck: Any bottleneck of `keras_vqem.layers` that has codes.
        num_compress_steps: n_c, the number of times the target is halved: one code
            stands for 2 ** n_c tokens.
        attend_source: Whether the compressor attends to the source too.
        hidden_dim: Of embeddings and hidden states, and so of the codes' vectors.
        num_encoder_layers, num_decoder_layers, num_predictor_layers: The three depths.
        num_heads: Of each attention.
        intermediate_dim: Of the feed-forward layers.
        dropout: After embeddings, attentions, convolutions and feed-forward layers.
        bypass_steps: Over that many first steps a falling share of the sentences
            reach the decoder as they leave the compressor, without passing the
            bottleneck. The decoder so learns to listen before codes mean much; without
            this it learns to do without them, and they die.
        predicted_share: After that, this share of the sentences reach the decoder as
            the codes that the predictor names (given the true codes before each), so
            that the decoder learns to live with the predictor's mistakes.
        **kwargs: `generation_config`, `low_score`, and arguments of `keras.Model`.

    Call arguments:
        inputs: A dict of int32 ids padded with 0: `source_ids` [B, S] and `target_ids`
            [B, T], each sentence ended by id 1.

    Returns:
        A dict: `logits` [B, T, vocabulary_size] of the words, `code_logits` [B, N + 1,
        num_codes + 1] of the predictor, and of the target's codes in a row `codes`
        [B, N], `samples` [B, N, m] and `code_mask` [B, N].

    Example:

    >>> from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TokenBatches
    >>> corpus = ParallelCorpus.from_numbers(500, seed=0)
    >>> tokenizer = SentencePieceTokenizer.train(
    ...     corpus.sources + corpus.targets, vocabulary_size=400)
    >>> batches = TokenBatches(
    ...     tokenizer.encode_lines(corpus.sources),
    ...     tokenizer.encode_lines(corpus.targets), tokens_per_batch=512)
    >>> model = keras_vqem.models.LatentNMT(
    ...     tokenizer, keras_vqem.layers.VQEMBottleneck(num_codes=32, num_samples=10),
    ...     hidden_dim=32, num_encoder_layers=1, num_decoder_layers=1,
    ...     num_predictor_layers=1, num_heads=2, intermediate_dim=64)
    >>> model.compile()
    >>> history = model.fit(
    ...     batches.dataset(), steps_per_epoch=batches.steps_per_epoch, verbose=0)
    >>> len(model.translate(["twenty-one", "five"]))
    2

    References:
        - Roy, Vaswani, Neelakantan, Parmar, 2018. Theory and Experiments on Vector
          Quantized Autoencoders. arXiv:1805.11063.
    """

    def __init__(
        self,
        tokenizer: Any,
        bottleneck: DiscreteBottleneck,
        num_compress_steps: int = 3,
        attend_source: bool = False,
        hidden_dim: int = 512,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        num_predictor_layers: int = 2,
        num_heads: int = 8,
        intermediate_dim: int = 2048,
        dropout: float = 0.1,
        bypass_steps: int = 1000,
        predicted_share: float = 0.0,
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
        if not isinstance(bottleneck, DiscreteBottleneck):
            raise ValueError(
                f"LatentNMT predicts codes, and {type(bottleneck).__name__} has none. "
                f"Use a discrete bottleneck such as keras_vqem.layers.VQEMBottleneck."
            )
        self.bottleneck = bottleneck
        self.num_compress_steps = num_compress_steps
        self.attend_source = attend_source
        self.num_decoder_layers = num_decoder_layers
        self.num_predictor_layers = num_predictor_layers
        self.bypass_steps = bypass_steps
        self.predicted_share = predicted_share
        policy = self.dtype_policy
        self.compressor = SequenceCompressor(
            num_compress_steps,
            dropout,
            num_heads=num_heads if attend_source else None,
            name="compressor",
            dtype=policy,
        )
        self.decompressor = SequenceDecompressor(
            num_compress_steps, dropout, name="decompressor", dtype=policy
        )
        self.decoder = TransformerDecoder(
            num_decoder_layers,
            num_heads,
            intermediate_dim,
            dropout,
            causal=False,
            name="decoder",
            dtype=policy,
        )
        self.predictor = LatentPredictor(
            bottleneck.num_codes,
            hidden_dim,
            num_predictor_layers,
            num_heads,
            intermediate_dim,
            dropout,
            name="predictor",
            dtype=policy,
        )
        self.seed_generator = replicas.ReplicaSeedGenerator()
        self.code_nll = keras.metrics.Mean(name="code_nll")
        self.bottleneck_loss = keras.metrics.Mean(name="bottleneck_loss")

    def build(self, input_shape=None):
        super().build(input_shape)
        shape = (None, None, self.hidden_dim)
        for layer in (
            self.compressor,
            self.bottleneck,
            self.decompressor,
            self.decoder,
            self.predictor,
        ):
            if not layer.built:
                layer.build(shape)
        self.steps = self.add_weight(
            name="steps",
            shape=(),
            initializer="zeros",
            dtype="int32",
            trainable=False,
            aggregation="only_first_replica",
        )
        self.built = True

    # The two ways through the codes.

    def _compress(self, target_ids, memory, memory_mask, training=None):
        """Vectors [B, N, D] of the target, and which of them are there [B, N]."""
        block = 2**self.num_compress_steps
        target_ids = ops.pad(
            target_ids, [[0, 0], [0, -ops.shape(target_ids)[1] % block]]
        )
        mask = target_ids != PAD_ID
        x = self.embedding_dropout(self.embedding(target_ids), training=training)
        x = self.compressor(
            x * ops.cast(mask, x.dtype)[..., None],
            mask=mask,
            memory=memory,
            memory_mask=memory_mask,
            training=training,
        )
        return x, mask[:, ::block]

    def _write(self, latents, code_mask, memory, memory_mask, training=None):
        """Logits [B, N * 2 ** num_compress_steps, V] of the words."""
        x = self.decompressor(latents, mask=code_mask, training=training)
        x = x + position_signal(ops.shape(x)[1], self.hidden_dim, dtype=x.dtype)
        mask = ops.repeat(code_mask, 2**self.num_compress_steps, axis=1)
        x = self.decoder(
            x, memory, mask=mask, memory_mask=memory_mask, training=training
        )
        return self.embedding(x, reverse=True)

    def _flat(self, codes, tail=0):
        """Codes of several groups in a row; `tail` axes after them stay."""
        lead = codes.shape.rank - tail
        if lead == 2:
            return codes
        shape = ops.shape(codes)
        return ops.reshape(codes, (shape[0], -1, *shape[lead:]))

    def _unflat(self, codes):
        """Codes in a row as the bottleneck has them."""
        if not self.bottleneck.groups.code_shape:
            return codes
        return ops.reshape(codes, (ops.shape(codes)[0], -1, self._groups))

    @property
    def _groups(self):
        return self.bottleneck.groups.num_groups

    # Training.

    def call(self, inputs, training=None):
        target_ids = inputs["target_ids"]
        memory, memory_mask = self.encode_source(inputs["source_ids"], training)
        vectors, mask = self._compress(target_ids, memory, memory_mask, training)
        found = self.bottleneck(vectors, mask=mask, training=training)
        codes = self._flat(found["codes"])
        code_logits = self.predictor(
            codes, memory, memory_mask=memory_mask, training=training
        )
        latents = found["quantized"]
        if training:
            latents = self._mix(vectors, latents, code_logits)
        logits = self._write(latents, mask, memory, memory_mask, training)
        return {
            "logits": logits[:, : ops.shape(target_ids)[1]],
            "code_logits": code_logits,
            "codes": codes,
            "samples": self._flat(found["samples"], tail=1),
            "code_mask": ops.repeat(mask, self._groups, axis=1),
        }

    def _mix(self, vectors, quantized, code_logits):
        """What the decoder sees in training: a choice for each sentence."""
        step = ops.cast(self.steps, "float32")
        self.steps.assign(self.steps + 1)
        draws = keras.random.uniform(
            (2, ops.shape(vectors)[0], 1, 1), dtype="float32", seed=self.seed_generator
        )
        latents = quantized
        if self.predicted_share:
            best = tf.argmax(
                code_logits[:, :-1, : self.predictor.end_code],
                axis=-1,
                output_type=tf.int32,
            )
            predicted = self.bottleneck.decode(self._unflat(best))
            share = ops.where(step < self.bypass_steps, 0.0, self.predicted_share)
            latents = ops.where(draws[0] < share, ops.stop_gradient(predicted), latents)
        if self.bypass_steps:
            latents = ops.where(draws[1] < step / self.bypass_steps, latents, vectors)
        return latents

    def _loss_terms(self, inputs, outputs):
        yield self._token_loss(outputs["logits"], inputs["target_ids"])
        yield self._code_loss(outputs)

    def _code_loss(self, outputs):
        """Cross entropy with the soft labels: the mean over the samples."""
        logits = ops.cast(outputs["code_logits"], "float32")
        samples, mask = outputs["samples"], outputs["code_mask"]
        end = ops.full_like(samples[:, :1], self.predictor.end_code)
        labels = ops.concatenate([samples, end], axis=1)
        number = ops.sum(ops.cast(mask, "int32"), axis=1)[:, None]
        place = ops.arange(ops.shape(labels)[1])[None]
        labels = ops.where(
            (place == number)[..., None], self.predictor.end_code, labels
        )
        picked = ops.mean(ops.take_along_axis(logits, labels, axis=-1), axis=-1)
        loss = ops.logsumexp(logits, axis=-1) - picked
        weights = ops.cast((place <= number) & (number > 0), "float32")
        return self.code_nll, {"loss": loss, "metric": loss}, weights

    def task_loss(self, inputs: dict, outputs: dict | tf.Tensor) -> tf.Tensor:
        self.bottleneck_loss.update_state(sum(self.losses))
        return super().task_loss(inputs, outputs)

    # Translation.

    def encode_ids(self, source_ids: ArrayLike, target_ids: ArrayLike) -> tf.Tensor:
        """Codes [B, N] of target sentences; `num_codes` marks what is not there."""
        memory, memory_mask = self.encode_source(source_ids)
        vectors, mask = self._compress(target_ids, memory, memory_mask)
        codes = self._flat(self.bottleneck.encode(vectors))
        mask = ops.repeat(mask, self._groups, axis=1)
        return ops.where(mask, codes, self.predictor.end_code)

    def decode_ids(self, source_ids, codes, drop_repeats=False):
        """Words [B, L] for a source and codes [B, N], as `encode_ids` gives them."""
        memory, memory_mask = self.encode_source(source_ids)
        ids = self._decode(codes, memory, memory_mask)[0]
        return _without_repeats(ids) if drop_repeats else ids

    def _decode(self, codes, memory, memory_mask):
        """The most probable words [B, L] for codes, and the logits they come from."""
        groups = self._groups
        if groups > 1:  # at least one position, even if all end before it is full
            codes = ops.pad(
                codes,
                [[0, 0], [0, groups - 1]],
                constant_values=self.predictor.end_code,
            )
        # Up to the last code that any row has: the end itself is not written out.
        there = codes < self.predictor.end_code
        longest = ops.max(ops.sum(ops.cast(there, "int32"), axis=1), initial=0)
        longest = ops.maximum(longest // groups, 1) * groups
        codes, there = codes[:, :longest], there[:, :longest]
        latents = self.bottleneck.decode(self._unflat(ops.where(there, codes, 0)))
        # Of several groups, those of one position are there together.
        there = there[:, groups - 1 :: groups]
        logits = self._write(latents, there, memory, memory_mask)
        ids = tf.argmax(logits, axis=-1, output_type=tf.int32)
        # The sentence ends with its first end, or where its codes do.
        ended = ops.cumsum(ops.cast(ids == EOS_ID, "int32"), axis=-1)
        first = (ended == 0) | ((ended == 1) & (ids == EOS_ID))
        first = first & ops.repeat(there, 2**self.num_compress_steps, axis=1)
        return ops.where(first, ids, PAD_ID), logits

    def max_codes_for(self, source_tokens: int | tf.Tensor) -> int | tf.Tensor:
        """As many as a translation of twice the length and 10 tokens more needs."""
        return -(-(2 * source_tokens + 10) // 2**self.num_compress_steps) * self._groups

    @with_generation_config
    def generate(
        self,
        source_ids,
        num_beams=1,
        length_penalty=0.6,
        min_codes=0,
        max_codes=None,
        drop_repeats=False,
        rescorer=None,
    ):
        """Translates ids: codes one by one, then all words at once.

        The options, by keyword, default to those of `generation_config`, then to these.

        Args:
            source_ids: int32 [B, S].
            num_beams: 1 to choose codes greedily. With more, a beam search finds that
                many sequences of codes, the words of all are written at once, and the
                translation with the most probable words (their mean log probability)
                wins: the decoder tells whether codes make sense together.
            length_penalty: As in `keras_vqem.decoding.beam_search`, over codes.
            min_codes, max_codes: Numbers of codes, the end not counted. By default at
                most enough for twice the length of the source and 10 tokens more.
            drop_repeats: Whether an id that follows itself is left out. Words written
                at once are sometimes written twice; but so is, rightly, the 1 of 11,
                where a vocabulary spells numbers.
            rescorer: A trained `Transformer` with the same tokenizer, the teacher for
                example. Instead of the decoder it chooses among the translations of
                the beams, all of which it reads at once.

        Returns:
            A dict: `target_ids` int32 [B, L], each row ended by id 1 (unless cut), then
            padded with 0; `scores` [B], the mean log probability of the words (by the
            rescorer, if there is one); and `codes` [B, N], `num_codes` where there are
            no more.
        """
        memory, mask = self.encode_source(source_ids)
        if max_codes is None:
            max_codes = self.max_codes_for(ops.sum(ops.cast(mask, "int32"), axis=1))
        codes = self.predictor.search(
            memory,
            mask,
            max_length=max_codes + 1,
            min_length=min_codes,
            num_beams=num_beams,
            length_penalty=length_penalty,
            all_beams=num_beams > 1,
        )
        rows, length = ops.shape(source_ids)[0], ops.shape(codes)[-1]
        if num_beams > 1:
            memory, mask = (ops.repeat(x, num_beams, axis=0) for x in (memory, mask))
        flat = ops.reshape(codes, (rows * num_beams, length))
        ids, logits = self._decode(flat, memory, mask)
        # A sequence of no codes has no words, and is the last choice.
        scores = mean_log_prob(logits, ids)
        if drop_repeats:
            ids = _without_repeats(ids)
        if rescorer is not None:
            scores = self._rescored(rescorer, source_ids, ids, num_beams)
        found = {"target_ids": ids, "scores": scores, "codes": flat}
        if num_beams == 1:
            return found
        best = tf.argmax(ops.reshape(scores, (rows, num_beams)), axis=1)
        best = best + num_beams * tf.range(rows, dtype=best.dtype)
        return {name: tf.gather(value, best) for name, value in found.items()}

    def _endpoints(self, max_tokens, options):
        return {
            **super()._endpoints(max_tokens, options),
            **endpoints.of_codes(self, max_tokens, options),
        }

    def get_config(self):
        return {
            **super().get_config(),
            "bottleneck": keras.saving.serialize_keras_object(self.bottleneck),
            "num_compress_steps": self.num_compress_steps,
            "attend_source": self.attend_source,
            "num_decoder_layers": self.num_decoder_layers,
            "num_predictor_layers": self.num_predictor_layers,
            "bypass_steps": self.bypass_steps,
            "predicted_share": self.predicted_share,
        }

    @classmethod
    def from_config(cls, config):
        bottleneck = keras.saving.deserialize_keras_object(config["bottleneck"])
        return super().from_config({**config, "bottleneck": bottleneck})


def _without_repeats(ids):
    """Ids [B, L] without those that follow themselves, padding moved to the end."""
    before = ops.pad(ids, [[0, 0], [1, 0]])[:, :-1]
    gone = (ids == before) | (ids == PAD_ID)
    order = tf.argsort(tf.cast(gone, tf.int32), axis=1, stable=True)
    return tf.gather(ops.where(gone, PAD_ID, ids), order, batch_dims=1)
