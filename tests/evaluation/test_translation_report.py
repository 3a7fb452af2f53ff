"""Tables of translators, and who gets a speed ratio."""

import pytest

from keras_vqem.evaluation import translation_report as report


def entry(name, translator, milliseconds, empty_share=0.0, **facts):
    latency = {"1": {"median_ms": milliseconds, "p95_ms": milliseconds, "rounds": 3}}
    entry = {"name": name, "translator": translator, "latency": latency}
    entry |= {"empty_share": empty_share, "parameters": 1234, "bleu": 1.0, "chrf": 2.0}
    entry["brevity_penalty"] = 1.0
    return entry | facts


def cells(table, name):
    line = next(s for s in table.splitlines() if s.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_speeds_are_those_beside_every_row_of_the_first_translator():
    entries = [
        entry("teacher, greedy", "teacher", 80.0, training_seconds=120.0),
        entry("teacher, 4 beams", "teacher", 160.0),
        entry("latent, greedy", "latent", 20.0, 0.5),
    ]
    report.add_speedups(entries)
    found = entries[2]["latency"]["1"]["speedup"]
    assert found == {"teacher, greedy": 4.0, "teacher, 4 beams": 8.0}
    table = report.table(entries)
    assert cells(table, "latent, greedy")[-2:] == ["4.00", "8.00"]
    assert cells(table, "teacher, greedy")[1:4] == ["1,234", "2", "1.00"]
    assert cells(table, "teacher, greedy")[4:6] == ["1.000", "2.00"]
    assert "times as fast as teacher, 4 beams" in table.splitlines()[0]
    assert "wrote nothing" not in table


def test_a_model_that_writes_nothing_is_not_fast():
    entries = [
        entry("teacher, greedy", "teacher", 80.0),
        entry("silent, greedy", "silent", 4.0, 0.51),
    ]
    report.add_speedups(entries)
    assert entries[1]["latency"]["1"]["speedup"] == {}
    table = report.table(entries)
    assert cells(table, "silent, greedy")[-2:] == ["4.0", "-"]
    assert cells(table, "teacher, greedy")[-1] == "1.00"
    assert "silent, greedy wrote nothing for 51% of the sentences" in table


def test_nobody_is_compared_with_a_model_that_writes_nothing():
    entries = [
        entry("silent, greedy", "silent", 4.0, 1.0),
        entry("latent, greedy", "latent", 20.0),
    ]
    report.add_speedups(entries)
    table = report.table(entries)
    assert entries[1]["latency"]["1"]["speedup"] == {}
    assert "times as fast" not in table and cells(table, "latent, greedy")[-1] == "20.0"


@pytest.mark.parametrize(
    ("texts", "share"),
    [(["a", "", "..", "7"], 0.5), (["日本"], 0.0), ([" \n"], 1.0)],
)
def test_a_translation_without_letters_and_digits_is_empty(texts, share):
    assert report.empty_share(texts) == share
