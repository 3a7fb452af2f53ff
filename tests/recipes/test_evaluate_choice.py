"""The comparison of several translations per sentence, from models to table."""

import functools
import json

import pytest

from keras_vqem.evaluation import choice_report, diversity, translation_scores
from keras_vqem.models import loading
from tests.models import small


@pytest.fixture(scope="module")
def evaluate(recipe):
    return recipe("evaluate_choice")


@pytest.mark.slow
def test_the_numbers_are_those_of_the_models(
    evaluate, tiny, tmp_path, capsys, monkeypatch
):
    load = functools.cache(loading.load_translator)
    monkeypatch.setattr(loading, "load_translator", load)
    small.exportable("CTCTranslator").save(tmp_path / "ctc.keras")
    file = tmp_path / "choice.json"
    command = ["--model", tiny.teacher, "--model", tmp_path / "ctc.keras"]
    command += ["--data", tiny.data.folder, "--json", file, "--rounds", 2]
    command += ["--num-return-sequences", 3, "--temperature", 0.5, "--seed", 7]
    evaluate.main([*map(str, command)])
    printed = capsys.readouterr().out
    result = json.loads(file.read_text())
    corpus = tiny.data.corpus("val")
    beams = {"num_beams": 3, "num_return_sequences": 3}
    samples = {"num_beams": 1, "temperature": 0.5, "seed": 7, "num_return_sequences": 3}
    rows = {
        "teacher, 3 beams": (tiny.teacher, beams),
        "teacher, 3 samples, temperature 0.5": (tiny.teacher, samples),
        "ctc, 3 beams": (tmp_path / "ctc.keras", beams),
    }
    entries = {entry["name"]: entry for entry in result["entries"]}
    assert list(entries) == list(rows) and result["sentences"] == len(corpus)
    for name, (path, options) in rows.items():
        entry = entries[name]
        found = load(path).translate(corpus.sources, batch_size=16, **options)
        bleu = translation_scores.bleu([row[0] for row in found], corpus.targets)
        assert entry["first_bleu"] == pytest.approx(bleu)
        oracle = diversity.oracle_bleu(found, corpus.targets)
        assert entry["oracle_bleu"] == pytest.approx(oracle)
        assert entry["self_bleu"] == pytest.approx(diversity.self_bleu(found))
        for n in (1, 2):
            share = diversity.distinct_ngrams(found, n)
            assert entry[f"distinct_{n}"] == pytest.approx(share)
        assert entry["latency"]["rounds"] == 2 and entry["model"] == str(path)
        line = next(s for s in printed.splitlines() if s.startswith(f"| {name} | "))
        assert f"{entry['self_bleu']:.2f}" in line
        assert f"{entry['latency']['median_ms']:.1f}" in line


def test_a_model_that_searches_by_default_samples_too():
    model = small.transformer(generation_config={"num_beams": 2, "temperature": None})
    ways = choice_report.ways(model, 4, [0.5, 1.0])
    assert list(ways) == [
        "4 beams",
        "4 samples, temperature 0.5",
        "4 samples, temperature 1",
    ]
    for options in ways.values():
        [found] = model.translate(["abc"], max_length=3, **options)
        assert len(found) == 4


def test_wrong_arguments_are_explained(evaluate, tiny, capsys):
    data = ["--data", str(tiny.data.folder)]
    model = ["--model", str(tiny.teacher)]
    for arguments, words in [
        ([*model, *data, "--split", "dev"], "test, train, val"),
        ([*model, *model, *data], "given twice"),
        ([*model, *data, "--temperature", "1", "1.0"], "twice"),
        ([*model, *data, "--num-return-sequences", "1"], "at least 2"),
        ([*data, "--model", "nowhere"], "nowhere"),
    ]:
        with pytest.raises(SystemExit) as stop:
            evaluate.main(arguments)
        assert stop.value.code == 2
        assert words in capsys.readouterr().err


def test_a_model_of_one_translation_is_named():
    class Single:
        generation_options = ["num_beams"]

    with pytest.raises(ValueError, match="Single has no option `num_return_sequences`"):
        choice_report.ways(Single(), 3)
