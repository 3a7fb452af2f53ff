"""What exported translators offer: strings at the edge, ids inside, one graph."""

import tensorflow as tf
from keras import ops

from keras_vqem.ids import EOS_ID, PAD_ID, UNKNOWN_ID

TEXTS, SOURCES, TARGETS = (
    tf.TensorSpec([None], tf.string, name=name)
    for name in ("texts", "sources", "targets")
)
SOURCE_IDS, CODES = (
    tf.TensorSpec([None, None], tf.int32, name=name) for name in ("source_ids", "codes")
)


def of_translator(model, max_tokens, options):
    """Endpoints of any translator: a dict from names to functions and signatures."""

    def serve(texts):
        source_ids = read(model.tokenizer, texts, max_tokens)
        found = model.generate(source_ids, **options)
        translations = model.tokenizer.decode(found.pop("target_ids"))
        # Nothing but its end.
        empty = ops.sum(ops.cast(source_ids != PAD_ID, "int32"), axis=1) <= 1
        return {"translations": tf.where(empty, "", translations), **found}

    def translate_ids(source_ids):
        # What is no word fails no other row.
        words = model.tokenizer.vocabulary_size
        wrong = (source_ids < 0) | (source_ids >= words)
        source_ids = cut(ops.where(wrong, UNKNOWN_ID, source_ids), max_tokens)
        return model.generate(source_ids, **options)

    return {
        "serve": (serve, [TEXTS]),
        "translate_ids": (translate_ids, [SOURCE_IDS]),
    }


def of_codes(model, max_tokens, options):
    """Endpoints of a `LatentNMT`: pairs to codes, codes and sources to text."""
    max_codes_for = options.get("max_codes") or model.max_codes_for(max_tokens)

    def encode(sources, targets):
        ids = (read(model.tokenizer, texts, max_tokens) for texts in (sources, targets))
        return {"codes": model.encode_ids(*ids)}

    def decode(sources, codes):
        # What is no code ends a row, rather than failing all of them.
        end = model.predictor.end_code
        codes = codes[:, :max_codes_for]
        codes = ops.where((codes < 0) | (codes > end), end, codes)
        codes = ops.pad(codes, [[0, 0], [0, 1]], constant_values=end)
        ids = model.decode_ids(
            read(model.tokenizer, sources, max_tokens),
            codes,
            drop_repeats=options.get("drop_repeats", False),
        )
        return {"translations": model.tokenizer.decode(ids)}

    return {
        "encode": (encode, [SOURCES, TARGETS]),
        "decode": (decode, [SOURCES, CODES]),
    }


def read(tokenizer, texts, max_tokens):
    """Ids [B, S] of strings [B], cut after `max_tokens`, the end kept."""
    return cut(tokenizer.encode(texts)[:, :max_tokens].to_tensor(PAD_ID), max_tokens)


def cut(ids, max_tokens):
    """Ids [B, S] without what is behind `max_tokens`, the end kept."""
    ids = ids[:, :max_tokens]
    last = ops.arange(ops.shape(ids)[1]) == max_tokens - 1
    return ops.where(last & (ids != PAD_ID), EOS_ID, ids)
