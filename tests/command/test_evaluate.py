"""`keras-vqem evaluate`: scores and latencies on a user's own files."""

import re

import pytest

from keras_vqem.command import answers, main
from keras_vqem.evaluation import translation_report, translation_scores
from keras_vqem.models import loading
from keras_vqem.text import ParallelCorpus
from tests.command.test_export import failed
from tests.models.small import exportable

CORPUS = ParallelCorpus.from_numbers(6, split="test")


@pytest.fixture(scope="module")
def models():
    found = {"one": exportable("CTCTranslator"), "other": exportable("CTCTranslator")}
    found["other"].generation_config = {"blank_bias": -2.0}
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return list(map(str, CORPUS.save(tmp_path_factory.mktemp("own"), "test")))


@pytest.fixture
def run(models, monkeypatch, capsys):
    monkeypatch.setattr(loading, "model_file", lambda name: loading.pathlib.Path(name))
    monkeypatch.setattr(loading, "load_translator", lambda path: models[path.name])
    # Untrained models may write nothing but signs, and are timed here all the same.
    monkeypatch.setattr(translation_report, "MOSTLY_EMPTY", 1.0)

    def call(*arguments):
        main.main(["evaluate", *arguments])
        return capsys.readouterr()

    return call


@pytest.mark.slow
def test_several_models_are_rows_of_a_table(run, models, files):
    told = run(*files, "--model", "one", "--model", "other", "--rounds=1")
    lines = told.out.splitlines()
    for name, model in models.items():
        found = [a.translation for a in answers.answer_texts(model, CORPUS.sources)]
        scores = translation_scores.score(found, CORPUS.targets)
        [row] = [line for line in lines if line.startswith(f"| {name} |")]
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1] == f"{model.count_params():,}"
        assert cells[2:5] == [
            f"{scores.bleu:.2f}",
            f"{scores.brevity_penalty:.3f}",
            f"{scores.chrf:.2f}",
        ]
        assert float(cells[5]) > 0 and float(cells[-1]) > 0
        each = translation_scores.sentence_chrf(found, CORPUS.targets)
        worst = [
            int(n) for n in re.findall(rf"^{name}, line (\d+): chrF", told.out, re.M)
        ]
        assert worst == [i + 1 for i in sorted(range(6), key=each.__getitem__)[:5]]
        assert f"  translation  {found[worst[0] - 1]}" in lines
        assert f"{name}: translated 6 lines" in told.err
    assert "times as fast as one" in told.out
    assert "training minutes" not in told.out
    assert "BLEU: nrefs:1|case:mixed" in told.out and "chrF: nrefs:1|" in told.out


def test_nothing_is_timed_or_shown_if_not_wanted(run, files):
    told = run(*files, "--model", "one", "--rounds", "0", "--worst", "0")
    assert "median ms" not in told.out and "line 1" not in told.out


def test_mistakes_are_one_sentence(run, files, tmp_path, capsys):
    short = tmp_path / "short"
    short.write_text("one\n")
    model = ["--model", "one"]
    for arguments, words in [
        ([files[0], str(short)], "has 6 lines, but"),
        ([*files, *model, *model], "given twice"),
        ([*files, "--rounds", "-1"], "at least 0"),
        ([files[0], str(tmp_path / "none")], "none"),
    ]:
        assert words in failed(["evaluate", *arguments], capsys)
