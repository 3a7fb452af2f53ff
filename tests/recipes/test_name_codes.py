"""Codes get the names of what they write, and the run and its preset tell of it."""

import json
import shutil

import numpy as np
import pytest

from keras_vqem.evaluation import codes
from keras_vqem.models import loading
from keras_vqem.text import ParallelCorpus, TranslationData

WORDS = {
    -1: "Was hat man hier?",
    0: "Was haben Sie hier?",
    1: "Was hast du hier?",
    2: "Sie haben etwas.",
    3: "Hast du Ihr Buch?",
}


@pytest.fixture(scope="module")
def name_codes(recipe):
    return recipe("name_codes")


@pytest.fixture
def data(tiny, tmp_path):
    sources = ["What do you have here?"] * 30 + ["He is here."] * 2
    targets = ["Was haben Sie hier?"] * 30 + ["Er ist hier."] * 2
    corpus = ParallelCorpus(sources, targets)
    splits = {"val": corpus, "test": corpus}
    tokenizer = tiny.data.tokenizer
    return TranslationData.create(tmp_path / "data", "en", "de", tokenizer, splits)


@pytest.fixture
def run(tiny, tmp_path):
    """A run with a name of its own and one of an earlier measurement."""
    folder = tmp_path / "run"
    shutil.copytree(tiny.latent, folder)
    model = loading.load_translator(folder)
    model.styles = {"loud": 7, "plural": 6}
    model.save(folder / "model.keras")
    arguments = {"run": "runs/x", "epochs": 3}
    (folder / "config.json").write_text(json.dumps({"arguments": arguments}))
    return folder


@pytest.fixture(autouse=True)
def words(monkeypatch):
    """The forms that an untrained model would not write."""

    def encode(model, sources, targets, batch_size):
        return [np.array([k % 4, 5]) for k in range(len(sources))]

    def translate(model, sources, first_codes, batch_size):
        return [WORDS[code] for code in first_codes]

    monkeypatch.setattr(codes, "encode", encode)
    monkeypatch.setattr(codes, "translate", translate)


def test_a_run_gets_styles_and_a_page_about_them(name_codes, run, data, tiny, capsys):
    arguments = ["--model", str(run), "--data", str(data.folder), "--test", "test"]
    name_codes.main([*arguments, "--baseline", str(tiny.teacher)])
    printed = capsys.readouterr().out
    assert "`formal` is code 0 (Sie), `informal` is code 1 (du)" in printed
    model = loading.load_translator(run)
    # The name that somebody gave stays, the one that is no longer true goes.
    assert model.styles == {"loud": 7, "formal": 0, "informal": 1}
    text = (run / "codes.md").read_text()
    assert text in printed and text.startswith("# What codes do\n")
    assert (
        "| 0 | formal | 8 |" in text and "| formal | 0 | 30 | 0 | 0 | 0 (0.0%)" in text
    )
    assert "32 sentences of test, of which 30 address the reader" in text
    result = json.loads((run / "codes.json").read_text())
    assert result["styles"] == {"formal": 0, "informal": 1}
    assert [code["code"] for code in result["effects"]["codes"]] == [0, 1, 2, 3]
    scores = result["control"]["bleu"]
    assert scores["as in the reference"][1] == pytest.approx(100)
    assert set(scores) == {"predicted", "as in the reference", "baseline"}


def test_the_card_of_its_preset_tells_what_codes_do(
    name_codes, recipe, run, data, tmp_path
):
    name_codes.main(["--model", str(run), "--data", str(data.folder)])
    assert json.loads((run / "codes.json").read_text())["control"] is None
    make_preset, folder = recipe("make_preset"), tmp_path / "preset"
    make_preset.main(["--run", str(run), "--output", str(folder)])
    entry = {"model": str(folder / "config.json"), "num_beams": 1, "bleu": 31.8}
    evaluation = {"split": "test", "sentences": 32, "machine": {"cores": 2}}
    evaluation["entries"] = [entry | {"bleu_signature": "nrefs:1"}]
    (tmp_path / "table.json").write_text(json.dumps(evaluation))
    describe = ["--output", str(folder), "--evaluation", str(tmp_path / "table.json")]
    describe += ["--task", "words", "--trained-on", "a corpus", "--terms", "any use"]
    make_preset.main(describe)
    card = (folder / "README.md").read_text()
    assert "\n## What codes do\n" in card and "| 0 | formal | 8 |" in card
    asked = "`style='loud'`, `style='formal'`, `style='informal'`."
    assert f"Styles that a call may ask for: {asked}" in card
    assert loading.load_translator(folder).styles["informal"] == 1


def test_mistakes_are_one_sentence(name_codes, run, data, tiny, capsys):
    arguments = ["--model", str(run), "--data", str(data.folder)]
    for more, words in [
        (["--baseline", str(tiny.teacher)], "pass both"),
        (["--min-first", "40"], "Lower `min_first`"),
        (["--split", "dev"], "has no split 'dev'"),
        (["--model", "multi30k_en_de_em"], "is not the folder of a run"),
        (["--model", str(tiny.teacher)], "is not the folder of a run"),
    ]:
        with pytest.raises(SystemExit, match="2"):
            name_codes.main([*arguments, *more])
        assert words in capsys.readouterr().err
    assert not (run / "codes.md").exists()
