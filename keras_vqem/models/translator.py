"""Translator: base class with source encoder, token loss, compile and translate."""

import os
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.ids import PAD_ID
from keras_vqem.layers import (
    ReplicaDropout,
    TiedEmbedding,
    TransformerEncoder,
)
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.models import compiled
from keras_vqem.models import translation_endpoints as endpoints
from keras_vqem.models.generation import Generation
from keras_vqem.models.graphs import Graphs
from keras_vqem.models.int8_weights import Int8Weights
from keras_vqem.models.precision import in_precision
from keras_vqem.models.schedules import WarmupInverseSquareRoot
from keras_vqem.models.string_methods import MAX_TOKENS, StringMethods
from keras_vqem.models.task_model import TaskModel
from keras_vqem.models.token_scores import cross_entropy


class Translator(Generation, StringMethods, TaskModel):
    """Base class of models that read `source_ids` and learn or write `target_ids`.

    A subclass has `call`, `_loss_terms(inputs, outputs)` for training, and
    `generate(source_ids, **options)`, which must work inside a graph and is decorated
    with `with_generation_config`.

    Args:
        tokenizer: A `keras_vqem.text.SentencePieceTokenizer`, or an object with the
            same `vocabulary_size`, `encode` and `decode`.
        hidden_dim: Size of embeddings and hidden states.
        num_encoder_layers: Number of Transformer blocks of the source encoder.
        num_heads: Number of attention heads.
        intermediate_dim: Size of the hidden layer of feed-forward networks.
        dropout: Dropout rate after embeddings, attention and feed-forward layers.
        generation_config: Dict of options of `generate` that apply where a call does
            not pass them, also in `translate` and `export`. It is saved with the
            model. None means the defaults of `generate`.
        low_score: Score of `generate` below which a translation is probably wrong,
            measured with `generation_config` on text like the training data. None if
            it was not measured.
        causal_encoder: Whether a position of the source sees only itself and earlier
            ones. The paper writes so of its source encoder; its authors' code lets all
            positions see each other.
        **kwargs: Arguments of `keras.Model`.
    """

    # Source tokens up to which a single call is faster than tracing its graph. A model
    # with a step per word takes too many of them one operation at a time.
    _most_tokens_untraced = 12

    def __init__(
        self,
        tokenizer: Any,
        hidden_dim: int,
        num_encoder_layers: int,
        num_heads: int,
        intermediate_dim: int,
        dropout: float,
        generation_config: dict[str, Any] | None = None,
        low_score: float | None = None,
        causal_encoder: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.generation_config = generation_config or {}
        self.low_score = low_score
        self.hidden_dim = hidden_dim
        self.num_encoder_layers = num_encoder_layers
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.label_smoothing = 0.0
        self.embedding = TiedEmbedding(
            tokenizer.vocabulary_size,
            hidden_dim,
            name="embedding",
            dtype=self.dtype_policy,
        )
        self.encoder = TransformerEncoder(
            num_encoder_layers,
            num_heads,
            intermediate_dim,
            dropout,
            causal=causal_encoder,
            name="encoder",
            dtype=self.dtype_policy,
        )
        self.embedding_dropout = ReplicaDropout(dropout, dtype=self.dtype_policy)
        self.token_nll = keras.metrics.Mean(name="token_nll")
        self._graphs = Graphs()

    def build(self, input_shape: Any = None) -> None:
        self.embedding.build()
        self.encoder.build((None, None, self.hidden_dim))

    # Training.

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer | str = "auto",
        label_smoothing: float = 0.1,
        **kwargs: Any,
    ) -> None:
        """Configures training, with defaults that suit a translator.

        Args:
            optimizer: Optimizer as in `keras.Model.compile`. `"auto"` is Adam as in
                the Transformer paper, whose learning rate rises linearly to 0.002
                over 1,000 steps and then falls with the inverse square root of the
                step.
            label_smoothing: Share of each target label that is spread evenly over the
                vocabulary.
            **kwargs: Arguments of `keras.Model.compile` except `loss`, which the model
                computes itself.
        """
        self.label_smoothing = label_smoothing
        super().compile(optimizer=optimizer, **kwargs)

    def _default_optimizer(self):
        rate = WarmupInverseSquareRoot(peak=0.002, warmup_steps=1000)
        return keras.optimizers.Adam(rate, beta_2=0.98, epsilon=1e-9)

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        if config:  # Empty if not compiled, and must stay so.
            config["label_smoothing"] = self.label_smoothing
        return config

    def _loss_counts(self, inputs):
        # The losses of layers, if any, are weighed by tokens too.
        tokens = ops.sum(ops.cast(inputs["target_ids"] != PAD_ID, "float32"))
        return [tokens, tokens]

    def _token_loss(self, logits, target_ids):
        """Returns the term of `_loss_terms` for the words of the translation."""
        loss, plain = cross_entropy(logits, target_ids, self.label_smoothing)
        weights = ops.cast(target_ids != PAD_ID, "float32")
        return self.token_nll, {"loss": loss, "metric": plain}, weights

    @property
    def _shared_layers(self):
        """Names of layers that `warm_start` copies if the teacher has them too."""
        return ("embedding", "encoder", "decoder")

    def warm_start(self, teacher: "Translator") -> None:
        """Copies the weights of a trained translator of the same sizes.

        Embedding and source encoder are the same in all translators. The decoder starts
        with the teacher's attention to the source and feed-forward layers. If both
        models write words by CTC, the layer that makes positions of source states is
        copied too. Call this before `fit`.

        Args:
            teacher: A built translator, such as a `Transformer`, with the same
                vocabulary, `hidden_dim`, `intermediate_dim`, `num_heads` and numbers of
                layers.
        """
        if not self.built:
            self.build()
        for name in self._shared_layers:
            if name not in teacher._shared_layers:
                continue
            mine, other = getattr(self, name), getattr(teacher, name)
            if [w.shape for w in mine.weights] != [w.shape for w in other.weights]:
                raise ValueError(
                    f"The {name} of the teacher differs in size from that of this "
                    f"model. Build both with the same vocabulary, hidden_dim, "
                    f"intermediate_dim, num_heads, numbers of layers and upsample."
                )
            mine.set_weights(other.get_weights())

    # The source.

    def _embed(self, ids, training=None):
        x = self.embedding(ids)
        x = x + position_signal(ops.shape(ids)[1], self.hidden_dim, dtype=x.dtype)
        return self.embedding_dropout(x, training=training)

    def encode_source(
        self, source_ids: ArrayLike, training: bool | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Encodes source sentences for the attention of a decoder.

        Args:
            source_ids: int32 `[B, S]`, padded with 0.
            training: Whether dropout is applied.

        Returns:
            A tuple `(memory, mask)`: floats `[B, S, hidden_dim]`, and booleans
            `[B, S]`, False for padding.
        """

        def encode(source_ids, mask):
            x = self._embed(source_ids, training)
            return self.encoder(x, mask=mask, training=training)

        mask = source_ids != PAD_ID
        return compiled.part(encode, source_ids, mask), mask

    # Translation.

    def translate_ids(self, source_ids: ArrayLike, **options: Any) -> tf.Tensor:
        """Returns the `target_ids` of `generate` alone, with the same options."""
        return self.generate(source_ids, **options)["target_ids"]

    def rescored(
        self,
        rescorer: keras.Model,
        source_ids: ArrayLike,
        ids: tf.Tensor,
        num_beams: int,
    ) -> tf.Tensor:
        """Scores the candidates of a search by another model, in one pass.

        Args:
            rescorer: A trained `Transformer` with the same tokenizer.
            source_ids: int32 `[B, S]`, source sentences, padded with 0.
            ids: int32 `[B * num_beams, L]`, candidates, those of a sentence in a row.
            num_beams: Number of candidates per sentence.

        Returns:
            Mean log probabilities `[B * num_beams]`.
        """
        words = self.tokenizer.vocabulary_size
        if rescorer.tokenizer.vocabulary_size != words:
            raise ValueError(
                f"The rescorer has a vocabulary of "
                f"{rescorer.tokenizer.vocabulary_size} ids, and this model has one of "
                f"{words}. Use a Transformer with the same tokenizer."
            )
        seen = rescorer.encode_source(source_ids)
        seen = (ops.repeat(x, num_beams, axis=0) for x in seen)
        return rescorer.mean_log_probs(ids, *seen)

    def translation_graph(self, jit_compile: bool = False, **options: Any) -> Callable:
        """Returns `translate_ids` with the given options as a graph, traced once.

        Args:
            jit_compile: Whether XLA compiles its parts, as in `translate`.
            **options: Options of `generate`. They override `generation_config`.

        Returns:
            A `tf.function` from `source_ids` `[B, S]`, of any B and S, to ids
            `[B, L]`, or `[B, n, L]` with `num_return_sequences=n`.
        """
        if not self.built:
            self.build()
        options = {**self.generation_config, **options}
        return self._graphs.graph(self.translate_ids, options, jit_compile=jit_compile)

    # Export.

    def export(
        self,
        filepath: str | os.PathLike,
        max_tokens: int = MAX_TOKENS,
        precision: str | None = None,
        jit_compile: bool = False,
        **options: Any,
    ) -> None:
        """Writes a SavedModel that TensorFlow Serving can load.

        Its signatures take any number of rows:

        - `serving_default`: from `texts`, strings `[B]`, to `translations`, strings
          `[B]` or `[B, num_return_sequences]`, and all that `generate` returns except
          `target_ids`.
        - `translate_ids`: from `source_ids` `[B, S]` to all that `generate` returns.
        - `encode`, of a `LatentNMT`: from `sources` and `targets`, strings `[B]`, to
          `codes`.
        - `decode`, of a `LatentNMT`: from `sources` and `codes` to `translations`.
        - `translate_with_style`, of a `LatentNMT` with styles: from `texts` and
          `styles`, strings `[B]` each, to what `serving_default` returns. A style that
          is empty or unknown leaves the first code to the predictor.

        The runtime needs the operations of tensorflow-text. The translation of a text
        without words is empty. Bytes that are not UTF-8 are read as U+FFFD.

        Args:
            filepath: Folder to write. TensorFlow Serving expects its name to be a
                version number, such as `models/translator/1`.
            max_tokens: Number of tokens after which texts and ids are cut.
            precision: Type in which weights are stored, also those of a rescorer.
                `"float32"`; `"bfloat16"`, which takes half the space and computes in
                bfloat16; or `"int8"`, which takes about a quarter and computes in
                float32: the matrices of dense and embedding layers are rounded. None
                keeps that of the model. Every CPU runs bfloat16; one without
                instructions for it is slower with it, not wrong.
            jit_compile: Whether XLA compiles parts of the graphs, as in `translate`.
                The first request of each number of rows and each length, in steps of
                eight tokens, takes seconds, so send warm-up requests of those that
                clients will send. It needs a TensorFlow with XLA for CPUs, as that of
                Python and of the C library is.
            **options: Options of `generate`, such as `num_beams`. They override
                `generation_config`. A `target_prefix` is a string.
        """
        endpoints.check_max_tokens(max_tokens)
        if not self.built:
            self.build()
        if options.get("target_prefix") is not None:
            [options["target_prefix"]] = self._prefix_rows(options["target_prefix"], 1)
        options = {
            name: in_precision(x, precision) if isinstance(x, keras.Model) else x
            for name, x in {**self.generation_config, **options}.items()
        }
        rescorers = [x for x in options.values() if isinstance(x, keras.Model)]
        model = in_precision(self, precision)
        found = model._endpoints(max_tokens, options)
        if precision == "int8":
            weights = Int8Weights(model, *rescorers)
            found = {
                name: (weights.wrap(function), signature)
                for name, (function, signature) in found.items()
            }
        if jit_compile:
            found = {
                name: (compiled.within(function), signature)
                for name, (function, signature) in found.items()
            }
        model._export(filepath, found, *rescorers)

    def _endpoints(self, max_tokens, options):
        """Returns a dict from names to functions and their signatures."""
        return endpoints.of_translator(self, max_tokens, options)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "tokenizer": keras.saving.serialize_keras_object(self.tokenizer),
            "hidden_dim": self.hidden_dim,
            "num_encoder_layers": self.num_encoder_layers,
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "generation_config": self.generation_config,
            "low_score": self.low_score,
            "causal_encoder": self.encoder.causal,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Translator":
        tokenizer = config["tokenizer"]
        if isinstance(tokenizer, dict):
            tokenizer = keras.saving.deserialize_keras_object(tokenizer)
        return super().from_config({**config, "tokenizer": tokenizer})
