"""The trainer of CTCTranslator from end to end, and its model in the evaluation."""

import json
import re
import sys

import numpy as np
import pytest

from keras_vqem.evaluation import translation_report, translation_scores
from keras_vqem.models import CTCTranslator, loading

SMALL = """--hidden-dim 16 --num-heads 2 --intermediate-dim 16 --num-encoder-layers 1
    --num-decoder-layers 1 --max-shapes 1 --tokens-per-batch 256 --average 2
    --epochs 2 --upsample 3 --glancing-start 0.5 --glancing-end 0.1""".split()
# Large enough to change what a model writes that has learned nothing.
BLANK_BIASES = (9.0, 0.0, -9.0)


def length(texts, references):
    """Stands for BLEU, which a model that has learned nothing has none of."""
    return sum(map(len, texts)) / len(references)


@pytest.fixture(scope="module")
def run(tiny, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ctc") / "run"
    arguments = ["--data", str(tiny.data.folder), *SMALL, "--run", str(folder)]
    arguments += ["--teacher", str(tiny.teacher)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation_scores, "bleu", length)
        trainer = recipe("train_ctc_translator")
        patch.setattr(sys.modules["arguments"], "BLANK_BIASES", BLANK_BIASES)
        trainer.main(arguments)
    return folder


def test_a_run_leaves_its_record(run):
    found = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    assert found[0]["loss"] != found[1]["loss"] and np.isfinite(found[1]["loss"])
    assert all({"token_nll", "unfit", "val_bleu"} <= set(line) for line in found)
    glancing = loading.load_translator(run).glancing
    assert float(glancing.value()) == pytest.approx(0.1)


def test_the_best_bias_of_the_blank_is_stored(run, tiny):
    log = (run / "log.txt").read_text()
    rows = re.findall(r"blank_bias (\S+)  val_bleu (\S+)$", log, re.MULTILINE)
    found = {float(bias): float(score) for bias, score in rows}
    assert tuple(found) == BLANK_BIASES
    model, val = loading.load_translator(run), tiny.data.corpus("val")
    assert isinstance(model, CTCTranslator) and model.upsample == 3
    stored = model.generation_config["blank_bias"]
    assert found[stored] == max(found.values()) > min(found.values())
    _, scores = model.translate(val.sources, return_scores=True)
    assert model.low_score == pytest.approx(np.percentile(scores, 1), abs=0.006)
    for bias, score in found.items():
        texts = model.translate(val.sources, blank_bias=bias)
        np.testing.assert_allclose(score, length(texts, val.targets), atol=0.006)


@pytest.mark.slow
def test_it_is_evaluated_as_it_is_stored(run, tiny, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(translation_report, "MOSTLY_EMPTY", 1.0)
    model = loading.load_translator(run)
    model.generation_config = {"blank_bias": -1.5, "top_k": 4}
    model.save(tmp_path / "ctc.keras")
    file = tmp_path / "table.json"
    command = ["--model", tiny.teacher, "--model", tmp_path / "ctc.keras"]
    command += ["--data", tiny.data.folder, "--json", file, "--rounds", 1]
    command += ["--num-beams", 1, 2, "--rescorer", tiny.teacher]
    recipe("evaluate_translation").main([*map(str, command)])
    entries = json.loads(file.read_text())["entries"]
    corpus, teacher = tiny.data.corpus("test"), loading.load_translator(tiny.teacher)
    assert [entry["class"] for entry in entries[2:]] == ["CTCTranslator"] * 2
    for entry, more in zip(
        entries[2:], [{}, {"num_beams": 2, "rescorer": teacher}], strict=True
    ):
        assert entry["blank_bias"] == -1.5 and "codes" not in entry
        texts = model.translate(corpus.sources, **more)
        scores = translation_scores.score(texts, corpus.targets)
        assert entry["chrf"] == pytest.approx(scores.chrf)
    assert [entry.get("rescored") for entry in entries] == [None, None, None, True]
