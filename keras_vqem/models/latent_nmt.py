"""LatentNMT: the paper's translator, through a few discrete codes."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem import replicas
from keras_vqem.layers import (
    DiscreteBottleneck,
    SequenceCompressor,
    TransformerDecoder,
)
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models import code_sequences, latent_search, latent_training
from keras_vqem.models import translation_endpoints as endpoints
from keras_vqem.models.latent_predictor import LatentPredictor
from keras_vqem.models.transformer import Transformer
from keras_vqem.models.translator import Translator, with_generation_config
from keras_vqem.models.word_outputs import PositionwiseOutput


@keras.saving.register_keras_serializable(package="keras_vqem")
class LatentNMT(Translator):
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
            words are read off by CTC.
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
        styles: Dict from names to codes, for example `{"formal": 10}`: what a
            translation is like if that code comes first. None if no codes have names.
            `recipes/name_codes.py` finds such codes.
        **kwargs: `generation_config` and `low_score` of
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
        self.bottleneck = bottleneck
        self.num_compress_steps = num_compress_steps
        self.attend_source = attend_source
        self.num_decoder_layers = num_decoder_layers
        self.num_predictor_layers = num_predictor_layers
        self.bypass_steps = bypass_steps
        self.predicted_share = predicted_share
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

    def _write(self, latents, code_mask, memory, memory_mask, training=None):
        """Logits [B, P, V] of the words at all positions, and their mask [B, P]."""
        x, mask, memory, memory_mask = self.word_output.decoder_inputs(
            self, latents, code_mask, memory, memory_mask, training
        )
        x = x + position_signal(ops.shape(x)[1], self.hidden_dim, dtype=x.dtype)
        x = self.decoder(
            x, memory, mask=mask, memory_mask=memory_mask, training=training
        )
        return self.embedding(x, reverse=True), mask

    def latents(self, codes: tf.Tensor) -> tf.Tensor:
        """Returns vectors `[B, positions, D]` for codes `[B, N]`."""
        codes = code_sequences.unflatten_groups(codes, self.bottleneck)
        return self.bottleneck.decode(codes)

    @property
    def _num_groups(self):
        return self.bottleneck.groups.num_groups

    # Training.

    def call(
        self, inputs: dict[str, tf.Tensor], training: bool | None = None
    ) -> dict[str, tf.Tensor]:
        target_ids = inputs["target_ids"]
        memory, memory_mask = self.encode_source(inputs["source_ids"], training)
        vectors, mask = latent_training.compress(
            self, target_ids, memory, memory_mask, training
        )
        found = self.bottleneck(vectors, mask=mask, training=training)
        codes = code_sequences.flatten_groups(found["codes"])
        code_logits = self.predictor(
            codes, memory, memory_mask=memory_mask, training=training
        )
        latents = found["quantized"]
        if training:
            latents = latent_training.mix(self, vectors, latents, code_logits)
        logits, _ = self._write(latents, mask, memory, memory_mask, training)
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

    def task_loss(
        self, inputs: dict[str, tf.Tensor], outputs: dict[str, tf.Tensor]
    ) -> tf.Tensor:
        self.bottleneck_loss.update_state(sum(self.losses))
        return super().task_loss(inputs, outputs)

    # Translation.

    @property
    def styles(self) -> dict[str, int]:
        """Names of codes that may come first; see the argument of that name."""
        return dict(self._styles.by_name)

    @styles.setter
    def styles(self, styles):
        styles = dict(styles or {})
        for name, code in styles.items():
            if not name or not 0 <= code < self.bottleneck.num_codes:
                raise ValueError(
                    f"`styles` maps names to codes below {self.bottleneck.num_codes}, "
                    f"received {name!r}: {code!r}."
                )
        self._styles = latent_search.Styles(styles)

    def encode_ids(self, source_ids: ArrayLike, target_ids: ArrayLike) -> tf.Tensor:
        """Encodes target sentences to codes.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            target_ids: int32 `[B, T]`, their translations, padded with 0.

        Returns:
            int32 `[B, N]`, codes, followed by `num_codes` from a sentence's end on.
        """
        memory, memory_mask = self.encode_source(source_ids)
        vectors, mask = latent_training.compress(self, target_ids, memory, memory_mask)
        codes = code_sequences.flatten_groups(self.bottleneck.encode(vectors))
        mask = ops.repeat(mask, self._num_groups, axis=1)
        return ops.where(mask, codes, self.predictor.end_code)

    def decode_ids(
        self,
        source_ids: ArrayLike,
        codes: ArrayLike,
        drop_repeats: bool = False,
        blank_bias: float = 0.0,
    ) -> tf.Tensor:
        """Writes the words for source sentences and codes.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            codes: int32 `[B, N]`, codes as `encode_ids` returns them.
            drop_repeats: Whether to leave out an id that equals the one before it.
            blank_bias: Number to add to the blank's logit, as in `generate`.

        Returns:
            int32 `[B, L]`, ids of the translations, padded with 0.
        """
        memory, memory_mask = self.encode_source(source_ids)
        ids = self.write_words(codes, memory, memory_mask, blank_bias)[0]
        return latent_search.without_repeats(ids) if drop_repeats else ids

    def write_words(
        self,
        codes: tf.Tensor,
        memory: tf.Tensor,
        memory_mask: tf.Tensor,
        blank_bias: float = 0.0,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns ids `[B, L]` for codes `[B, N]` and a memory, and scores `[B]`."""
        codes, there = code_sequences.whole_positions(
            codes, self._num_groups, self.predictor.end_code
        )
        logits, mask = self._write(self.latents(codes), there, memory, memory_mask)
        return self.word_output.read(logits, mask, blank_bias)

    def max_codes_for(self, source_tokens: int | tf.Tensor) -> int | tf.Tensor:
        """Returns the number of codes for `2 * source_tokens + 10` target tokens."""
        positions = -(-(2 * source_tokens + 10) // 2**self.num_compress_steps)
        return positions * self._num_groups

    @with_generation_config
    def generate(
        self,
        source_ids: ArrayLike,
        num_beams: int = 1,
        length_penalty: float = 0.6,
        min_codes: int = 0,
        max_codes: int | tf.Tensor | None = None,
        end_threshold: float | None = None,
        drop_repeats: bool = False,
        blank_bias: float = 0.0,
        style: str | None = None,
        first_code: int | tf.Tensor | None = None,
        rescorer: Transformer | None = None,
    ) -> dict[str, tf.Tensor]:
        """Translates ids: codes one by one, then all words at once.

        Pass options by keyword. An option that is not passed is taken from
        `generation_config`, and else has the default given here.

        Args:
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            num_beams: Number of code sequences per sentence. With 1, codes are chosen
                greedily. With more, a beam search finds the sequences, the decoder
                writes the words of all of them at once, and the translation with the
                highest mean log probability of its words wins: the decoder tells
                which codes make sense together.
            length_penalty: Exponent of the length in the beam search over codes, as in
                `keras_vqem.decoding.beam_search`.
            min_codes: Minimum number of codes, the end not counted.
            max_codes: Maximum number of codes, the end not counted: an integer, or a
                tensor `[B]` with one limit per row. None allows a translation of
                twice the length of the source plus 10 tokens.
            end_threshold: Probability above which a sequence of codes ends; below it,
                codes go on. None treats the end as any other code. Where codes are
                hard to predict, the end can be more probable than every single code,
                and still improbable.
            drop_repeats: Whether to leave out an id that equals the one before it. A
                decoder that writes all words at once sometimes writes a word twice;
                but with a vocabulary that spells numbers, the 1 of 11 repeats
                rightly.
            blank_bias: Number to add to the blank's logit at each position of a
                `CTCOutput`. Negative values give longer translations.
            style: Name of the code that comes first, one of `styles`. None leaves the
                first code to the predictor.
            first_code: Code that comes first, instead of a `style`: an integer, or a
                tensor `[B]`, -1 for rows whose first code is predicted.
            rescorer: A trained `Transformer` with the same tokenizer, for example the
                teacher. It chooses among the translations of the beams instead of the
                decoder, and scores all of them in one pass.

        Returns:
            A dict of tensors:

            - `target_ids`: int32 `[B, L]`, with id 1 at the end of each row, unless
              it was cut, then padded with 0.
            - `scores`: `[B]`, mean log probability of the words, under the rescorer
              if there is one.
            - `codes`: int32 `[B, N]`, followed by `num_codes` from the end on.
        """
        return latent_search.search(
            self,
            source_ids,
            num_beams,
            drop_repeats,
            blank_bias,
            rescorer,
            end_threshold=end_threshold,
            first_code=self._styles.first_code(style, first_code),
            max_length=None if max_codes is None else max_codes + 1,
            min_length=min_codes,
            length_penalty=length_penalty,
        )

    def _endpoints(self, max_tokens, options):
        return {
            **super()._endpoints(max_tokens, options),
            **endpoints.of_codes(self, max_tokens, options),
        }

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
