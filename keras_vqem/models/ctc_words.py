"""Words by CTC: positions made of source states, their loss, and the score of words.

Used by `CTCTranslator` and by `CTCOutput` of `LatentNMT`. The blank is id 0.
"""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.ids import PAD_ID
from keras_vqem.layers import ctc_loss
from keras_vqem.layers.ctc_loss import checked_targets


def positions(
    memory: tf.Tensor, memory_mask: tf.Tensor, upsampler: keras.layers.Dense
) -> tuple[tf.Tensor, tf.Tensor]:
    """Turns each source state into several positions, side by side.

    Args:
        memory: Source states `[B, S, D]`.
        memory_mask: Booleans `[B, S]`, False for padding.
        upsampler: A dense layer of size `n * D`, where `n` is the number of positions
            per source state.

    Returns:
        A tuple `(x, mask)`: vectors `[B, S * n, D]` and booleans `[B, S * n]`.
    """
    rows, length, width = ops.shape(memory)
    upsample = upsampler.units // memory.shape[-1]
    x = ops.reshape(upsampler(memory), (rows, length * upsample, width))
    return x, position_mask(memory_mask, upsample)


def position_mask(memory_mask: tf.Tensor, upsample: int) -> tf.Tensor:
    """Returns booleans `[B, S * upsample]` for a mask `[B, S]` of the source."""
    return ops.repeat(memory_mask, upsample, axis=1)


def loss_term(
    logits: tf.Tensor,
    target_ids: tf.Tensor,
    mask: tf.Tensor,
    label_smoothing: float,
    unfit: keras.metrics.Mean,
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Computes the CTC loss per token of each sentence, and the sentences' weights.

    Args:
        logits: Floats `[B, P, V]`.
        target_ids: int32 `[B, T]`, padded with 0.
        mask: Booleans `[B, P]`, False for positions that are not there.
        label_smoothing: Share of each position's label that is spread over all ids.
        unfit: Metric to update with the share of targets that do not fit.

    Returns:
        A tuple `(values, weights)`, as in the terms of `Translator.task_loss`.
    """
    plain, fits = ctc_loss(logits, target_ids, mask, blank_id=PAD_ID)
    loss = plain
    if label_smoothing:
        logits = ops.cast(logits, "float32")
        uniform = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
        uniform = ops.sum(uniform * ops.cast(mask, "float32"), axis=1)
        loss = (1.0 - label_smoothing) * plain + label_smoothing * uniform
    tokens = _num_tokens(target_ids)
    unfit.update_state(
        ops.cast(~fits, "float32"), sample_weight=ops.minimum(tokens, 1.0)
    )
    # A sentence counts by its tokens, so that the mean is one over tokens.
    number = ops.maximum(tokens, 1.0)
    values = {"loss": loss / number, "metric": plain / number}
    return values, weights(target_ids, mask)


def weights(target_ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes the weights of `loss_term` from the targets alone.

    Args:
        target_ids: int32 `[B, T]`, padded with 0.
        mask: Booleans `[B, P]`, False for positions that are not there.

    Returns:
        float32 `[B]`: the number of tokens of each target that fits its positions.
    """
    fits = checked_targets(target_ids, mask)[-1]
    return _num_tokens(target_ids) * ops.cast(fits, "float32")


def without_padding(ids: tf.Tensor) -> tf.Tensor:
    """Cuts ids `[..., P]` after the longest row, as positions outnumber words."""
    longest = ops.max(ops.sum(ops.cast(ids != PAD_ID, "int32"), -1), initial=0)
    return ids[..., :longest]


def log_prob(logits: tf.Tensor, mask: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Computes the log probability of ids, summed over all alignments.

    Args:
        logits: Floats `[B, P, V]`.
        mask: Booleans `[B, P]`, False for positions that are not there.
        ids: int32 `[B, L]`, padded with 0.

    Returns:
        float32 `[B]`, minus infinity for ids that do not fit the positions.
    """
    loss, fits = ctc_loss(logits, ids, mask, blank_id=PAD_ID)
    return ops.where(fits, -loss, -float("inf"))


def mean_log_prob(logits: tf.Tensor, mask: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns log probabilities `[B]` of ids `[B, L]` per token; -1e9 for no ids."""
    tokens = _num_tokens(ids)
    found = log_prob(logits, mask, ids)
    return ops.where(tokens > 0, found / ops.maximum(tokens, 1.0), -1e9)


def _num_tokens(ids: Any) -> tf.Tensor:
    """float32 [B]: the number of ids [B, L] that are not padding."""
    return ops.sum(ops.cast(ids != PAD_ID, "float32"), axis=1)
