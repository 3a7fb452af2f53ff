"""Contestants of benchmark_search.py: one batch translated by the code of one checkout.

The folder of the data has `rows.json`, the ids of the source sentences.
"""

import json
import pathlib
import sys
from typing import NamedTuple


class Contestant(NamedTuple):
    step: object
    check: object


def load_data(folder):
    return json.loads(pathlib.Path(folder, "rows.json").read_text())


def search(rows, code, preset, **options):
    sys.path.insert(0, code)  # Before the installed package, which may be another one.
    import tensorflow as tf

    from keras_vqem import models

    source = pathlib.Path(models.__file__).resolve()
    if pathlib.Path(code).resolve() not in source.parents:
        raise ImportError(f"{code} has no keras_vqem: it was taken from {source}")
    model = models.Transformer.from_preset(preset)
    ids = tf.ragged.constant(rows, dtype="int32").to_tensor()
    translate = tf.function(lambda ids: model.generate(ids, **options)["target_ids"])

    def step():
        return translate(ids).numpy()

    def check(steps):
        for _ in range(steps):
            found = step()
        return {"ids": [[i for i in row if i] for row in found.tolist()]}

    return Contestant(step, check)


CONTESTANTS = {"search": (search, ("tensorflow", "keras"))}
