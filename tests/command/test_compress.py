"""`keras-vqem compress` and `decompress`: there and back, and clear refusals."""

import functools
import hashlib
import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_vqem.command import compress, main
from keras_vqem.command.photos import photos
from keras_vqem.command.progress import Progress
from keras_vqem.compression import ImageCodec
from keras_vqem.evaluation.image_quality import psnr
from tests.compression import small


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """Folders of two models."""
    folder = tmp_path_factory.mktemp("presets")
    model = small.model()
    model.save_to_preset(folder / "one")
    model.head.bias.assign(model.head.bias + 1.0)
    model.save_to_preset(folder / "two")
    return folder


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.png"
    Image.fromarray(small.image(40, 50)).save(path)
    return path


def run(*arguments):
    main.main([str(argument) for argument in arguments])


def failed(capsys, *arguments):
    """What is printed when a command refuses: one line."""
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.splitlines()[-1]


def read(path):
    return tf.io.decode_png(path.read_bytes()).numpy()


def test_there_and_back(presets, photo, tmp_path, capsys):
    run("compress", photo, "--model", presets / "one")
    said = capsys.readouterr().out
    packed = tmp_path / "photo.vqem"
    size = packed.stat().st_size
    assert f"{packed}: {size:,} bytes, {8 * size / 2000:.2f} bits per pixel" in said
    assert f"{photo} has {photo.stat().st_size:,} bytes" in said
    back = tmp_path / "back.png"
    run("decompress", packed, "--model", presets / "one", "--output", back)
    assert f"{back}: 50 x 40 pixels" in capsys.readouterr().out
    found, original = read(back), read(photo)
    # What was promised is what comes back.
    assert f"PSNR {psnr(original[None], found[None])[0]:.2f} dB, SSIM" in said
    codec = ImageCodec(small.model(), "one")
    expected = codec.decode(codec.encode(original), 40, 50)
    np.testing.assert_array_equal(found, expected)

    plain = tmp_path / "plain.vqem"
    run("compress", photo, "--model", presets / "one", "--no-prior", "--output", plain)
    run("decompress", plain, "--model", presets / "one")
    np.testing.assert_array_equal(read(tmp_path / "plain.png"), found)


def test_other_kinds_of_images_become_rgb(presets, tmp_path):
    image = small.image(20, 30)
    grey = np.repeat(image[..., :1], 3, axis=-1)
    alpha = np.concatenate([image, image[..., :1]], axis=-1)
    few = Image.fromarray(image).quantize(8)
    for number, (stored, seen) in enumerate(
        [(image[..., 0], grey), (alpha, image), (few, np.asarray(few.convert("RGB")))]
    ):
        path = tmp_path / f"{number}.png"
        stored = stored if number == 2 else Image.fromarray(stored)
        stored.save(path)
        run("compress", path, "--no-prior", "--model", presets / "one")
        codec = ImageCodec(small.model(), "one")
        codes, *_ = codec.unpack(path.with_suffix(".vqem").read_bytes())
        np.testing.assert_array_equal(codes, codec.encode(seen))


def test_nothing_is_replaced_unless_it_is_named(presets, photo, capsys):
    model = ("--model", presets / "one", "--no-prior")
    run("compress", photo, *model)
    packed = photo.with_suffix(".vqem")
    before = packed.read_bytes()
    said = failed(capsys, "compress", photo, *model)
    assert f"{packed} exists already. Pass --output {packed} to replace it" in said
    run("compress", photo, *model, "--output", packed)
    assert packed.read_bytes() == before
    said = failed(capsys, "decompress", packed, *model[:2])
    assert f"{photo} exists already" in said
    said = failed(capsys, "decompress", packed, *model[:2], "--output", "a.jpg")
    assert "a.jpg does not end in .png" in said
    said = failed(capsys, "compress", photo, "--output", photo.parent / "no" / "a.vqem")
    assert f"There is no folder {photo.parent / 'no'} to write to" in said


def test_refusals_of_files_are_one_sentence_and_write_nothing(
    presets, photo, tmp_path, capsys
):
    one, two = (("--model", presets / name) for name in ("one", "two"))
    run("compress", photo, *one)
    packed = photo.with_suffix(".vqem")
    content, photo_content = packed.read_bytes(), photo.read_bytes()
    photo.unlink()
    said = failed(capsys, "decompress", packed, *two)
    assert f"{packed}: The codes are of the model 'one'" in said and "'two'" in said
    assert "Pass that model as --model" in failed(capsys, "decompress", packed)
    said = failed(capsys, "decompress", packed, *one, "--max-pixels", 10)
    assert "has 50 x 40 pixels" in said and "--max-pixels 2000" in said
    vae = ("--model", "multi30k_en_de_em")
    assert "ImageVQVAE is needed" in failed(capsys, "decompress", packed, *vae)
    packed.write_bytes(content[:-1])
    assert "damaged or incomplete" in failed(capsys, "decompress", packed, *one)
    packed.write_bytes(photo_content)
    assert "is no file of codes" in failed(capsys, "decompress", packed, *one)
    # A file may not choose a folder to load a model from.
    evil = content.replace(b"\x03one", b"\x03../")[:-8]
    packed.write_bytes(evil + hashlib.sha256(evil).digest()[:8])
    assert "made with the model '../'" in failed(capsys, "decompress", packed)
    assert not photo.exists()

    broken, missing = tmp_path / "broken.png", tmp_path / "missing.png"
    broken.write_bytes(photo_content[: len(photo_content) // 2])
    assert "cannot be decoded" in failed(capsys, "compress", broken, *one)
    assert "No such file" in failed(capsys, "compress", missing, *one)
    broken.write_bytes(photo_content)
    said = failed(capsys, "compress", broken, *one, "--max-pixels", 1999)
    assert "has 50 x 40 pixels" in said and "--max-pixels 2000" in said
    assert not broken.with_suffix(".vqem").exists()


def test_progress_counts_tiles(presets, photo, capsys, monkeypatch):
    ticking = functools.partial(Progress, clock=itertools.count(0, 31).__next__)
    monkeypatch.setattr(compress, "Progress", ticking)
    run("compress", photo, "--model", presets / "one")
    assert "12 tiles, 100%" in capsys.readouterr().err


@pytest.mark.slow  # 640 steps.
def test_the_preset_is_found_by_its_name(tmp_path, capsys):
    image = np.concatenate(photos()[:3], axis=1)[:30]
    path = tmp_path / "photos.png"
    Image.fromarray(image).save(path)
    run("compress", path)
    packed = tmp_path / "photos.vqem"
    assert packed.stat().st_size < 3 * 520  # 640 without the prior
    path.unlink()
    run("decompress", packed)
    assert psnr(image[None], read(path)[None])[0] > 30
