"""Candidate translations of a LatentNMT: one per code sequence, the best one wins."""

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from keras import ops

from keras_vqem.decoding.ctc_best_path import left_aligned
from keras_vqem.ids import PAD_ID
from keras_vqem.models.transformer import Transformer

if TYPE_CHECKING:
    from keras_vqem.models.latent_nmt import LatentNMT


class Styles:
    """Names of first codes. TensorFlow would try to export a plain dict.

    Args:
        by_name: Dict from names to codes.
    """

    def __init__(self, by_name: dict[str, int]):
        self.by_name = by_name

    def first_code(
        self, style: str | None, first_code: int | tf.Tensor | None
    ) -> int | tf.Tensor | None:
        """Returns the code of a style, or `first_code` if there is none."""
        if style is None:
            return first_code
        if first_code is not None:
            raise ValueError(
                f"Both style={style!r} and first_code={first_code!r} say which code "
                f"comes first. Pass one of them."
            )
        if style not in self.by_name:
            known = ", ".join(map(repr, self.by_name)) or "none"
            raise ValueError(
                f"This model has no style {style!r}; it has {known}. Pass one of "
                f"these, or the number of a code as first_code."
            )
        return self.by_name[style]


def search(
    model: "LatentNMT",
    source_ids: tf.Tensor,
    num_beams: int,
    drop_repeats: bool,
    blank_bias: float,
    rescorer: Transformer | None,
    **limits: Any,
) -> dict[str, tf.Tensor]:
    """Writes the words of `num_beams` code sequences and keeps the best translation.

    Args:
        model: A `LatentNMT`.
        source_ids: int32 `[B, S]`, source sentences, padded with 0.
        num_beams: Number of code sequences per sentence.
        drop_repeats: Whether to leave out an id that equals the one before it.
        blank_bias: Number to add to the blank's logit of a `CTCOutput`.
        rescorer: A `Transformer` that scores the translations, or None for the scores
            of the model itself.
        **limits: Arguments of `LatentPredictor.search`.

    Returns:
        The dict that `LatentNMT.generate` returns.
    """
    memory, mask = model.encode_source(source_ids)
    if limits["max_length"] is None:
        max_codes = model.max_codes_for(ops.sum(ops.cast(mask, "int32"), axis=1))
        limits["max_length"] = max_codes + 1
    codes = model.predictor.search(
        memory, mask, num_beams=num_beams, all_beams=num_beams > 1, **limits
    )
    rows, length = ops.shape(source_ids)[0], ops.shape(codes)[-1]
    if num_beams > 1:
        memory, mask = (ops.repeat(x, num_beams, axis=0) for x in (memory, mask))
    flat = ops.reshape(codes, (rows * num_beams, length))
    ids, scores = model.write_words(flat, memory, mask, blank_bias)
    if drop_repeats:
        ids = without_repeats(ids)
    if rescorer is not None:
        scores = model.rescored(rescorer, source_ids, ids, num_beams)
    found = {"target_ids": ids, "scores": scores, "codes": flat}
    if num_beams == 1:
        return found
    best = tf.argmax(ops.reshape(scores, (rows, num_beams)), axis=1)
    best = best + num_beams * tf.range(rows, dtype=best.dtype)
    return {name: tf.gather(value, best) for name, value in found.items()}


def without_repeats(ids: tf.Tensor) -> tf.Tensor:
    """Removes ids that equal the one before them; padding moves to the end.

    Args:
        ids: int32 `[B, L]`, padded with 0.

    Returns:
        int32 `[B, L]`, padded with 0.
    """
    before = ops.pad(ids, [[0, 0], [1, 0]])[:, :-1]
    gone = (ids == before) | (ids == PAD_ID)
    return left_aligned(ids, ~gone, PAD_ID)
