"""Tables, ratios and targets of benchmarks."""

import pytest

from keras_vqem.evaluation import benchmark_report as report


def test_peers_without_an_interpreter_are_left_out():
    entries = {
        "hard": {"label": "ours", "seconds": [0.1, 0.3, 0.2]},
        "sonnet": {"label": "Sonnet", "status": "left out: no --peers interpreter"},
    }
    report.compare(entries, {"times_matmul": "matmul"})
    table = report.speed_table(entries)
    assert "Sonnet  left out: no --peers interpreter" in table
    assert "200.0" in table and "times_matmul" not in entries["hard"]


def test_growth_is_the_larger_of_resident_and_in_use():
    entry = {"baseline": 1e9, "first": 1.2e9, "later": 1.3e9}
    assert report.growth_mb(entry) == pytest.approx(300)
    assert report.growth_mb(entry | {"in_use": 4e8}) == pytest.approx(400)


def test_memory_table():
    entry = {"label": "ours", "before": 7e8, "baseline": 1e9, "state": 2e8}
    entry |= {"first": 1.2e9, "later": 1.3e9, "versions": {"keras": "3"}}
    failed = {"label": "theirs", "status": "failed: out of memory", "state": 2e8}
    entries = {"a": entry, "b": entry | {"in_use": 4e8}, "c": failed}
    _, _, *rows = report.memory_table(entries).splitlines()
    assert rows[0].split() == ["ours", "200", "200", "300", "-", "400"]
    assert rows[1].split() == ["ours", "200", "200", "300", "400", "400"]
    assert rows[2].split() == ["theirs", "failed:", "out", "of", "memory"]


def test_plot_of_a_sweep(tmp_path):
    def points(axis):
        entries = {
            "matmul": {"label": "bare matmul", "median_ms": 2.0},
            "soft": {"label": "soft EM", "status": "failed: ..."},
        }
        return [{axis: size, "contestants": entries} for size in (4, 16)]

    sweep = {axis: points(axis) for axis in "Km"}
    path = tmp_path / "new" / "plot.png"
    titles = {"K": "codes", "m": "draws"}
    report.write_plot(path, sweep, titles, "matmul", logarithmic="K")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "2.0" in report.sweep_table("K", sweep["K"], "matmul", "times")
