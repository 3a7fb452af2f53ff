"""Endpoints of exported translators: strings in and out, tokenizing in the graph."""

from typing import TYPE_CHECKING, Any

import tensorflow as tf
from keras import ops

from keras_vqem.checks import same_rows
from keras_vqem.ids import EOS_ID, PAD_ID, UNKNOWN_ID
from keras_vqem.models import compiled

if TYPE_CHECKING:
    from keras_vqem.models.latent_nmt import LatentNMT
    from keras_vqem.models.translator import Translator

# Functions and their signatures, by name.
Endpoints = dict[str, tuple]

TEXTS, SOURCES, TARGETS, STYLES = (
    tf.TensorSpec([None], tf.string, name=name)
    for name in ("texts", "sources", "targets", "styles")
)
SOURCE_IDS, CODES = (
    tf.TensorSpec([None, None], tf.int32, name=name) for name in ("source_ids", "codes")
)


def of_translator(
    model: "Translator", max_tokens: int, options: dict[str, Any]
) -> Endpoints:
    """Returns the endpoints that every translator has; see `Translator.export`."""

    def serve(texts):
        source_ids = read(model.tokenizer, texts, max_tokens)
        found = model.generate(source_ids, **options)
        translations = decoded(model.tokenizer, found.pop("target_ids"))
        # A text with nothing but its end symbol has no translation.
        empty = ops.sum(ops.cast(source_ids != PAD_ID, "int32"), axis=1) <= 1
        if len(translations.shape) == 2:
            empty = empty[:, None]
        return {"translations": tf.where(empty, "", translations), **found}

    def translate_ids(source_ids):
        # An id outside the vocabulary must not fail the other rows.
        words = model.tokenizer.vocabulary_size
        wrong = (source_ids < 0) | (source_ids >= words)
        source_ids = cut(ops.where(wrong, UNKNOWN_ID, source_ids), max_tokens)
        return model.generate(source_ids, **options)

    return {
        "serve": (serve, [TEXTS]),
        "translate_ids": (translate_ids, [SOURCE_IDS]),
    }


def of_codes(model: "LatentNMT", max_tokens: int, options: dict[str, Any]) -> Endpoints:
    """Returns the endpoints of a `LatentNMT` that give and take codes."""
    max_codes = options.get("max_codes") or model.max_codes_for(max_tokens)

    def encode(sources, targets):
        ids = (read(model.tokenizer, texts, max_tokens) for texts in (sources, targets))
        return {"codes": model.encode_ids(*ids)}

    def decode(sources, codes):
        ids = model.decode_ids(
            read(model.tokenizer, sources, max_tokens),
            codes[:, :max_codes],
            drop_repeats=options.get("drop_repeats", False),
            blank_bias=options.get("blank_bias", 0.0),
        )
        return {"translations": model.tokenizer.decode(ids)}

    return {
        "encode": (encode, [SOURCES, TARGETS]),
        "decode": (decode, [SOURCES, CODES]),
        **of_styles(model, max_tokens, options),
    }


def decoded(tokenizer: Any, ids: tf.Tensor) -> tf.Tensor:
    """Returns strings `[B]` of ids `[B, L]`, or `[B, n]` of ids `[B, n, L]`."""
    if len(ids.shape) == 2:
        return tokenizer.decode(ids)
    rows, number, length = ops.shape(ids)
    texts = tokenizer.decode(ops.reshape(ids, (rows * number, length)))
    return tf.reshape(texts, (rows, number))


def of_styles(
    model: "LatentNMT", max_tokens: int, options: dict[str, Any]
) -> Endpoints:
    """Returns the endpoint that takes a style per text, of a model that has styles."""
    if not model.styles:
        return {}
    names, codes = zip(*model.styles.items(), strict=True)

    def translate_with_style(texts, styles):
        texts, styles = same_rows(texts=texts, styles=styles)
        # A name that is empty or unknown must not fail the other rows.
        same = styles[:, None] == tf.constant(names)
        first = tf.reduce_max(tf.where(same, tf.constant(codes), -1), axis=1)
        mine = {**options, "style": None, "first_code": first}
        serve, _ = of_translator(model, max_tokens, mine)["serve"]
        return serve(texts)

    return {"translate_with_style": (translate_with_style, [TEXTS, STYLES])}


def check_max_tokens(max_tokens: int) -> None:
    """Raises a `ValueError` if no token fits beside the end symbol."""
    if max_tokens < 2:
        raise ValueError(
            f"`max_tokens` must be at least 2, one token and the end symbol, received "
            f"{max_tokens!r}."
        )


def read(tokenizer: Any, texts: tf.Tensor, max_tokens: int) -> tf.Tensor:
    """Returns ids `[B, S]` of strings `[B]`, cut to `max_tokens` with the end kept."""
    ids = tokenizer.encode(texts)[:, :max_tokens].to_tensor(PAD_ID)
    return compiled.padded(cut(ids, max_tokens))


def cut(ids: tf.Tensor, max_tokens: int) -> tf.Tensor:
    """Returns ids `[B, S]` cut to `max_tokens` with the end kept."""
    ids = ids[:, :max_tokens]
    last = ops.arange(ops.shape(ids)[1]) == max_tokens - 1
    return ops.where(last & (ids != PAD_ID), EOS_ID, ids)
