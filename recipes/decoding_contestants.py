"""Contestants of benchmark_decoding.py: a step is a translation from ids to ids.

A process holds many of them, so models are kept once they are made. The folder of the
data has `settings.json`, `sentences.json` in the case of presets, and the models for
CTranslate2.
"""

import functools
import gc
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Workers do not look for modules beside this file.
HERE = pathlib.Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "keras_vqem" / "serving")]

BATCH_OF_SCORES = 64


class Data(NamedTuple):
    folder: str
    settings: dict
    tokens: int  # of every source, or 0 for sentences
    rows: list  # of ids, each ended by 1
    batch_size: int


class Contestant(NamedTuple):
    step: Callable
    check: Callable


def load_data(folder, tokens, batch_size):
    """Random sources of one length, or sentences, to be translated one by one."""
    settings = json.loads(pathlib.Path(folder, "settings.json").read_text())
    if not tokens:
        sentences = pathlib.Path(folder, "sentences.json").read_text()
        return Data(folder, settings, 0, json.loads(sentences), 1)
    rng = np.random.default_rng(tokens)
    ids = rng.integers(3, settings["vocabulary"], (batch_size, tokens - 1))
    rows = [[*row, 1] for row in ids.tolist()]
    return Data(folder, settings, tokens, rows, batch_size)


def contestant(data, translate, prepare):
    """Returns a contestant whose steps go through the batches of its data.

    Args:
        data: The `Data`.
        translate: Function from a prepared batch to ids, each row a list or array.
        prepare: Function from lists of ids to a batch.
    """
    size = data.batch_size
    parts = [data.rows[i : i + size] for i in range(0, len(data.rows), size)]
    batches, place = [prepare(part) for part in parts], -1

    def step():
        nonlocal place
        place = (place + 1) % len(batches)
        return translate(batches[place])

    def check(steps):
        for _ in range(steps):
            found = step()
        if not data.tokens:
            # All sentences, sorted by length, which is how they would be translated.
            order = sorted(range(len(data.rows)), key=lambda i: len(data.rows[i]))
            found = [None] * len(order)
            for i in range(0, len(order), BATCH_OF_SCORES):
                some = order[i : i + BATCH_OF_SCORES]
                for j, row in zip(
                    some, translate(prepare([data.rows[j] for j in some])), strict=True
                ):
                    found[j] = row
        return {"ids": [up_to_the_end(row) for row in found]}

    return Contestant(step, check)


def up_to_the_end(row):
    row = [int(number) for number in row]
    return row[: row.index(1)] if 1 in row else row


# keras_vqem.


@functools.cache
def exported(folder, model, precision):
    import decoding_models

    settings = json.loads(pathlib.Path(folder, "settings.json").read_text())
    place = tempfile.mkdtemp(dir=folder)
    if model in settings.get("presets", {}):
        path = settings["presets"][model]
        return decoding_models.of_preset(path, precision, place)
    made = decoding_models.in_precision(
        decoding_models.build(model, settings), precision
    )
    functions = decoding_models.forced(made, settings["tokens"])
    loaded = decoding_models.served(made, functions, precision, place)
    del made, functions
    gc.collect()  # Layers refer to each other, and a model has 250 MB.
    return loaded


def keras_vqem(data, model, precision, way="ids"):
    import tensorflow as tf

    loaded = exported(data.folder, model, precision)
    name = f"{way}_{data.tokens}" if hasattr(loaded, f"{way}_{data.tokens}") else way
    function = getattr(loaded, name)

    def prepare(rows):
        return tf.ragged.constant(rows, dtype="int32").to_tensor()

    made = contestant(data, lambda batch: function(batch).numpy(), prepare)
    if precision.endswith("xla") and not data.tokens:
        for _ in data.rows:  # Each length compiles at its first sentence.
            made.step()
    return made


# CTranslate2, in the interpreter of the peers.


@functools.cache
def translator(folder, compute_type, threads):
    import ctranslate2_peer

    return ctranslate2_peer.load(folder, compute_type, threads)


def ctranslate2(data, model, precision, num_beams=1, threads=2, length_penalty=0.6):
    loaded, tokens = translator(f"{data.folder}/{model}", precision, threads)
    numbers = {token: number for number, token in enumerate(tokens)}
    options = {"beam_size": num_beams, "length_penalty": length_penalty}
    if data.tokens:
        lengths = ("min_decoding_length", "max_decoding_length")
        options |= dict.fromkeys(lengths, data.tokens)

    def prepare(rows):  # It adds the end by itself.
        return [[tokens[number] for number in row[:-1]] for row in rows]

    def translate(batch):
        found = loaded.translate_batch(batch, **options)
        return [[numbers[token] for token in row.hypotheses[0]] for row in found]

    return contestant(data, translate, prepare)


CONTESTANTS = {
    "keras_vqem": (keras_vqem, ("keras", "tensorflow")),
    "ctranslate2": (ctranslate2, ("ctranslate2",)),
}
