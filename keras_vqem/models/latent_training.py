"""Training of a LatentNMT: targets to vectors, and what the decoder gets to see."""

from typing import TYPE_CHECKING

import keras
import tensorflow as tf
from keras import ops

from keras_vqem import micro_batches
from keras_vqem.ids import PAD_ID
from keras_vqem.models import code_sequences

if TYPE_CHECKING:
    from keras_vqem.models.latent_nmt import LatentNMT


def compress(
    model: "LatentNMT",
    target_ids: tf.Tensor,
    memory: tf.Tensor,
    memory_mask: tf.Tensor,
    training: bool | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Makes targets shorter, one vector for each code to come.

    Args:
        model: A `LatentNMT`.
        target_ids: int32 `[B, T]`, padded with 0.
        memory: Source states `[B, S, D]`.
        memory_mask: Booleans `[B, S]`, False for padding.
        training: Whether dropout is applied.

    Returns:
        A tuple of vectors `[B, positions, D]` and their mask `[B, positions]`.
    """
    block = 2**model.num_compress_steps
    target_ids = ops.pad(target_ids, [[0, 0], [0, -ops.shape(target_ids)[1] % block]])
    mask = target_ids != PAD_ID
    x = model.embedding_dropout(model.embedding(target_ids), training=training)
    x = model.compressor(
        x * ops.cast(mask, x.dtype)[..., None],
        mask=mask,
        memory=memory,
        memory_mask=memory_mask,
        training=training,
    )
    return x, mask[:, ::block]


def prior_logits(
    model: "LatentNMT",
    vectors: tf.Tensor,
    memory: tf.Tensor,
    memory_mask: tf.Tensor,
) -> tf.Tensor:
    """Computes the prior of the E step: what the predictor says after nearest codes.

    Args:
        model: A `LatentNMT` with a `prior_weight`.
        vectors: Vectors `[B, positions, D]` of the compressor.
        memory: Source states `[B, S, D]`.
        memory_mask: Booleans `[B, S]`, False for padding.

    Returns:
        Weighted log probabilities `[B, positions, K]`, or `[B, positions, G, K]` with
        `G` groups, without a gradient.
    """
    nearest = model.bottleneck.encode(vectors)
    codes = code_sequences.flatten_groups(nearest)
    logits = model.predictor(codes, memory, memory_mask=memory_mask, training=False)
    logits = ops.cast(logits[:, :-1, : model.predictor.end_code], "float32")
    weight = model.prior_weight
    if model.bypass_steps:
        step = ops.cast(model.steps, "float32")
        weight = weight * ops.minimum(step / model.bypass_steps, 1.0)
    found = weight * tf.nn.log_softmax(logits)
    shape = (*ops.shape(nearest), model.predictor.end_code)
    return ops.stop_gradient(ops.reshape(found, shape))


def mix(
    model: "LatentNMT",
    vectors: tf.Tensor,
    quantized: tf.Tensor,
    code_logits: tf.Tensor,
) -> tf.Tensor:
    """Chooses for each sentence what the decoder sees during training.

    Args:
        model: A `LatentNMT`, whose step is counted.
        vectors: Vectors `[B, positions, D]` of the compressor.
        quantized: The same through the bottleneck.
        code_logits: Logits `[B, N + 1, num_codes + 1]` of the latent predictor.

    Returns:
        Vectors `[B, positions, D]`.
    """
    step = ops.cast(model.steps, "float32")
    if micro_batches.is_last():
        model.steps.assign(model.steps + 1)
    draws = keras.random.uniform(
        (2, ops.shape(vectors)[0], 1, 1), dtype="float32", seed=model.seed_generator
    )
    latents = quantized
    if model.predicted_share:
        best = tf.argmax(
            code_logits[:, :-1, : model.predictor.end_code],
            axis=-1,
            output_type=tf.int32,
        )
        predicted = model.latents(best)
        share = ops.where(step < model.bypass_steps, 0.0, model.predicted_share)
        latents = ops.where(draws[0] < share, ops.stop_gradient(predicted), latents)
    if model.bypass_steps:
        latents = ops.where(draws[1] < step / model.bypass_steps, latents, vectors)
    return latents
