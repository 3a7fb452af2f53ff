"""One row per model and precision; an untrained model is enough."""

import json

import pytest

from tests.models import small


@pytest.mark.slow
def test_rows_have_sizes_and_times(recipe, tiny, tmp_path, capsys):
    for name, text in (
        ("source", "five\nten past two\n"),
        ("reference", "fünf\nzehn\n"),
    ):
        (tmp_path / name).write_text(text)
    small.exportable("CTCTranslator").save(tmp_path / "ctc.keras")
    models = [f"{tiny.teacher}:1", str(tmp_path / "ctc.keras")]
    command = ["--models", *models, "--source", str(tmp_path / "source")]
    command += ["--reference", str(tmp_path / "reference"), "--rounds", "2"]
    report = tmp_path / "export.json"
    recipe("benchmark_export").main([*command, "--json", str(report)])
    rows = [x for x in capsys.readouterr().out.splitlines() if ".keras" in x]
    rows = [row.strip("| ").split(" | ") for row in rows if row.startswith("|")]
    of_teacher, of_ctc = (
        [row[1] for row in rows if row[0].startswith(name)]
        for name in ("teacher.keras:1", "ctc.keras")
    )
    assert of_teacher == ["float32", "bfloat16", "int8"]
    assert of_ctc == [*of_teacher, "litert", "litert_int8"]  # It has no loop.
    full, half, byte, ctc, _, _, lite, _ = json.loads(report.read_text())["entries"]
    assert full["same"] == 2 and half["median_ms"] > 0
    ratios = [
        x["megabytes_of_weights"] / full["megabytes_of_weights"] for x in (half, byte)
    ]
    # Beside the weights there is the table of their names.
    assert 0.45 < ratios[0] < 0.8 and 0.2 < ratios[1] < ratios[0]
    assert lite["same"] == ctc["same"] == 2
