"""`keras-vqem export`: the next version, the server's settings, and what it prints."""

import os
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from keras_vqem import layers, models
from keras_vqem.command import main
from tests.command import page_models as small


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    latent = small.translators()[1]
    latent.generation_config = {"num_beams": 2}
    folder = tmp_path_factory.mktemp("presets") / "tiny"
    latent.save_to_preset(folder)
    return str(folder)


def failed(arguments, capsys):
    """What is printed when a command refuses: one line."""
    with pytest.raises(SystemExit, match="2"):
        main.main(arguments)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.splitlines()[-1]


@pytest.mark.slow
def test_versions_follow_each_other_and_what_is_printed_runs(
    preset, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "tiny" / "3").mkdir(parents=True)
    main.main(["export", preset, "models/tiny"])
    printed = capsys.readouterr().out
    found = tmp_path / "models" / "tiny" / "4"
    assert (found / "assets.extra" / "tf_serving_warmup_requests").is_file()
    assert os.listdir(found.parent) in (["3", "4"], ["4", "3"])
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse((tmp_path / "models" / "models.config").read_text(), config)
    [model] = config.model_config_list.config
    assert (model.name, model.base_path) == ("tiny", "/models/tiny")
    assert (tmp_path / "models" / "batching.config").is_file()
    assert f'-v "{tmp_path / "models"}:/models"' in printed
    assert '--model tiny "A dog runs."' in printed
    [code] = re.findall(r"Load it in Python:\n(.*?)Start", printed, re.DOTALL)
    lines = [line.removeprefix("    ") for line in code.splitlines()]
    # In a new process: the operations of the tokenizer have to be registered.
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines[:-1], f"print({lines[-1]})"])],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "translations" in done.stdout

    said = failed(["export", preset, "models/tiny", "--version", "3"], capsys)
    assert "models/tiny/3 exists already" in said and "write version 5" in said


def test_images_without_codes_are_exported_too(tmp_path, capsys):
    model = models.ImageVAE(
        layers.PatchCompressor(code_dim=8, channels=8),
        layers.GaussianBottleneck(latent_dim=4),
        layers.PatchDecompressor(channels=8, pixel_channels=8),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(16, 16),
    )
    model.save_to_preset(tmp_path / "preset")
    main.main(["export", str(tmp_path / "preset"), str(tmp_path / "vae")])
    assert "tf.zeros((1, 16, 16, 3)" in capsys.readouterr().out
    served = tf.saved_model.load(str(tmp_path / "vae" / "1"))
    found = served.signatures["encode"](images=tf.zeros((2, 16, 16, 3), "uint8"))
    assert found["latents"].shape == (2, 4, 4, 4)


def test_refusals_are_one_sentence_and_leave_nothing(preset, tmp_path, capsys):
    target = str(tmp_path / "models" / "tiny")
    for arguments, words in [
        (["nothing", target], "There is no model nothing"),
        ([preset, target, "--max-length", "3"], "--max-length is not an option"),
        ([preset, target, "--num-beams", "0"], "--num-beams must be at least 1"),
        ([preset, target, "--version", "0"], "--version must be at least 1"),
        ([preset, target, "--max-tokens", "1"], "must be at least 2"),
        (["cifar10_em", target, "--num-beams", "2"], "not an option of ImageVQVAE"),
        (["cifar10_em", target, "--precision", "bfloat16"], "is for translators"),
        ([preset, target, "--precision", "float16"], "Use bfloat16"),
        (["cifar10_em", target, "--jit"], "--jit is for translators"),
    ]:
        assert words in failed(["export", *arguments], capsys)
    (tmp_path / "models").mkdir(exist_ok=True)
    (tmp_path / "models" / "models.config").write_text("{")
    assert "Correct it" in failed(["export", preset, target], capsys)
    assert not list((tmp_path / "models").glob("tiny/*"))
