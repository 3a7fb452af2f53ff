"""A panel per size of batch; what cannot be drawn is explained."""

import json

import matplotlib.image
import pytest


@pytest.fixture(scope="module")
def main(recipe):
    return recipe("plot_latency").main


def entry(model, way, bleu, **times):
    latency = {size: {"median_ms": ms} for size, ms in times.items()}
    latency = {size.removeprefix("b"): ms for size, ms in latency.items()}
    row = {"translator": model, "name": f"{model}, {way}", "bleu": bleu}
    return {**row, "latency": latency}


@pytest.fixture
def evaluation(tmp_path):
    entries = [
        entry("teacher", "greedy", 35.0, b1=40.0, b32=300.0),
        entry("teacher", "4 beams", 36.0, b1=50.0, b32=600.0),
        entry("latent", "greedy", 34.0, b1=9.0, b32=100.0),
    ]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"entries": entries}))
    return path


def test_one_panel_per_size_of_batch(main, evaluation, tmp_path, capsys):
    output = tmp_path / "new" / "latency.png"
    command = ["--evaluation", str(evaluation), "--output", str(output)]
    main([*command, "--names", "latent=codes, n_c = 3"])
    assert f"wrote {output}" in capsys.readouterr().out
    # 5.2 by 3.8 inches each, at 150 dpi.
    assert matplotlib.image.imread(output).shape[:2] == (570, 2 * 780)


def test_what_cannot_be_drawn_is_explained(main, evaluation, tmp_path, capsys):
    command = ["--output", str(tmp_path / "x.png"), "--evaluation"]
    with pytest.raises(SystemExit):
        main([*command, str(evaluation), "--names", "student=x"])
    assert "the models are latent, teacher" in capsys.readouterr().err
    evaluation.write_text("{}")
    with pytest.raises(SystemExit):
        main([*command, str(evaluation)])
    assert "has no BLEU" in capsys.readouterr().err
    evaluation.write_text('{"entries": [')
    with pytest.raises(SystemExit):
        main([*command, str(evaluation)])
    assert f"{evaluation} is no complete JSON file" in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()
