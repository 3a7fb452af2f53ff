"""A trained Transformer as a CTranslate2 model, and its translations.

CTranslate2 is not among our dependencies: `ctranslate2_peer.py` runs in an interpreter
that has it, and gets the weights in a file.
"""

import json
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_vqem.checks import whole_number
from keras_vqem.files import replacing_folder
from keras_vqem.ids import EOS_ID, PAD_ID, UNKNOWN_ID
from keras_vqem.layers.position_signal import position_signal

PEER = pathlib.Path(__file__).with_name("ctranslate2_peer.py")
# `Transformer.generate` writes at most twice 256 tokens and 10.
MAX_LENGTH = 522


class PeerFailed(RuntimeError):
    """Raised if the interpreter that has CTranslate2 does not do what it was asked."""


def ctranslate2_weights(
    model: keras.Model, max_length: int = MAX_LENGTH
) -> dict[str, np.ndarray]:
    """Returns the weights of a `Transformer` under the names that CTranslate2 has.

    Its matrices have one row per output. It keeps queries, keys and values of a
    self-attention in one matrix, in this order, and keys and values of the attention
    to the source in one.

    Args:
        model: A built `keras_vqem.models.Transformer`.
        max_length: Number of positions whose signal is stored. Longer sentences are
            an error of CTranslate2.

    Returns:
        Dict from names to float32 arrays.
    """
    if model.encoder.causal:
        raise ValueError(
            "CTranslate2 has no causal encoder, received a Transformer with "
            "causal_encoder=True. Export it as a SavedModel instead (model.export)."
        )
    if not model.built:
        model.build()
    max_length = whole_number("max_length", max_length, 1)
    signal = _array(position_signal(max_length, model.hidden_dim))[0]
    embeddings = _array(model.embedding.embeddings)
    weights = {"decoder/projection/weight": embeddings}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        # The encoder may have several embeddings, one per feature of a token.
        place = "embeddings_0" if side == "encoder" else "embeddings"
        weights[f"{side}/{place}/weight"] = embeddings
        weights[f"{side}/position_encodings/encodings"] = signal
        weights |= _norm(f"{side}/layer_norm", stack.norm)
        for number, block in enumerate(stack.blocks):
            weights |= _block(f"{side}/layer_{number}", block)
    return weights


def _array(variable):
    return np.asarray(variable).astype("float32")


def _kernel(dense):
    return _array(dense.kernel).T


def _norm(name, layer):
    return {f"{name}/gamma": _array(layer.gamma), f"{name}/beta": _array(layer.beta)}


def _block(name, block):
    own = f"{name}/self_attention"
    fused = [_kernel(block.attention.to_query), _kernel(block.attention.to_keys_values)]
    weights = {
        **_norm(f"{own}/layer_norm", block.norm),
        f"{own}/linear_0/weight": np.concatenate(fused),
        f"{own}/linear_1/weight": _kernel(block.attention.to_output),
        **_norm(f"{name}/ffn/layer_norm", block.last_norm),
    }
    if block.cross is not None:
        weights |= _norm(f"{name}/attention/layer_norm", block.cross_norm)
        parts = (
            block.cross.to_query,
            block.cross.to_keys_values,
            block.cross.to_output,
        )
        for number, part in enumerate(parts):
            weights[f"{name}/attention/linear_{number}/weight"] = _kernel(part)
    feed_forward = (block.feed_forward.widen, block.feed_forward.narrow)
    for number, part in enumerate(feed_forward):
        weights[f"{name}/ffn/linear_{number}/weight"] = _kernel(part)
        weights[f"{name}/ffn/linear_{number}/bias"] = _array(part.bias)
    return weights


def ctranslate2_settings(model: keras.Model) -> dict[str, Any]:
    """Returns sizes, vocabulary and special tokens of a `Transformer`.

    Args:
        model: A `keras_vqem.models.Transformer`.

    Returns:
        Dict of values for JSON. Tokens are the pieces of the tokenizer, or the ids as
        strings if it has none.
    """
    tokenizer = model.tokenizer
    if hasattr(tokenizer, "pieces"):
        tokens = tokenizer.pieces()
    else:
        tokens = [str(number) for number in range(tokenizer.vocabulary_size)]
    return {
        "num_layers": [model.num_encoder_layers, model.num_decoder_layers],
        "num_heads": model.num_heads,
        "layer_norm_epsilon": model.encoder.norm.epsilon,
        "vocabulary": tokens,
        "start": tokens[PAD_ID],
        "end": tokens[EOS_ID],
        "unknown": tokens[UNKNOWN_ID],
    }


