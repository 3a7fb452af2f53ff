"""From a run to a preset with a card, and to everything that reads presets."""

import json

import numpy as np
import pytest

from keras_vqem import layers, models, zoo
from keras_vqem.command import main as command
from keras_vqem.models import preset


@pytest.fixture(scope="module")
def make_preset(recipe):
    return recipe("make_preset")


@pytest.fixture(scope="module")
def shipped(make_preset, tiny, tmp_path_factory):
    """A folder of presets with one in it, as it is before its card is written."""
    run = tiny.latent
    arguments = {
        "run": "runs/x",
        "jit": True,
        "epochs": 3,
        "num_samples": 2,
        "warmup_steps": 0,
        "attend_source": False,
        "distill": True,
        "teacher": "somewhere/t",
        "resume": None,
    }
    (run / "config.json").write_text(json.dumps({"arguments": arguments}))
    line = {"epoch": 3, "training_seconds": 120.0}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    folder = tmp_path_factory.mktemp("shipped")
    make_preset.main(
        ["--run", str(run), "--half", "--output", str(folder / "tiny_en_de")]
    )
    return folder


@pytest.fixture(autouse=True)
def in_place(shipped, monkeypatch):
    monkeypatch.setattr(preset, "SHIPPED", (shipped,))


def test_the_card_tells_what_was_measured_with_the_preset(
    make_preset, recipe, tiny, shipped, tmp_path, capsys
):
    table, notes = tmp_path / "table.json", tmp_path / "notes.md"
    evaluate = ["--data", str(tiny.data.folder), "--rounds", "1", "--json", str(table)]
    recipe("evaluate_translation").main([*evaluate, "--model", "tiny_en_de"])
    notes.write_text("## Terms\n\nPublic domain.\n")
    describe = [
        "--output",
        "tiny_en_de",
        "--evaluation",
        str(table),
        "--task",
        "numbers",
    ]
    describe += ["--trained-on", "made-up sentences", "--notes", str(notes)]
    describe += ["--terms", "any use"]
    make_preset.main(describe)
    card = (shipped / "tiny_en_de" / "README.md").read_text()
    [entry] = json.loads(table.read_text())["entries"]
    assert f"| test BLEU, greedy | {entry['bleu']:.2f} |" in card
    assert entry["bleu_signature"] in card and "Public domain." in card
    assert "Measured on 8 sentences of test, with " in card
    made = (
        "python recipes/train_latent_nmt.py --run RUN --jit --epochs 3 --num-samples 2"
    )
    made += " --warmup-steps 0 --distill --teacher TEACHER`. It took 2 minutes."
    assert made in card
    capsys.readouterr()
    command.main(["zoo"])
    listed = capsys.readouterr().out
    assert "tiny_en_de  (LatentNMT, " in listed
    assert "data:     made-up sentences\n" in listed
    assert f"measured: test BLEU, greedy {entry['bleu']:.2f}\n" in listed
    # Figures of another model do not get onto the card.
    recipe("evaluate_translation").main([*evaluate, "--model", str(tiny.teacher)])
    with pytest.raises(SystemExit):
        make_preset.main(describe)
    assert "Evaluate the preset itself" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_translates_and_exports_a_preset(shipped, tmp_path, capfdbinary):
    texts = ["twenty-one", "", "five"]
    command.main(["translate", "--model", "tiny_en_de", *texts])
    lines = capfdbinary.readouterr().out.decode().split("\n")
    expected = models.LatentNMT.from_preset("tiny_en_de").translate(texts)
    expected = [text.replace("\n", " ").replace("\r", " ") for text in expected]
    assert lines == [*expected, ""]
    command.main(["export", "tiny_en_de", str(tmp_path / "served")])
    version = tmp_path / "served" / "1"
    assert (version / "saved_model.pb").is_file()
    assert (version / "assets.extra" / "tf_serving_warmup_requests").is_file()
    assert [path.name for path in version.parent.iterdir()] == ["1"]
    with pytest.raises(SystemExit):
        command.main(["export", "tiny_en_de", str(version.parent), "--version", "1"])
    assert b"--version" in capfdbinary.readouterr().err


def test_an_export_that_fails_leaves_nothing(shipped, tmp_path, monkeypatch, capsys):
    def fail(folder, rows):
        assert (folder / "saved_model.pb").is_file()
        assert not folder.name.isdigit()  # a server does not look into it
        raise OSError("disk full")

    monkeypatch.setattr("keras_vqem.serving.write_warmup", fail)
    with pytest.raises(SystemExit):
        command.main(["export", "tiny_en_de", str(tmp_path / "served")])
    assert "disk full" in capsys.readouterr().err
    assert not (tmp_path / "served").exists()


def test_zoo_loads_by_name(shipped):
    assert [entry.name for entry in zoo.entries()] == ["tiny_en_de"]
    assert isinstance(zoo.load("tiny_en_de"), models.LatentNMT)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["translate", "--model", "nowhere"], "tiny_en_de"),
        (["translate", "--num-beams", "0"], "at least 1"),
        (["translate", "--file", "x", "text"], "not both"),
        (["export", "nowhere", "folder"], "tiny_en_de"),
        ([], "COMMAND"),
    ],
)
def test_what_is_wrong_is_said(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2 and words in capsys.readouterr().err


def test_pixels_trained_in_half_precision_are_a_preset_in_float32(
    make_preset, tmp_path
):
    run, folder = tmp_path / "run", tmp_path / "preset"
    run.mkdir()
    pixels = layers.GroupedPixels(
        layers.LogisticMixture(2),
        features=4,
        channels=8,
        num_blocks=1,
        dtype="mixed_bfloat16",
    )
    model = models.ImageVQVAE(
        layers.PatchCompressor(code_dim=4, channels=8),
        layers.VQEMBottleneck(8),
        layers.PatchDecompressor(channels=8, pixel_channels=8),
        pixels,
        image_size=(8, 8),
    )
    model.build()
    model.save(run / "model.keras")
    arguments = {"model": "somewhere/codes", "precision": "mixed_bfloat16"}
    (run / "config.json").write_text(json.dumps({"arguments": arguments}))
    make_preset.main(["--run", str(run), "--output", str(folder)])
    loaded = models.ImageVQVAE.from_preset(folder)
    assert {x.compute_dtype for x in loaded._flatten_layers()} == {"float32"}
    for value, other in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(value, other)
    [recipe] = json.loads((folder / "config.json").read_text())["about"]["training"]
    assert recipe == "train_image_pixels.py"
