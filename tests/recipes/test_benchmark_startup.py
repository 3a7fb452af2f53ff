"""Each step has its row, from processes of their own."""

import json

import pytest


@pytest.mark.slow
def test_every_step_has_a_row(recipe, tmp_path, capsys):
    report = tmp_path / "startup.json"
    recipe("benchmark_startup").main(["--rounds", "1", "--json", str(report)])
    printed = capsys.readouterr().out
    seconds = json.loads(report.read_text())["seconds"]
    assert len(seconds) == 8 and all(times[0] >= 0 for times in seconds.values())
    assert all(f"| {name} |" in printed for name in seconds)
