"""One row per model and precision; an untrained model is enough."""

import json

import pytest


@pytest.mark.slow
def test_rows_have_sizes_and_times(recipe, tiny, tmp_path, capsys):
    for name, text in (
        ("source", "five\nten past two\n"),
        ("reference", "fünf\nzehn\n"),
    ):
        (tmp_path / name).write_text(text)
    command = ["--models", str(tiny.teacher), "--source", str(tmp_path / "source")]
    command += ["--reference", str(tmp_path / "reference"), "--rounds", "2"]
    report = tmp_path / "export.json"
    recipe("benchmark_export").main([*command, "--json", str(report)])
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("| teach")]
    assert [line.split(" | ")[1] for line in lines] == ["float32", "bfloat16"]
    full, half = json.loads(report.read_text())["entries"]
    assert full["same"] == 2 and half["median_ms"] > 0
    ratio = half["megabytes_of_weights"] / full["megabytes_of_weights"]
    assert 0.45 < ratio < 0.8  # beside the weights there is the table of their names
