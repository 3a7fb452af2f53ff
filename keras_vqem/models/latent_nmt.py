"""LatentNMT: the paper's translator, through a few discrete codes."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem import replicas
from keras_vqem.ids import PAD_ID
from keras_vqem.layers import (
    DiscreteBottleneck,
    SequenceCompressor,
    TransformerDecoder,
)
from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models import code_sequences, compiled, latent_training
from keras_vqem.models.latent_predictor import LatentPredictor
from keras_vqem.models.latent_translation import LatentTranslation
from keras_vqem.models.word_outputs import PositionwiseOutput


@keras.saving.register_keras_serializable(package="keras_vqem")
class LatentNMT(LatentTranslation):
    """Translates by predicting a few codes, then writing all words at once.

    During training, a compressor makes the target `2 ** num_compress_steps` times
    shorter, and the bottleneck turns each of the resulting vectors into a code. A
    decoder that sees all positions rebuilds all words of the target at once from the
    codes and the source. A latent predictor learns to predict the codes from the
    source.

    To translate, the predictor writes codes one by one until it predicts the end. The
    decoder then writes all words in one pass, up to the first end of sentence.

    Args:
        tokenizer: A `keras_vqem.text.SentencePieceTokenizer`, or an object with the
            same `vocabulary_size`, `encode` and `decode`.
        bottleneck: A `keras_vqem.layers.DiscreteBottleneck`, such as
            `VQEMBottleneck`.
        num_compress_steps: Number of times the target is halved, n_c in the paper. One
            code stands for `2 ** num_compress_steps` tokens.
        word_output: How words are written. None or a `PositionwiseOutput`, as in the
            paper: codes are made longer again, and each position writes one word. A
            `CTCOutput`: positions are made of the source, codes are added to them, and
            words are read off by CTC. A `CausalOutput`: as the first, with the causal
            decoder of the paper.
        attend_source: Whether the compressor also attends to the source.
        hidden_dim: Size of embeddings and hidden states, and of the vectors in the
            codebook.
        num_encoder_layers: Number of Transformer blocks of the source encoder.
        num_decoder_layers: Number of Transformer blocks of the decoder.
        num_predictor_layers: Number of Transformer blocks of the latent predictor.
        num_heads: Number of attention heads.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        dropout: Dropout rate after embeddings, attention, convolutions and
            feed-forward layers.
        bypass_steps: Number of training steps in which some sentences bypass the
            bottleneck: the decoder gets the compressor's vectors. The share of such
            sentences falls linearly from 1 to 0. The decoder thus learns to use its
            input before codes mean much; without the bypass it learns to ignore the
            codes, and they die.
        predicted_share: Share of sentences, once `bypass_steps` are over, whose decoder
            input is made of predicted codes instead of the true ones. Each code is
            predicted from the true codes before it. The decoder thus learns to cope
            with the predictor's mistakes.
        prior_weight: Weight of the latent predictor in the E step of training. Codes
            are then drawn from the posterior under the predictor's distribution
            instead of a uniform one, so that they are codes that it can predict. The
            weight rises from 0 to this value over `bypass_steps`. It needs a
            bottleneck that takes `prior_logits`, such as `VQEMBottleneck`. The
            predictor sees the nearest codes rather than the drawn ones before a code,
            which is an approximation.
        styles: Dict from names to codes, for example `{"formal": 10}`: what a
            translation is like if that code comes first. None if no codes have names.
            `recipes/name_codes.py` finds such codes.
        **kwargs: `generation_config`, `low_score` and `causal_encoder` of
            `keras_vqem.models.translator.Translator`, and arguments of `keras.Model`.

    Call arguments:
        inputs: Dict of int32 ids, padded with 0, with id 1 at the end of each
            sentence: `source_ids` `[B, S]` and `target_ids` `[B, T]`.

    Returns:
        A dict of tensors, where `N` is the number of codes per sentence:

        - `logits`: `[B, P, vocabulary_size]`, of the words at each position.
        - `code_logits`: `[B, N + 1, num_codes + 1]`, of the latent predictor.
        - `codes`: int32 `[B, N]`, codes of the target, groups in a row.
        - `samples`: int32 `[B, N, m]`, sampled codes of the target.
        - `code_mask`: booleans `[B, N]`, False for padding.

    Metrics:
        - `token_nll`: Cross entropy of the words, in nats per token, without label
          smoothing.
        - `code_nll`: Cross entropy of the codes, in nats per code.
        - `bottleneck_loss`: Loss added by the bottleneck.
        - `unfit`: Share of targets that do not fit the positions, of a `CTCOutput`.
        - Metrics of the bottleneck.

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
        word_output: PositionwiseOutput | None = None,
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
        prior_weight: float = 0.0,
        styles: dict[str, int] | None = None,
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
        if not isinstance(bottleneck, DiscreteBottleneck):
            raise ValueError(
                f"LatentNMT needs codes, and {type(bottleneck).__name__} has none. "
                f"Use a discrete bottleneck such as keras_vqem.layers.VQEMBottleneck."
            )
        if prior_weight and not isinstance(bottleneck, CodebookBottleneck):
            raise ValueError(
                f"prior_weight={prior_weight} needs a bottleneck with a codebook, such "
                f"as VQEMBottleneck, received {type(bottleneck).__name__}. Leave "
                f"`prior_weight` out."
            )
        self.bottleneck = bottleneck
        self.num_compress_steps = num_compress_steps
        self.attend_source = attend_source
        self.num_decoder_layers = num_decoder_layers
        self.num_predictor_layers = num_predictor_layers
        self.bypass_steps = bypass_steps
        self.predicted_share = predicted_share
        self.prior_weight = prior_weight
        self.styles = styles
        policy = self.dtype_policy
        self.compressor = SequenceCompressor(
            num_compress_steps,
            dropout,
            num_heads=num_heads if attend_source else None,
            name="compressor",
            dtype=policy,
        )
        self.word_output = word_output or PositionwiseOutput()
        self._output_layers = self.word_output.attach(self)
        self.decoder = TransformerDecoder(
            num_decoder_layers,
            num_heads,
            intermediate_dim,
            dropout,
            causal=self.word_output.causal,
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

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        shape = (None, None, self.hidden_dim)
        for layer in (
            self.compressor,
            self.bottleneck,
            *self._output_layers,
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

    # To the codes and back.

    def _write(
        self, latents, code_mask, memory, memory_mask, training=None, target_ids=None
    ):
        """Logits [B, P, V] of the words at all positions, and their mask [B, P]."""

        def write(latents, code_mask, memory, memory_mask):
            x, mask, memory, memory_mask = self.word_output.decoder_inputs(
                self, latents, code_mask, memory, memory_mask, training, target_ids
            )
            x = x + position_signal(ops.shape(x)[1], self.hidden_dim, dtype=x.dtype)
            x = self.decoder(
                x, memory, mask=mask, memory_mask=memory_mask, training=training
            )
            return self.embedding(x, reverse=True), mask

        return compiled.part(write, latents, code_mask, memory, memory_mask)

    # Training.

    @property
    def _shared_layers(self):
        return (*super()._shared_layers, *self.word_output.shared_layers)

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> dict[str, tf.Tensor]:
        target_ids = inputs["target_ids"]
        memory, memory_mask = self.encode_source(inputs["source_ids"], training)
        vectors, mask = latent_training.compress(
            self, target_ids, memory, memory_mask, training
        )
        prior = {}
        if training and self.prior_weight:
            prior["prior_logits"] = latent_training.prior_logits(
                self, vectors, memory, memory_mask
            )
        found = self.bottleneck(vectors, mask=mask, training=training, **prior)
        codes = code_sequences.flatten_groups(found["codes"])
        code_logits = self.predictor(
            codes, memory, memory_mask=memory_mask, training=training
        )
        latents, gold = found["quantized"], None
        if training:
            latents = latent_training.mix(self, vectors, latents, code_logits)
            gold = target_ids
        logits, _ = self._write(latents, mask, memory, memory_mask, training, gold)
        return {
            "logits": logits,
            "code_logits": code_logits,
            "codes": codes,
            "samples": code_sequences.flatten_groups(found["samples"], tail=1),
            "code_mask": ops.repeat(mask, self._num_groups, axis=1),
        }

    def _loss_terms(self, inputs, outputs):
        yield self.word_output.loss_term(self, outputs["logits"], inputs)
        loss, weights = code_sequences.soft_cross_entropy(
            outputs["code_logits"],
            outputs["samples"],
            outputs["code_mask"],
            self.predictor.end_code,
        )
        yield self.code_nll, {"loss": loss, "metric": loss}, weights

    def _loss_counts(self, inputs):
        block = 2**self.num_compress_steps
        vectors = inputs["target_ids"][:, ::block] != PAD_ID
        codes = ops.repeat(vectors, self._num_groups, axis=1)
        return [
            self.word_output.loss_count(inputs),
            ops.sum(code_sequences.code_weights(codes)),
            ops.sum(ops.cast(vectors, "float32")),
        ]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "bottleneck": keras.saving.serialize_keras_object(self.bottleneck),
            "num_compress_steps": self.num_compress_steps,
            "word_output": keras.saving.serialize_keras_object(self.word_output),
            "attend_source": self.attend_source,
            "num_decoder_layers": self.num_decoder_layers,
            "num_predictor_layers": self.num_predictor_layers,
            "bypass_steps": self.bypass_steps,
            "predicted_share": self.predicted_share,
            "prior_weight": self.prior_weight,
            "styles": self.styles,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LatentNMT":
        # Models of earlier versions have no `word_output`.
        objects = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("bottleneck", "word_output")
            if name in config
        }
        return super().from_config({**config, **objects})
