"""The trainer of RefinementNAT from end to end, and its model in the evaluation."""

import json

import numpy as np
import pytest

from keras_vqem.evaluation import translation_report, translation_scores
from keras_vqem.models import Denoising, MaskPredict, RefinementNAT, loading

SMALL = """--hidden-dim 16 --num-heads 2 --intermediate-dim 16 --num-encoder-layers 1
    --num-decoder-layers 1 --max-shapes 1 --tokens-per-batch 256 --average 2
    --epochs 2 --num-iterations 3""".split()


@pytest.mark.parametrize(
    "refinement", ["denoising", pytest.param("mask-predict", marks=pytest.mark.slow)]
)
def test_a_run_is_evaluated_with_several_numbers_of_passes(
    refinement, tiny, recipe, tmp_path, monkeypatch
):
    monkeypatch.setattr(translation_report, "MOSTLY_EMPTY", 1.0)
    run, file = tmp_path / "run", tmp_path / "table.json"
    arguments = ["--data", str(tiny.data.folder), *SMALL, "--run", str(run)]
    arguments += ["--teacher", str(tiny.teacher), "--refinement", refinement]
    recipe("train_refinement_nat").main([*arguments, "--corruption", "0.2"])

    found = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    assert found[0]["loss"] != found[1]["loss"] and np.isfinite(found[1]["loss"])
    assert all({"token_nll", "length_nll", "val_bleu"} <= set(line) for line in found)
    model = loading.load_translator(run)
    assert isinstance(model, RefinementNAT) and model.low_score is not None
    assert model.generation_config == {"num_iterations": 3}
    kind = {"denoising": Denoising, "mask-predict": MaskPredict}[refinement]
    assert type(model.refinement) is kind
    if kind is Denoising:
        assert model.refinement.corruption == 0.2

    command = ["--model", tiny.teacher, "--model", run, "--data", tiny.data.folder]
    command += ["--json", file, "--rounds", 1, "--num-iterations", 1, 4]
    recipe("evaluate_translation").main([*map(str, command)])
    entries = json.loads(file.read_text())["entries"]
    names = ["run, greedy, 1 iteration", "run, greedy, 4 iterations"]
    assert [entry["name"] for entry in entries] == ["teacher, greedy", *names]
    corpus = tiny.data.corpus("test")
    for entry, number in zip(entries[1:], (1, 4), strict=True):
        assert entry["num_iterations"] == number and "codes" not in entry
        texts = model.translate(corpus.sources, num_iterations=number)
        scores = translation_scores.score(texts, corpus.targets)
        assert entry["chrf"] == pytest.approx(scores.chrf)
