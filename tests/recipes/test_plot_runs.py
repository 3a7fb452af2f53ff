"""Panels: those that some run fills, and no others."""

import json

import matplotlib.image
import pytest


@pytest.fixture(scope="module")
def plot_runs(recipe):
    return recipe("plot_runs")


@pytest.fixture
def run(tmp_path):
    """Function from a name and metrics to the argument for a run with these."""

    def run(name, **metrics):
        folder = tmp_path / name
        folder.mkdir()
        lines = [
            json.dumps({"epoch": epoch, "training_seconds": 60 * epoch, **metrics})
            for epoch in (1, 2)
        ]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        return f"--run={name}={folder}"

    return run


def panels(path):
    """Number of panels in a picture: they are 4.2 inches wide, at 150 dpi."""
    return matplotlib.image.imread(path).shape[1] / 630


@pytest.mark.parametrize(
    ("metrics", "count"),
    [
        ({"val_bleu": 20.0, "val_teacher_forced_bleu": 30.0, "perplexity": 9.0}, 3),
        ({"val_reconstruction_bits_per_dim": 3.0, "perplexity": 9.0, "loss": 1.0}, 2),
        ({"val_bits_per_symbol": 5.0}, 1),
    ],
    ids=["text", "images", "predictor"],
)
def test_no_panel_is_empty(plot_runs, run, tmp_path, metrics, count):
    path = tmp_path / "new" / "curves.png"
    plot_runs.main([run("a", **metrics), "--output", str(path)])
    assert panels(path) == count


def test_runs_of_two_kinds_share_a_picture(plot_runs, run, tmp_path):
    path = tmp_path / "curves.png"
    runs = [run("a", val_reconstruction_bits_per_dim=3.0)]
    runs += [run("b", val_bits_per_symbol=5.0)]
    plot_runs.main([*runs, "--output", str(path), "--against", "minutes"])
    assert panels(path) == 2


def test_what_cannot_be_drawn_is_told(plot_runs, run, tmp_path, capsys):
    first, second = run("a", loss=1.0, val_bleu=2.0), run("b", loss=1.0)
    output = ["--output", str(tmp_path / "x.png")]
    for arguments, words in [
        ([first, "--metrics", "val_bleu", "val_blue"], "no run has val_blue; "),
        ([first, second], "run b has none of the metrics val_bleu"),
        ([second], "the runs have: epoch, loss, training_seconds"),
        ([first, first], "two runs have one name"),
        ([f"--run=x={tmp_path}"], "has no metrics.jsonl"),
    ]:
        with pytest.raises(SystemExit) as stop:
            plot_runs.main([*arguments, *output])
        assert stop.value.code == 2 and words in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()
