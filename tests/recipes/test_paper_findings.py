"""Claims of the paper against results: verdicts, missing rows and further seeds."""

import json

import paper_findings
import pytest
from paper_findings import AGREE, CANNOT_TELL, MISSING, NOT
from paper_tables import TABLES


def store(folder, table, rows, name=None):
    """Stores rows, tuples of model, decoding and numbers, as reproduce.py does."""
    rows = [
        {"model": model, "decoding": decoding, "ours": ours}
        for model, decoding, ours in rows
    ]
    result = {"table": table, "rows": rows}
    (folder / f"{name or table}.json").write_text(json.dumps(result))


def number_of(bleu, ms=10.0):
    return {"bleu": bleu, "ms": ms}


def verdicts(folder):
    lines = paper_findings.write(folder).read_text().splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return {row[0]: (row[1:-1], row[-1].removeprefix("| ")) for row in cells[2:]}


GREEDY, BEAMS = {"num_beams": 1}, {"num_beams": 4}
NEAR = "EM, distilled, is 0.3 BLEU below greedy decoding, at 3.3 times its speed"
BETTER = "EM is better than hard EM with distillation (26.7 and 26.4)"
AT_4 = "EM is better than hard EM with n_c = 4 (25.4 and 22.4)"
BITS = "On CIFAR-10 EM has 0.03 bits per dimension less than hard EM"


def test_verdicts(tmp_path):
    store(
        tmp_path,
        "translation",
        [
            ("teacher", GREEDY, number_of(38.0, 40.0)),
            ("teacher", BEAMS, number_of(39.0, 80.0)),
            ("em10", GREEDY, number_of(37.5, 10.0)),
            ("hard", GREEDY, number_of(37.9)),
            ("em10_nc4", GREEDY, number_of(30.0)),
            ("hard_nc4", GREEDY, number_of(32.5)),
        ],
    )
    found = verdicts(tmp_path)
    assert len(found) == len(paper_findings.CLAIMS)
    assert found[NEAR] == (["0.50 below at 4.00x"], AGREE)
    assert found[BETTER] == (["37.50 and 37.90"], CANNOT_TELL)
    assert found[AT_4] == (["30.00 and 32.50"], NOT)
    assert found[BITS][1] == MISSING
    # A slower model does not keep the promise of speed.
    store(
        tmp_path,
        "translation",
        [
            ("teacher", GREEDY, number_of(38.0, 40.0)),
            ("em10", GREEDY, number_of(37.5, 20.0)),
        ],
    )
    assert verdicts(tmp_path)[NEAR] == (["0.50 below at 2.00x"], NOT)


def test_scores_are_those_of_any_table_and_times_are_not(tmp_path):
    rows = [("hard", GREEDY, number_of(36.0)), ("em10", GREEDY, number_of(38.0))]
    store(tmp_path, "samples", [*rows, ("teacher", GREEDY, number_of(38.0))])
    found = verdicts(tmp_path)
    assert found[BETTER] == (["38.00 and 36.00"], AGREE)
    assert found[NEAR][1] == MISSING


def test_seeds_are_averaged(tmp_path):
    for name, soft in (("translation", 37.0), ("translation_seed2", 39.0)):
        rows = [("em10", GREEDY, number_of(soft)), ("hard", GREEDY, number_of(36.0))]
        store(tmp_path, "translation", rows, name)
    assert verdicts(tmp_path)[BETTER] == (["38.00 and 36.00"], AGREE)


def test_bits_and_the_figure(tmp_path):
    rows = [("image_hard", {}, {"bits": 4.83}), ("image_em5", {}, {"bits": 4.80})]
    store(tmp_path, "cifar", rows)
    row = {"best": 20.0, "last": 19.9, "perplexity": 90.0}
    rows = [(f"{name}_stability", {}, row) for name in ("em5", "em25")]
    rows += [("hard_stability", {}, {**row, "last": 3.0, "perplexity": 2.0})]
    store(tmp_path, "stability", rows)
    found = verdicts(tmp_path)
    assert found[BITS] == (["hard 4.830, EM 4.800"], AGREE)
    figure = "With 2^14 codes and attention, hard EM collapses and EM does not"
    assert found[figure][1] == AGREE
    store(tmp_path, "stability", [(name, {}, row) for name, _, _ in rows])
    assert found.keys() == verdicts(tmp_path).keys()
    cells, verdict = verdicts(tmp_path)[figure]
    assert verdict == NOT and cells[0].endswith("(nothing collapses)")


def test_claims_are_about_rows_of_the_tables(tmp_path):
    """With every row of the tables there, no claim misses one."""
    numbers = {"bleu": 30.0, "ms": 10.0, "best": 30.0, "last": 30.0, "bits": 4.5}
    for name, table in TABLES.items():
        rows = [
            (row.model, row.decoding if table.kind == "translation" else {}, numbers)
            for row in table.rows
        ]
        rows = [(*row[:2], {**numbers, "perplexity": 9.0}) for row in rows]
        store(tmp_path, name, rows)
    assert MISSING not in {verdict for _, verdict in verdicts(tmp_path).values()}


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [(1.5, AGREE), (-1.5, NOT), (0.9, CANNOT_TELL), (-0.9, CANNOT_TELL)],
)
def test_a_difference_within_the_noise_tells_nothing(difference, verdict):
    assert paper_findings.larger(difference) == verdict
