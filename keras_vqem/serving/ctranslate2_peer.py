"""The half of `ctranslate2_export` that runs in an interpreter with CTranslate2.

That interpreter need not have keras_vqem, so this file imports nothing of it. It is run
as a script:

    python ctranslate2_peer.py convert FOLDER MODEL     from weights.npz, settings.json
    python ctranslate2_peer.py translate MODEL FOLDER   from request.json to answer.json
    python ctranslate2_peer.py precisions FOLDER        to answer.json
"""

import json
import os
import pathlib
import sys
from typing import Any

import numpy as np


def convert(folder: str, target: str) -> None:
    """Writes a CTranslate2 model from the files of `write_ctranslate2`."""
    import ctranslate2

    settings = json.loads(pathlib.Path(folder, "settings.json").read_text())
    spec = ctranslate2.specs.TransformerSpec.from_config(
        tuple(settings["num_layers"]), settings["num_heads"], pre_norm=True
    )
    with np.load(f"{folder}/weights.npz") as weights:
        for name in weights.files:
            assign(spec, name, weights[name])
    spec.config.layer_norm_epsilon = settings["layer_norm_epsilon"]
    spec.config.add_source_eos = True
    spec.config.unk_token = settings["unknown"]
    spec.config.bos_token = spec.config.decoder_start_token = settings["start"]
    spec.config.eos_token = settings["end"]
    spec.register_source_vocabulary(settings["vocabulary"])
    spec.register_target_vocabulary(settings["vocabulary"])
    spec.validate()
    spec.optimize(quantization=settings["quantization"])
    spec.save(target)


def assign(spec: Any, name: str, value: np.ndarray) -> None:
    """Sets a weight of a specification; `layer_0` is the first of its list `layer`."""
    *parts, last = name.split("/")
    for part in parts:
        if hasattr(spec, part):
            spec = getattr(spec, part)
        else:
            group, _, number = part.rpartition("_")
            spec = getattr(spec, group)[int(number)]
    setattr(spec, last, value)


def load(folder: str, compute_type: str = "default", threads: int = 0) -> tuple:
    """Returns a `ctranslate2.Translator` and the list of its tokens."""
    import ctranslate2

    translator = ctranslate2.Translator(
        folder, compute_type=compute_type, inter_threads=1, intra_threads=threads
    )
    file = pathlib.Path(folder, "shared_vocabulary.json")
    return translator, json.loads(file.read_text(encoding="utf-8"))


def translate(folder: str, place: str) -> None:
    """Translates the rows of a request; the model adds the end symbol by itself."""
    request = json.loads(pathlib.Path(place, "request.json").read_text())
    translator, tokens = load(folder, request["compute_type"], os.cpu_count())
    rows = [[tokens[number] for number in row[:-1]] for row in request["source_ids"]]
    results = translator.translate_batch(rows, **request["options"])
    numbers = {token: number for number, token in enumerate(tokens)}
    found = [[numbers[token] for token in row.hypotheses[0]] for row in results]
    pathlib.Path(place, "answer.json").write_text(json.dumps(found))


def precisions(place: str) -> None:
    """Lists the types in which this processor can compute."""
    import ctranslate2

    found = sorted(ctranslate2.get_supported_compute_types("cpu"))
    pathlib.Path(place, "answer.json").write_text(json.dumps(found))


COMMANDS = {"convert": convert, "translate": translate, "precisions": precisions}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
