"""How a LatentNMT writes words from codes: one word per position, or by CTC."""

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.checks import whole_number
from keras_vqem.decoding import ctc_best_path
from keras_vqem.ids import EOS_ID, PAD_ID
from keras_vqem.layers import SequenceDecompressor
from keras_vqem.layers.position_signal import position_signal
from keras_vqem.layers.row_dense import RowDense
from keras_vqem.models import ctc_words
from keras_vqem.models.token_scores import cross_entropy, read_positions

if TYPE_CHECKING:
    from keras_vqem.models.latent_nmt import LatentNMT


@keras.saving.register_keras_serializable(package="keras_vqem")
class PositionwiseOutput:
    """Each code becomes `2 ** num_compress_steps` positions, each writes one word.

    This is the output of the paper. The number of codes sets the length of a
    translation, and each position has to find its word by itself, so a word may be
    written twice or be lost between two positions.

    Example:

    >>> keras_vqem.models.PositionwiseOutput().get_config()
    {}
    """

    # Layers that `Translator.warm_start` copies if the teacher has them too.
    shared_layers: tuple[str, ...] = ()
    # Whether positions of the decoder attend to earlier ones only.
    causal = False

    def attach(self, model: "LatentNMT") -> list[keras.layers.Layer]:
        """Creates the layers of the output in a model, and returns them."""
        model.decompressor = SequenceDecompressor(
            model.num_compress_steps,
            model.dropout,
            name="decompressor",
            dtype=model.dtype_policy,
        )
        return [model.decompressor]

    def decoder_inputs(
        self,
        model: "LatentNMT",
        latents: tf.Tensor,
        code_mask: tf.Tensor,
        memory: tf.Tensor,
        memory_mask: tf.Tensor,
        training: bool | None = None,
        target_ids: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Makes the decoder's positions, and the memory that it attends to.

        Args:
            model: The `LatentNMT`.
            latents: Vectors `[B, N, D]` of the codes.
            code_mask: Booleans `[B, N]`, False for padding.
            memory: Source states `[B, S, D]`.
            memory_mask: Booleans `[B, S]`, False for padding.
            training: Whether dropout is applied.
            target_ids: int32 `[B, T]`, true words, given in training only.

        Returns:
            A tuple of vectors `[B, P, D]`, their mask `[B, P]`, the memory, and its
            mask.
        """
        x = model.decompressor(latents, mask=code_mask, training=training)
        mask = ops.repeat(code_mask, 2**model.num_compress_steps, axis=1)
        return x, mask, memory, memory_mask

    def loss_term(
        self, model: "LatentNMT", logits: tf.Tensor, inputs: dict[str, tf.Tensor]
    ) -> tuple:
        """Returns the term of `Translator.task_loss` for logits `[B, P, V]`."""
        target_ids = inputs["target_ids"]
        return model._token_loss(logits[:, : ops.shape(target_ids)[1]], target_ids)

    def loss_count(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the sum of the weights of `loss_term`."""
        return ops.sum(ops.cast(inputs["target_ids"] != PAD_ID, "float32"))

    def read(
        self, logits: tf.Tensor, mask: tf.Tensor, blank_bias: float = 0.0
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Reads words off positions.

        Args:
            logits: Floats `[B, P, V]`.
            mask: Booleans `[B, P]`, False for positions that are not there.
            blank_bias: 0. Only CTC has a blank.

        Returns:
            A tuple `(ids, scores)`: int32 `[B, L]`, up to the first end symbol, then 0;
            and the mean log probability of the ids, `[B]`.
        """
        if blank_bias:
            raise ValueError(
                f"blank_bias={blank_bias} is for a LatentNMT with CTCOutput. This "
                f"model writes one word per position and has no blank: leave it out."
            )
        return read_positions(logits, mask)

    def log_prob(self, logits: tf.Tensor, mask: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Computes the log probability of words.

        Args:
            logits: Floats `[B, P, V]`.
            mask: Booleans `[B, P]`, False for positions that are not there.
            ids: int32 `[B, L]`, ended by id 1 and padded with 0.

        Returns:
            float32 `[B]`, minus infinity for words that do not fit the positions.
        """
        positions = ops.shape(mask)[1]
        ids = ops.pad(ids, [[0, 0], [0, positions]])
        fits = ops.all(ids[:, positions:] == PAD_ID, axis=1)
        ids = ids[:, :positions]
        there = ids != PAD_ID
        fits &= ops.all(mask | ~there, axis=1)
        found = cross_entropy(logits, ids)[1] * ops.cast(there, "float32")
        return ops.where(fits, -ops.sum(found, axis=1), -float("inf"))

    def get_config(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "PositionwiseOutput":
        return cls(**config)


@keras.saving.register_keras_serializable(package="keras_vqem")
class CTCOutput(PositionwiseOutput):
    """Each source token becomes several positions; words are read off them by CTC.

    The positions are those of `CTCTranslator`, so the number of codes does not set the
    length of a translation. Codes say how to translate, and the source says what: each
    position gets the code at its place in the sentence, and the decoder attends to all
    codes beside the source.

    Args:
        upsample: Number of positions per source token.

    Example:

    >>> from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer
    >>> corpus = ParallelCorpus.from_numbers(500, seed=0)
    >>> tokenizer = SentencePieceTokenizer.train(
    ...     corpus.sources + corpus.targets, vocabulary_size=400)
    >>> model = keras_vqem.models.LatentNMT(
    ...     tokenizer, keras_vqem.layers.VQEMBottleneck(num_codes=16),
    ...     word_output=keras_vqem.models.CTCOutput(upsample=2), hidden_dim=32,
    ...     num_encoder_layers=1, num_decoder_layers=1, num_predictor_layers=1,
    ...     num_heads=2, intermediate_dim=64)
    >>> model.build()
    >>> len(model.translate(["twenty-one"], blank_bias=-1.0))
    1
    """

    shared_layers = ("upsampler",)

    def __init__(self, upsample: int = 2):
        self.upsample = whole_number("upsample", upsample, 1)

    def attach(self, model: "LatentNMT") -> list[keras.layers.Layer]:
        def dense(name, units):
            return RowDense(units, name=name, dtype=model.dtype_policy)

        model.upsampler = dense("upsampler", self.upsample * model.hidden_dim)
        model.code_dense = dense("code_dense", model.hidden_dim)
        model.unfit = keras.metrics.Mean(name="unfit")
        return [model.upsampler, model.code_dense]

    def decoder_inputs(
        self,
        model: "LatentNMT",
        latents: tf.Tensor,
        code_mask: tf.Tensor,
        memory: tf.Tensor,
        memory_mask: tf.Tensor,
        training: bool | None = None,
        target_ids: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        x, mask = ctc_words.positions(memory, memory_mask, model.upsampler)
        codes = model.code_dense(latents)
        codes = ops.where(code_mask[..., None], codes, ops.zeros_like(codes))
        places = _places(mask, code_mask)
        x = x + tf.gather(codes, places, batch_dims=1)
        codes = codes + position_signal(
            ops.shape(codes)[1], model.hidden_dim, dtype=codes.dtype
        )
        memory = ops.concatenate([memory, codes], axis=1)
        return x, mask, memory, ops.concatenate([memory_mask, code_mask], axis=1)

    def loss_term(
        self, model: "LatentNMT", logits: tf.Tensor, inputs: dict[str, tf.Tensor]
    ) -> tuple:
        mask = ctc_words.position_mask(inputs["source_ids"] != PAD_ID, self.upsample)
        values, weights = ctc_words.loss_term(
            logits, inputs["target_ids"], mask, model.label_smoothing, model.unfit
        )
        return model.token_nll, values, weights

    def loss_count(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        mask = ctc_words.position_mask(inputs["source_ids"] != PAD_ID, self.upsample)
        return ops.sum(ctc_words.weights(inputs["target_ids"], mask))

    def read(
        self, logits: tf.Tensor, mask: tf.Tensor, blank_bias: float = 0.0
    ) -> tuple[tf.Tensor, tf.Tensor]:
        ids = ctc_best_path(
            logits, EOS_ID, mask, blank_id=PAD_ID, blank_bias=blank_bias
        )
        ids = ctc_words.without_padding(ids)
        return ids, ctc_words.mean_log_prob(logits, mask, ids)

    def log_prob(self, logits: tf.Tensor, mask: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return ctc_words.log_prob(logits, mask, ids)

    def get_config(self) -> dict[str, Any]:
        return {"upsample": self.upsample}


def _places(mask, code_mask):
    """int32 [B, P]: for each position, the code at the same share of its sentence."""
    total = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
    number = ops.sum(ops.cast(code_mask, "int32"), axis=1, keepdims=True)
    place = ops.cumsum(ops.cast(mask, "int32"), axis=1) - 1
    places = ops.maximum(place, 0) * number // ops.maximum(total, 1)
    return ops.clip(places, 0, ops.maximum(number - 1, 0))
