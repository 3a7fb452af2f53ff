import functools
import json

import pytest

from keras_vqem.evaluation import codes, translation_report, translation_scores
from keras_vqem.models import loading


@pytest.fixture(scope="module")
def evaluate(recipe):
    return recipe("evaluate_translation")


def test_the_numbers_are_those_of_the_models(
    evaluate, tiny, tmp_path, capsys, monkeypatch
):
    # Loaded once for the recipe and for this test, and so traced once.
    load = functools.cache(loading.load_translator)
    monkeypatch.setattr(loading, "load_translator", load)
    # Untrained models may write nothing but signs, and are timed here all the same.
    monkeypatch.setattr(translation_report, "MOSTLY_EMPTY", 1.0)
    file = tmp_path / "out" / "table.json"
    command = ["--model", tiny.teacher, "--model", tiny.latent]
    command += ["--data", tiny.data.folder, "--json", file, "--rounds", 2]
    command += ["--num-beams", 1, 2, "--show", 2, "--lowercase"]
    command += ["--international"]
    evaluate.main([*map(str, command)])
    printed = capsys.readouterr().out
    result = json.loads(file.read_text())
    corpus = tiny.data.corpus("test")
    entries = {entry["name"]: entry for entry in result["entries"]}
    names = [f"{m}, {b}" for m in ("teacher", "latent") for b in ("greedy", "2 beams")]
    assert list(entries) == names
    files = {"teacher": tiny.teacher, "latent": tiny.latent / "model.keras"}
    models = {name: load(file) for name, file in files.items()}
    assert load.cache_info().currsize == 2
    for name, entry in entries.items():
        model = models[name.split(",")[0]]
        found = model.translate(corpus.sources, num_beams=entry["num_beams"])
        scores = translation_scores.score(found, corpus.targets, also=["lowercase"])
        assert entry["bleu_lowercase"] == pytest.approx(scores.bleu_lowercase)
        assert entry["bleu"] == pytest.approx(scores.bleu)
        assert entry["empty_share"] == translation_report.empty_share(found)
        assert entry["chrf"] == pytest.approx(scores.chrf)
        assert entry["brevity_penalty"] == pytest.approx(scores.brevity_penalty)
        assert entry["bleu_signature"] == scores.bleu_signature
        assert entry["parameters"] == sum(w.numpy().size for w in model.weights)
        assert result["samples"][1][name] == found[4]
        for size in ("1", "32"):
            times = entry["latency"][size]
            assert 0 < times["median_ms"] <= times["p95_ms"] and times["rounds"] == 2
            assert list(times["speedup"]) == names[:2]
            for base, speedup in times["speedup"].items():
                slow = entries[base]["latency"][size]["median_ms"]
                assert speedup == pytest.approx(slow / times["median_ms"])
        row = next(s for s in printed.splitlines() if s.startswith(f"| {name} | "))
        assert f"{entry['chrf']:.2f}" in row and f"{entry['parameters']:,}" in row
    assert "codes" not in entries["teacher, greedy"]
    own = codes.reconstruct(models["latent"], corpus.sources, corpus.targets)
    used = entries["latent, greedy"]["codes"]
    own = translation_scores.bleu(own, corpus.targets)
    assert used["bleu_from_own_codes"] == pytest.approx(own)
    assert used["num_codes"] == 8 and 1 <= used["perplexity"] <= 8
    assert result["sentences"] == 8 and result["machine"]["cores"] >= 1
    assert result["versions"]["sacrebleu"] and result["samples"][0]["reference"]
    assert "nrefs:1|case:mixed" in printed and "nrefs:1|case:lc" in printed
    columns = (
        "| BLEU | BLEU, lower case | BLEU, international tokens | brevity penalty |"
    )
    assert columns in printed and "|tok:intl|" in printed


def test_wrong_arguments_are_explained(evaluate, tiny, capsys):
    data = ["--data", str(tiny.data.folder)]
    model = ["--model", str(tiny.latent)]
    for arguments, words in [
        ([*model, *data, "--split", "dev"], "test, train, val"),
        ([*model, *model, *data], "given twice"),
        ([*model, *data, "--num-beams", "1", "1"], "twice"),
        ([*model, *data, "--rounds", "0"], "at least 1"),
        ([*data, "--model", "nowhere"], "nowhere"),
        ([*model, *data, "--rescorer", "nowhere"], "nowhere"),
        ([*model, *data, "--show", "-1"], "negative"),
    ]:
        with pytest.raises(SystemExit) as stop:
            evaluate.main(arguments)
        assert stop.value.code == 2
        assert words in capsys.readouterr().err


def test_models_of_one_name_are_told_apart(tmp_path):
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder / "run").mkdir(parents=True)
        paths.append(tmp_path / folder / "run" / "model.keras")
        paths[-1].write_text("")
    assert loading.short_names(paths[:1]) == ["run"]
    assert loading.short_names(paths) == list(map(str, paths))
