"""CausalOutput: the word decoder of the paper, which sees earlier positions only."""

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.checks import whole_number
from keras_vqem.ids import PAD_ID
from keras_vqem.models.word_outputs import PositionwiseOutput

if TYPE_CHECKING:
    from keras_vqem.models.latent_nmt import LatentNMT


@keras.saving.register_keras_serializable(package="keras_vqem")
class CausalOutput(PositionwiseOutput):
    """Each position writes one word, and sees only what comes before it.

    The paper has "a transformer decoder with causal attention". Its inputs are shifted
    by one position, as in the authors' code: position `t` sees what the codes became at
    the positions before `t`, and 0 at the first one. `PositionwiseOutput` lets each
    position see all of it.

    **Gold targets.** The authors' code gives the decoder true words at first, as in an
    autoregressive model. With `S` the `gold_steps`, each input of the decoder is in
    training step `t` the embedding of the word itself with probability

        1 - linear(t) * exponential(t)

        linear(t) = 0.01 + 0.99 min(t / S, 1)
        exponential(t) = 0.01 ** max(1 - t / (S / 4), 0)

    and what the codes became otherwise. It is almost 1 in the first steps and 0 from
    step `S` on, which is 50,000 there. Because of the shift, no position sees its own
    word. Validation and translation never see true words; in the authors' code,
    validation does.

    Args:
        gold_steps: Number of training steps with some true words in the input of the
            decoder. 0 for none, as in the paper.

    Example:

    >>> from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer
    >>> corpus = ParallelCorpus.from_numbers(500, seed=0)
    >>> tokenizer = SentencePieceTokenizer.train(
    ...     corpus.sources + corpus.targets, vocabulary_size=400)
    >>> model = keras_vqem.models.LatentNMT(
    ...     tokenizer, keras_vqem.layers.VQEMBottleneck(num_codes=16),
    ...     word_output=keras_vqem.models.CausalOutput(), causal_encoder=True,
    ...     hidden_dim=32, num_encoder_layers=1, num_decoder_layers=1,
    ...     num_predictor_layers=1, num_heads=2, intermediate_dim=64)
    >>> model.decoder.causal, model.encoder.causal
    (True, True)
    """

    causal = True

    def __init__(self, gold_steps: int = 0):
        self.gold_steps = whole_number("gold_steps", gold_steps, 0)

    def gold_share(self, step: tf.Tensor) -> tf.Tensor:
        """Returns the probability of a true word in a training step."""
        step = ops.cast(step, "float32")
        linear = 0.01 + 0.99 * ops.minimum(step / self.gold_steps, 1.0)
        rest = ops.maximum(1.0 - step / (self.gold_steps / 4), 0.0)
        return 1.0 - linear * ops.power(0.01, rest)

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
        x, mask, *rest = super().decoder_inputs(
            model, latents, code_mask, memory, memory_mask, training
        )
        if training and self.gold_steps:
            x = self._with_gold(model, x, target_ids)
        return ops.pad(x, [[0, 0], [1, 0], [0, 0]])[:, :-1], mask, *rest

    def _with_gold(self, model, x, target_ids):
        """Replaces some of the inputs [B, P, D] by embeddings of the words [B, T]."""
        shape = ops.shape(x)
        beyond = shape[1] - ops.shape(target_ids)[1]
        target_ids = ops.pad(target_ids, [[0, 0], [0, beyond]])
        gold = model.embedding(target_ids)
        gold = gold * ops.cast(target_ids != PAD_ID, gold.dtype)[..., None]
        draws = keras.random.uniform(
            (*shape[:2], 1), dtype="float32", seed=model.seed_generator
        )
        return ops.where(draws < self.gold_share(model.steps), gold, x)

    def get_config(self) -> dict[str, Any]:
        return {"gold_steps": self.gold_steps}
