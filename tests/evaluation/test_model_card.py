"""What gets onto a card, and what does not."""

import json
import pathlib

import pytest

from keras_vqem.evaluation import model_card

TRANSLATION = {
    "split": "test",
    "sentences": 1000,
    "machine": {"cores": 2},
    "entries": [
        {"model": "presets/a/config.json", "num_beams": 1, "bleu": 31.8},
        {"model": "presets/a/config.json", "num_beams": 4, "bleu": 32.7},
        {"model": "presets/b/config.json", "num_beams": 1, "bleu": 99.0},
    ],
}
IMAGES = {
    "settings": {"model": "presets/c", "split": "test"},
    "machine": {"cores": 2},
    "rows": {"uniform prior": {"total": 4.93, "images": 10_000}},
}


class LatentNMT:
    """Stands for a model: only the name of its class counts."""


def test_only_figures_of_the_preset_count(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = model_card.preset_metrics(TRANSLATION, pathlib.Path("presets/a"))
    assert found == {"test BLEU, greedy": 31.8, "test BLEU, 4 beams": 32.7}
    assert model_card.preset_metrics(TRANSLATION, pathlib.Path("presets/c")) == {}
    found = model_card.preset_metrics(IMAGES, pathlib.Path("presets/c"))
    assert found == {"bits/dim, uniform prior": 4.93}
    assert model_card.preset_metrics(IMAGES, pathlib.Path("presets/a")) == {}


def test_the_way_of_decoding_is_named():
    entry = {"model": "a/config.json", "num_beams": 4, "bleu": 1.0}
    entry |= {"drop_repeats": True, "rescored": True}
    found = model_card.preset_metrics(
        TRANSLATION | {"entries": [entry]}, pathlib.Path("a")
    )
    assert list(found) == ["test BLEU, 4 beams, repeats left out, rescored"]
    entry = {"model": "a/config.json", "num_beams": 1, "blank_bias": -0.5, "bleu": 1.0}
    found = model_card.preset_metrics(
        TRANSLATION | {"entries": [entry]}, pathlib.Path("a")
    )
    assert list(found) == ["test BLEU, greedy, blank -0.5"]


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [
        (TRANSLATION, "Measured on 1,000 sentences of test, with 2 cores."),
        (IMAGES, "Measured on 10,000 images of test, with 2 cores."),
    ],
)
def test_a_card_says_how_much_was_measured(evaluation, words):
    evaluation = json.loads(json.dumps(evaluation))
    for entry in evaluation.get("entries", []):
        entry["bleu_signature"] = "nrefs:1"
    about = {"task": "Words", "data": "a corpus", "training": {}, "metrics": {"x": 1.0}}
    card = model_card.card_text("name", about, [evaluation, evaluation], "## Terms\n")
    assert words in card and "| x | 1.00 |" in card
    assert card.startswith("# name\n\nWords. Trained on a corpus.\n")
    assert card.endswith("\n\n## Terms\n")


def test_a_run_is_read_from_its_files(tmp_path):
    arguments = {"run": "elsewhere/x", "teacher": None, "epochs": 0, "resume": True}
    (tmp_path / "config.json").write_text(json.dumps({"arguments": arguments}))
    record = model_card.training_record(LatentNMT(), tmp_path)
    [(recipe, found)] = record.items()
    options = {"run": "RUN", "teacher": None, "epochs": 0}
    assert recipe == "train_latent_nmt.py"
    assert found == {"options": options, "minutes": None}
    command = model_card.training_command(recipe, found["options"])
    assert command == "python recipes/train_latent_nmt.py --run RUN --epochs 0"
    lines = [{"epoch": 1, "training_seconds": 40}, {"epoch": 2, "training_seconds": 95}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"epoch": 3, "tr'
    (tmp_path / "metrics.jsonl").write_text(text)
    record = model_card.training_record(LatentNMT(), tmp_path, prior=tmp_path)
    assert list(record) == ["train_latent_nmt.py", "train_image_prior.py"]
    assert record[recipe]["minutes"] == 2


def test_stored_decoding_is_on_the_card():
    stored = {"generation_config": {"num_beams": 4}, "low_score": -1.5}
    text = model_card._stored_decoding(stored)
    assert "decodes with `num_beams=4`" in text and "below -1.5 count as low" in text
    assert model_card._stored_decoding({"generation_config": None}) == ""
