"""in_precision: a translator with its weights in another type, for export."""

from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from keras_vqem.models.translator import Translator

PRECISIONS = ("float32", "bfloat16", "int8")


def in_precision(model: "Translator", precision: str | None) -> "Translator":
    """Returns a translator that computes, and holds its weights, in a precision.

    The new model is made from the config of the other, as with `dtype=precision`, and
    has its weights, rounded. In it as in every model of half precision, these stay
    float32: the codebook, the distances to it, scores, softmax of attention,
    normalisation.

    Args:
        model: A built translator.
        precision: `"float32"` or `"bfloat16"`. `"int8"` is float32 here: what an
            export stores in int8, see `Int8Weights`, it computes in float32. None
            changes nothing.

    Returns:
        The model itself if it has this precision already, or a new one.

    Example:

    >>> from keras_vqem.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["half past two", "halb drei"], 275)
    >>> model = keras_vqem.models.CTCTranslator(
    ...     tokenizer, hidden_dim=8, num_encoder_layers=1, num_decoder_layers=1,
    ...     num_heads=2, intermediate_dim=8)
    >>> model.build()
    >>> in_precision(model, "bfloat16").embedding.embeddings.dtype
    'bfloat16'
    """
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(
            f"`precision` must be one of {', '.join(PRECISIONS)}, received "
            f"{precision!r}. Use bfloat16, with half the size of float32, or int8, "
            f"with a quarter."
        )
    if precision == "int8":
        precision = "float32"
    # A mixed policy, such as mixed_bfloat16, has another name: its weights are float32.
    if precision in (None, model.dtype_policy.name):
        return model
    config = {**model.get_config(), "dtype": precision, "tokenizer": model.tokenizer}
    copy = type(model).from_config(config)
    if not copy.built:
        copy.build()
    for mine, other in zip(copy.weights, model.weights, strict=True):
        mine.assign(keras.ops.cast(other, mine.dtype))
    return copy
