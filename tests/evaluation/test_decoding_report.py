"""Rounds of a benchmark of decoding, its table, picture and place in a page."""

import pathlib

import matplotlib.image
import numpy as np
import pytest

from keras_vqem.evaluation import decoding_report as report
from keras_vqem.evaluation.benchmark_processes import Contest, Entry

CONTESTANTS = pathlib.Path(__file__).with_name("contestants.py")


def test_no_cell_takes_longer_than_it_may():
    # 60 s a step: three steps make 180 s, whatever the budget is.
    assert report.plan({"slow": 60.0, "fast": 1.0}, 1e9) == report.Plan(3, 1, 0)
    # Turns of quick contestants have one untimed step and three timed ones.
    assert report.plan({"a": 10.0, "b": 1.0}, 1e9) == report.Plan(4, 3, 1)
    assert report.plan({"a": 1e-3}, 1e9).rounds == report.MOST_ROUNDS
    assert report.plan({"a": 100.0}, budget=1.0).rounds == 2


def test_all_rows_share_their_rounds(tmp_path):
    entries = {
        name: Entry(name, kind, process="one")
        for name, kind in [("a", "counter"), ("b", "counter")]
    }
    entries["c"] = Entry("c", "failing")
    with Contest(CONTESTANTS, tmp_path, threads=1) as contest:
        contest.build(entries, number=0)
        plan = report.race(contest, budget=1e-3)
        assert contest.workers["a"] is contest.workers["b"]
    assert plan == report.Plan(2, 3, 1)
    assert [len(contest.results[name]["seconds"]) for name in "ab"] == [6, 6]
    assert "seconds" not in contest.results["c"]
    # Warm-up, the trial, and two rounds of four steps, for each of the two.
    assert len((tmp_path / "turns").read_text().split()) == 2 * (1 + 1 + 2 * 4)


def test_slow_contestants_waste_no_step(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "LONG_ROUND", 0.0)
    with Contest(CONTESTANTS, tmp_path, threads=1) as contest:
        contest.build({"a": Entry("a", "counter")}, number=0)
        assert report.race(contest, budget=1e-3) == report.Plan(2, 1, 0)
        assert len(contest.results["a"]["seconds"]) == 2
    assert len((tmp_path / "turns").read_text().split()) == 1 + 2


def test_ratios_are_those_of_medians():
    results = {
        "base": {"label": "base", "seconds": [0.2, 0.4, 0.3]},
        "fast": {"label": "fast", "seconds": [0.1, 0.1, 0.4]},
        "gone": {"label": "gone", "seconds": [0.1], "status": "failed: no"},
    }
    bases = {"over_base": "base", "over_gone": "gone"}
    report.summarize(results, bases, {"fast": 0.05, "missing": 1.0})
    assert results["base"]["median_ms"] == pytest.approx(300)
    assert results["fast"]["over_base"] == pytest.approx(3)
    assert results["fast"]["p95_ms"] == pytest.approx(370)
    assert results["fast"]["times_limit"] == pytest.approx(2)
    assert "over_gone" not in results["fast"] and "median_ms" not in results["gone"]
    lines = report.table(results, {"over_base": "over it"}).splitlines()
    assert lines[2] == "| base | 300.0 | 390.0 | 1.00 |"
    assert lines[4] == "| gone | failed: no |  |  |"


def test_the_picture_has_both_panels(tmp_path):
    def point(tokens, batch_size, median):
        rows = {"a": {"label": "greedy", "median_ms": median}, "b": {"label": "out"}}
        return {"tokens": tokens, "batch_size": batch_size, "rows": rows}

    points = [point(8, 1, 10.0), point(27, 1, 30.0), point(27, 32, 320.0)]
    path = tmp_path / "new" / "plot.png"
    styles = {"a": ("#ff0000", "-"), "b": ("#0000ff", ":")}
    report.write_plot(path, points, styles)
    picture = matplotlib.image.imread(path)[..., :3]
    red = np.all(np.abs(picture - (1, 0, 0)) < 0.02, axis=-1).any(axis=0)
    middle = picture.shape[1] // 2
    assert red[:middle].any() and red[middle:].any()


def test_a_section_of_a_page_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Speed\n<!-- x -->\nold\n<!-- end x -->\nrest\n")
    for _ in range(2):  # The second time there is a table with a backslash in it.
        report.write_section(page, "x", "| a\\1 |\n")
    text = "# Speed\n<!-- x -->\n\n| a\\1 |\n\n<!-- end x -->\nrest\n"
    assert page.read_text() == text
    with pytest.raises(ValueError, match="needs a line <!-- y -->"):
        report.write_section(page, "y", "")
