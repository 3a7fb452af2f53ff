"""The recipe that trains a preset further, end to end, on few pairs."""

import json
import sys

import numpy as np
import pytest

from keras_vqem.models import loading
from keras_vqem.text import ParallelCorpus

STEPS = ["--epochs", "2", "--tokens-per-batch", "256", "--max-shapes", "1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    corpus = ParallelCorpus.from_numbers(40, seed=5)
    corpus.sources[3] = ""  # It is cleaned away.
    source, target = map(str, corpus.save(folder, "train"))
    return ["--train-source", source, "--train-target", target]


@pytest.fixture
def main(recipe, monkeypatch):
    tune = recipe("fine_tune").main
    # Fewer ways to decode are tried.
    monkeypatch.setattr(sys.modules["arguments"], "LENGTH_PENALTIES", (0.6,))
    monkeypatch.setattr(sys.modules["arguments"], "BLANK_BIASES", (0.0,))
    return tune


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["teacher", "latent"])
def test_a_model_goes_on_from_its_weights(kind, main, files, tiny, tmp_path):
    preset, run = tmp_path / "preset", tmp_path / "run"
    before = loading.load_translator(getattr(tiny, kind))
    before.save_to_preset(preset)
    command = ["--preset", str(preset), *files, *STEPS, "--run", str(run)]
    main([*command, "--learning-rate", "0.001"])
    after = loading.load_translator(run)
    assert after.tokenizer.sha256 == before.tokenizer.sha256
    assert type(after) is type(before)
    pairs = zip(after.trainable_weights, before.trainable_weights, strict=True)
    apart = [np.abs(mine - theirs).max() for mine, theirs in pairs]
    assert 1e-4 < max(apart) < 0.05  # Two epochs of few steps do not lead far.
    log = (run / "log.txt").read_text()
    assert "before the first step: val_bleu" in log
    # 39 pairs are left, of which a twentieth is held out.
    assert "38 pairs to train on, 1 to validate on" in log
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    assert [line["epoch"] for line in metrics] == [1, 2]
    assert "val_bleu" in metrics[0] and np.isfinite(metrics[1]["loss"])
    # A latent model may keep all defaults.
    assert after.low_score < 0
    assert ("num_beams" in after.generation_config) == (kind == "teacher")
    # All is complete, so resuming changes nothing.
    main([*command, "--learning-rate", "0.001", "--resume"])
    again = loading.load_translator(run)
    for mine, theirs in zip(again.weights, after.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_mistakes_are_told(main, files, tiny, tmp_path, capsys):
    common = ["--preset", str(tiny.teacher), *STEPS, "--run", str(tmp_path / "run")]
    for arguments, words in [
        ([*common, *files, "--val-source", "x"], "go together"),
        ([*common, "--train-source", "none", "--train-target", "none"], "none"),
        ([*common[2:], *files, "--preset", "cifar10_em"], "is needed here"),
        (
            [*common, *files, "--val-source", __file__, "--val-target", files[1]],
            "lines",
        ),
    ]:
        with pytest.raises(SystemExit, match="2"):
            main(arguments)
        assert words in capsys.readouterr().err
