"""A parallel translator as a LiteRT (TensorFlow Lite) model, from ids to ids."""

import os
import pathlib

import keras
import tensorflow as tf

from keras_vqem.checks import whole_number
from keras_vqem.files import replacing
from keras_vqem.models import CTCTranslator
from keras_vqem.models.precision import in_precision
from keras_vqem.models.translation_endpoints import of_translator

PRECISIONS = ("float32", "int8")


def write_litert(
    model: keras.Model,
    path: str | os.PathLike,
    length: int = 32,
    batch_size: int = 1,
    precision: str = "float32",
) -> None:
    """Writes a `CTCTranslator` as a LiteRT (TensorFlow Lite) model.

    The file has one signature, from `source_ids` int32 `[batch_size, length]`, each row
    ended by 1 and padded with 0, to `target_ids` int32 `[batch_size, L]`. These are the
    ids of `model.translate_ids(source_ids, num_beams=1)`, with the `blank_bias` in its
    `generation_config`. Strings become ids, and ids strings, outside, by the
    SentencePiece model of the tokenizer. All operations are LiteRT's own: it needs
    neither TensorFlow nor its operations ("Flex").

    Args:
        model: A trained `keras_vqem.models.CTCTranslator`.
        path: File to write, such as `model.tflite`. One that exists is replaced.
        length: Number of ids per row, the end symbol included. The time of a call grows
            with it, whatever the sentence; what is longer must be split.
        batch_size: Number of rows.
        precision: `"float32"`, or `"int8"`, with which matrices are stored in int8,
            about a quarter of the size, and LiteRT multiplies in int8 where it can: a
            few words may differ.

    Example:

    >>> import os, tempfile
    >>> from keras_vqem.text import SentencePieceTokenizer
    >>> tokenizer = SentencePieceTokenizer.train(["half past two", "halb drei"], 275)
    >>> model = keras_vqem.models.CTCTranslator(
    ...     tokenizer, hidden_dim=8, num_encoder_layers=1, num_decoder_layers=1,
    ...     num_heads=2, intermediate_dim=8)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.tflite")
    >>> write_litert(model, path, length=8)
    >>> interpreter = tf.lite.Interpreter(path)
    >>> interpreter.get_signature_list()
    {'serving_default': {'inputs': ['source_ids'], 'outputs': ['target_ids']}}
    """
    if not isinstance(model, CTCTranslator):
        raise ValueError(
            f"`model` must be a CTCTranslator, which writes all words at once, without "
            f"a loop; received a {type(model).__name__}. Take one, such as the preset "
            f"multi30k_en_de_ctc, or write a SavedModel (model.export)."
        )
    if precision not in PRECISIONS:
        raise ValueError(
            f"`precision` must be one of {', '.join(PRECISIONS)}, received "
            f"{precision!r}. Use int8 for the smallest file."
        )
    shape = [
        whole_number("batch_size", batch_size, 1),
        whole_number("length", length, 2),
    ]
    if not model.built:
        model.build()
    model = in_precision(model, "float32")
    options = {**model.generation_config, "num_beams": 1}
    translate_ids, _ = of_translator(model, length, options)["translate_ids"]
    graph = tf.function(
        lambda source_ids: {"target_ids": translate_ids(source_ids)["target_ids"]},
        input_signature=[tf.TensorSpec(shape, tf.int32, name="source_ids")],
        autograph=False,
    )
    # With a Keras model in its place the file would have no weights, and say nonsense.
    owner = tf.Module()
    owner.weights = [weight.value for weight in model.weights]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [graph.get_concrete_function()], owner
    )
    if precision == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    content = converter.convert()
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_bytes(content)
