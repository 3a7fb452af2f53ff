"""Presets: the same model again, and an error that says what is wrong if not."""

import json
import os
import shutil

import keras
import numpy as np
import pytest

from keras_vqem import files, layers, models
from keras_vqem.models import preset
from keras_vqem.models.preset import PresetError


def test_a_translator_comes_back(translator, folder):
    again = models.LatentNMT.from_preset(folder)
    for mine, other in zip(again.weights, translator.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    texts = ["twenty-one", "five to three", ""]
    assert again.translate(texts) == translator.translate(texts)
    names = {"config.json", "weights.npz", "tokenizer.model", "README.md"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "README.md").read_text() == "# A small one\n"


def test_a_trained_model_comes_back_without_its_optimizer(tmp_path):
    prior = models.GridTransformer((2, 2, 2), 4, 8, 1, 2, 16, block_length=4)
    prior.compile()
    symbols = np.zeros((4, 2, 2, 2), "int32")
    prior.fit({"symbols": symbols}, verbose=0)
    model = models.ImageVQVAE(
        layers.PatchCompressor(8, channels=8),
        layers.VQEMBottleneck(4, groups=layers.Slices(2)),
        layers.PatchDecompressor(channels=8, pixel_channels=8),
        layers.LogisticMixture(2),
        image_size=(8, 8),
    )
    model.compile()
    images = np.zeros((4, 8, 8, 3), "uint8")
    model.fit({"images": images}, verbose=0)
    model = model.with_prior(prior)
    model.compile()
    for turn in range(2):  # and what was loaded can be saved
        model.save_to_preset(tmp_path / str(turn))
        model = models.ImageVQVAE.from_preset(tmp_path / str(turn))
        assert not model.compiled and not model.prior.compiled
    np.testing.assert_array_equal(model.prior.vectors, prior.vectors)


def test_half_precision_is_rounded_and_smaller(translator, tmp_path):
    translator.save_to_preset(tmp_path / "half", half=True)
    again = models.LatentNMT.from_preset(tmp_path / "half")
    for mine, other in zip(again.weights, translator.weights, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-6)
    with np.load(tmp_path / "half" / "weights.npz") as file:
        stored = {file[key].dtype.name for key in file.files}
    assert stored == {"float16", "int32"}  # the number of steps is exact


def test_saving_again_replaces_all_or_nothing(translator, folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*args, **kwargs):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(preset, "write_json", fail)
        with pytest.raises(OSError, match="disk full"):
            translator.save_to_preset(folder, card="new")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    (folder / "extra").write_text("of the old one")
    translator.save_to_preset(folder, card="new")
    assert (folder / "README.md").read_text() == "new"
    assert not (folder / "extra").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["small"]


def test_what_is_no_preset_is_not_replaced(translator, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="Choose another folder"):
        translator.save_to_preset(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_shipped_presets_are_found_by_name(folder, monkeypatch, translator):
    monkeypatch.setattr(preset, "SHIPPED", (folder.parent,))
    again = models.LatentNMT.from_preset("small")
    np.testing.assert_array_equal(again.weights[0], translator.weights[0])
    with pytest.raises(FileNotFoundError, match=r"no preset 'large'.*\(small\)"):
        models.LatentNMT.from_preset("large")


def test_another_class_is_named(folder):
    with pytest.raises(PresetError, match="a LatentNMT, not a Transformer"):
        models.Transformer.from_preset(folder)


def test_options_of_generate_are_stored(translator, tmp_path):
    translator.generation_config = {"num_beams": 3, "drop_repeats": True}
    translator.low_score = -1.5
    try:
        translator.save_to_preset(tmp_path / "small")
        translator.save(tmp_path / "small.keras")
    finally:
        translator.generation_config, translator.low_score = {}, None
    for again in (
        models.LatentNMT.from_preset(tmp_path / "small"),
        keras.saving.load_model(tmp_path / "small.keras", compile=False),
    ):
        assert again.generation_config == {"num_beams": 3, "drop_repeats": True}
        assert again.low_score == -1.5
    assert models.LatentNMT.from_config(translator.get_config()).low_score is None


def test_options_that_generate_does_not_have_are_refused(folder, translator):
    with pytest.raises(ValueError, match=r"\['max_length'\], which are not options"):
        translator.generation_config = {"max_length": 3}
    path = folder / "config.json"
    record = json.loads(path.read_text())
    record["model"]["config"]["generation_config"] = {"beams": 3}
    path.write_text(json.dumps(record))
    with pytest.raises(PresetError, match="beams"):
        models.LatentNMT.from_preset(folder)


def image_model(initializer):
    return models.ImageVQVAE(
        layers.PatchCompressor(code_dim=4, channels=4, num_blocks=0),
        layers.VQEMBottleneck(4, initializer=initializer),
        layers.PatchDecompressor(channels=4, num_blocks=0, pixel_channels=4),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(8, 8),
    )


def test_codes_given_as_an_array_come_back(tmp_path):
    codes = np.random.default_rng(0).normal(size=(1, 4, 4)).astype("float32")
    model = image_model(keras.initializers.Constant(codes))
    model.save_to_preset(tmp_path / "preset")
    again = models.ImageVQVAE.from_preset(tmp_path / "preset")
    np.testing.assert_array_equal(again.bottleneck.codebook, codes)


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    model = image_model(keras.initializers.Orthogonal())
    model.bottleneck.built = model.built = True
    with pytest.raises(
        PresetError, match="presets cannot hold objects of .*Orthogonal"
    ):
        model.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset").exists()


def test_an_old_preset_survives_a_failed_replacement(folder, monkeypatch):
    model = preset.Presets.from_preset(folder)
    rename = os.rename

    def fail(path, target):
        if path.name.endswith(".partial"):
            raise OSError("no space left")
        return rename(path, target)

    monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="no space left"):
        model.save_to_preset(folder)
    monkeypatch.undo()
    preset.Presets.from_preset(folder)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_preset_survives_a_kill_between_two_names(folder, monkeypatch):
    monkeypatch.setattr(preset, "SHIPPED", (folder.parent,))
    # What a killed writer leaves where folders cannot be exchanged.
    new = folder.with_name(".small.0123456789abcdef.partial")
    shutil.copytree(folder, new)
    folder.rename(folder.with_name(".small.0123456789abcdef.old"))
    assert preset.shipped() == []
    model = preset.Presets.from_preset(folder)
    assert preset.shipped() == ["small"]
    model.save_to_preset(folder)
    assert os.listdir(folder.parent) == ["small"]