def write_ctranslate2(
    model: keras.Model,
    folder: str | os.PathLike,
    python: str | os.PathLike,
    quantization: str | None = None,
    max_length: int = MAX_LENGTH,
) -> None:
    """Writes a `Transformer` as the folder of a CTranslate2 model.

    The tokenizer's SentencePiece model is written beside it, as `tokenizer.model`.
    CTranslate2 adds the end symbol to sources by itself.

    Args:
        model: A trained `keras_vqem.models.Transformer`.
        folder: Folder to write, which must not exist yet. It is complete or absent.
        python: Interpreter that has the package ctranslate2.
        quantization: How weights are stored, such as `"int8"` or `"bfloat16"`. None
            stores them in float32.
        max_length: Number of positions, as in `ctranslate2_weights`.
    """
    if os.path.exists(folder):
        raise FileExistsError(f"{folder} exists already. Remove it or name another.")
    weights = ctranslate2_weights(model, max_length)
    with tempfile.TemporaryDirectory() as given, replacing_folder(folder) as part:
        np.savez(f"{given}/weights.npz", **weights)
        settings = ctranslate2_settings(model) | {"quantization": quantization}
        pathlib.Path(given, "settings.json").write_text(json.dumps(settings))
        _ask(python, "convert", given, part)
        if hasattr(model.tokenizer, "save"):
            model.tokenizer.save(part / "tokenizer.model")


def ctranslate2_translate(
    folder: str | os.PathLike,
    source_ids: Sequence[Sequence[int]],
    python: str | os.PathLike,
    compute_type: str = "default",
    **options: Any,
) -> list[list[int]]:
    """Translates ids by a CTranslate2 model, in a process of its own.

    Args:
        folder: Folder that `write_ctranslate2` wrote.
        source_ids: List of sources, each a list of ids that ends in 1.
        python: Interpreter that has the package ctranslate2.
        compute_type: Precision to compute in, such as `"int8"`. `"default"` is that of
            the stored weights.
        **options: Options of `ctranslate2.Translator.translate_batch`, such as
            `beam_size` and `max_decoding_length`.

    Returns:
        List of translations, each a list of ids without the end symbol.
    """
    rows = [[int(number) for number in row] for row in source_ids]
    if wrong := [row for row in rows if not row or row[-1] != EOS_ID]:
        raise ValueError(
            f"Sources must end in id {EOS_ID}, received {wrong[0]}. Append it."
        )
    request = {"source_ids": rows, "compute_type": compute_type, "options": options}
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place, "request.json").write_text(json.dumps(request))
        _ask(python, "translate", folder, place)
        return json.loads(pathlib.Path(place, "answer.json").read_text())


def ctranslate2_precisions(python: str | os.PathLike) -> list[str]:
    """Returns the precisions in which CTranslate2 computes on this processor.

    Args:
        python: Interpreter that has the package ctranslate2.

    Returns:
        List with those of `"float32"`, `"bfloat16"` and `"int8"` that it supports.
    """
    with tempfile.TemporaryDirectory() as place:
        _ask(python, "precisions", place)
        found = json.loads(pathlib.Path(place, "answer.json").read_text())
    return [name for name in ("float32", "bfloat16", "int8") if name in found]


def _ask(python, *arguments):
    """Runs the peer. With -P, Python does not import from the folder of its file."""
    command = [str(part) for part in (python, "-P", PEER, *arguments)]
    remedy = "Pass an interpreter that has it: `make .venv-peers/.ready` makes one."
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise PeerFailed(
            f"{python} cannot be run for CTranslate2 ({error.strerror}). {remedy}"
        ) from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no message"]
        if "No module named 'ctranslate2'" in said[-1]:
            raise PeerFailed(f"{python} has no package ctranslate2. {remedy}")
        raise PeerFailed(f"CTranslate2 failed: {said[-1]}")
