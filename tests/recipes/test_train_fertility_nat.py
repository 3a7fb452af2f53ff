"""The trainer of FertilityNAT from end to end, and its model in the evaluation."""

import json
import re

import numpy as np
import pytest

from keras_vqem.evaluation import model_card, translation_report, translation_scores
from keras_vqem.models import FertilityNAT, loading

SMALL = """--hidden-dim 16 --num-heads 2 --intermediate-dim 16 --num-encoder-layers 1
    --num-decoder-layers 1 --max-shapes 1 --tokens-per-batch 256 --average 2
    --epochs 2 --validate-every 2 --max-fertility 3 --tension 3""".split()


@pytest.fixture(scope="module")
def run(tiny, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nat") / "run"
    arguments = ["--data", str(tiny.data.folder), *SMALL, "--run", str(folder)]
    arguments += ["--teacher", str(tiny.teacher)]
    recipe("train_fertility_nat").main(arguments)
    return folder


def test_a_run_leaves_its_record(run):
    found = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    assert found[0]["loss"] != found[1]["loss"] and np.isfinite(found[1]["loss"])
    for line in found:
        assert {"token_nll", "fertility_nll", "clipped"} <= set(line)
        assert 0 <= line["clipped"] < 1
    log = (run / "log.txt").read_text()
    [logs] = re.findall(r"before each EM step: (.*)$", log, re.MULTILINE)
    logs = np.array(logs.split(), float)
    assert len(logs) == 5 and (np.diff(logs) >= 0).all()
    *tried, chosen = re.findall(r"fertility (\w+)  val_bleu", log)
    assert tried == ["argmax", "mean"] and chosen in tried
    model = loading.load_translator(run)
    assert isinstance(model, FertilityNAT) and model.max_fertility == 3
    assert model.generation_config == {"fertility": chosen} and model.low_score < 0


def test_it_is_evaluated_with_samples(run, tiny, recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(translation_report, "MOSTLY_EMPTY", 1.0)
    file = tmp_path / "table.json"
    command = ["--model", run, "--data", tiny.data.folder, "--json", file]
    command += ["--rounds", 1, "--num-samples", 1, 3, "--rescorer", tiny.teacher]
    recipe("evaluate_translation").main([*map(str, command)])
    evaluation = json.loads(file.read_text())
    one, several = evaluation["entries"]
    assert [one["name"], several["name"]] == ["run, greedy", "run, 3 samples"]
    assert (one["num_samples"], several["num_samples"]) == (1, 3)
    assert "rescored" not in one and several["rescored"]
    corpus, model = tiny.data.corpus("test"), loading.load_translator(run)
    teacher = loading.load_translator(tiny.teacher)
    texts = model.translate(corpus.sources, num_samples=3, rescorer=teacher)
    scores = translation_scores.score(texts, corpus.targets)
    assert several["chrf"] == pytest.approx(scores.chrf)
    named = model_card.preset_metrics(evaluation, run)
    mean = ", mean fertility" if model.generation_config["fertility"] == "mean" else ""
    assert list(named) == [
        f"test BLEU, greedy{mean}",
        f"test BLEU, 3 samples{mean}, rescored",
    ]


def test_it_is_no_teacher_with_beams(run, tiny, recipe, tmp_path, capsys):
    command = ["--data", tiny.data.folder, "--model", run, "--output", tmp_path / "d"]
    with pytest.raises(SystemExit):
        recipe("distill").main([*map(str, command), "--strategy", "none"])
    assert "a FertilityNAT, which has no beams" in capsys.readouterr().err
