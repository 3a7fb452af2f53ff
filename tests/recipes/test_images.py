"""The image recipes one after the other, as a user runs them, on a folder of PNGs."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers, models
from keras_vqem.images import shapes

NETWORK = "--channels 8 --num-blocks 1 --pixel-channels 8 --num-pixel-blocks 1".split()
CODES = "--code-dim 4 --num-mixtures 2".split()
PRIOR = "--hidden-dim 16 --num-layers 1 --num-heads 2 --intermediate-dim 16".split()
PRIOR += ["--block-length", "20"]
SPLITS = {"train": "train", "val": "validation", "test": "test"}
BRIEF = "--epochs 2 --batch-size 8 --average 1".split()


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").open()]


@pytest.fixture(scope="module")
def run(recipe):
    def run(name, *arguments):
        recipe(name).main([str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    for split, count in {"train": 24, "val": 8, "test": 8}.items():
        (folder / split).mkdir()
        images, _ = shapes.images(count, size=16, split=SPLITS[split])
        for number, image in enumerate(images):
            png = tf.io.encode_png(image).numpy()
            (folder / split / f"{number:03}.png").write_bytes(png)
    return ["--dataset", "folder", "--data", folder]


@pytest.fixture(scope="module")
def autoencoder(run, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "autoencoder"
    cooling = ["--temperature", 0.3, "--final-temperature", 0.003]
    options = [*BRIEF, *NETWORK, *CODES, *cooling]
    run("train_image_autoencoder", *data, "--run", path, *options)
    return path


@pytest.fixture(scope="module")
def prior(run, data, autoencoder):
    path = autoencoder.parent / "prior"
    where = ["--autoencoder", autoencoder, "--run", path]
    run("train_image_prior", *data, *where, *BRIEF, *PRIOR)
    return path


def test_a_temperature_falls_to_its_final_value_with_the_run(autoencoder):
    from keras_vqem.models.loading import load_model

    bottleneck = load_model(autoencoder).bottleneck
    np.testing.assert_allclose(bottleneck.temperature.value(), 0.003, rtol=1e-5)


def test_a_run_that_could_not_start_leaves_its_folder_free(run, data, tmp_path, capsys):
    options = ["--run", tmp_path / "run", *BRIEF, *NETWORK, *CODES]
    nowhere = ["--dataset", "cifar10", "--data", tmp_path]
    with pytest.raises(FileNotFoundError):
        run("train_image_autoencoder", *nowhere, *options, "--verbose")
    warming = ["--final-temperature", 0.5]
    for wrong, words in (
        (nowhere, str(tmp_path)),
        ([*data, *warming], "at most --temperature, 0.1"),
        ([*data, *warming, "--num-samples", 0], "--num-samples 0 is hard EM"),
    ):
        with pytest.raises(SystemExit) as stopped:
            run("train_image_autoencoder", *wrong, *options)
        assert stopped.value.code == 2 and words in capsys.readouterr().err
    # Images of any size, none of them set apart for validation.
    for split in ("train", "test"):
        (tmp_path / "mixed" / split).mkdir(parents=True)
        for number in range(20):
            image = shapes.images(20, size=16 + number)[0][number]
            path = tmp_path / "mixed" / split / f"{number}.png"
            path.write_bytes(tf.io.encode_png(image).numpy())
    mixed = ["--dataset", "folder", "--data", tmp_path / "mixed", "--size", 12]
    run("train_image_autoencoder", *mixed, "--validation", 8, *options)
    assert (tmp_path / "run" / "model.keras").is_file()


def test_a_stopped_run_goes_on_as_if_it_had_not(run, data, tmp_path):
    path = tmp_path / "run"
    cooling = ["--temperature", 0.3, "--final-temperature", 0.003]
    options = [*data, "--run", path, *BRIEF, *NETWORK, *CODES, *cooling]
    run("train_image_autoencoder", *options)
    whole = metrics(path)
    (path / "checkpoints" / "epoch-0002.npz").unlink()
    run("train_image_autoencoder", *options, "--resume")
    again = metrics(path)
    assert again[0] == whole[0]
    for key, value in whole[1].items():
        if "seconds" not in key:
            np.testing.assert_allclose(again[1][key], value, rtol=1e-6, err_msg=key)


def test_runs_leave_metrics(autoencoder, prior):
    lines = metrics(autoencoder)
    assert [line["epoch"] for line in lines] == [1, 2]
    assert {
        "reconstruction_bits_per_dim",
        "val_reconstruction_bits_per_dim",
        "perplexity",
    } <= set(lines[1])
    line = metrics(prior)[-1]
    # The prior starts at no more than 8 bits a code and does not get worse.
    assert 0 < line["val_bits_per_symbol"] < 8.2


def test_a_stopped_prior_goes_on_with_the_codes_it_has_seen(
    run, data, autoencoder, prior, monkeypatch, capsys
):
    from keras_vqem.evaluation import image_bits

    whole = metrics(prior)
    (prior / "checkpoints" / "epoch-0002.npz").unlink()
    where = ["--autoencoder", autoencoder, "--run", prior, "--resume"]
    with monkeypatch.context() as patch:
        patch.setattr(image_bits, "encode", None)
        run("train_image_prior", *data, *where, *BRIEF, *PRIOR)
    name = "val_bits_per_symbol"
    assert metrics(prior)[-1][name] == pytest.approx(whole[-1][name])
    other = ["--autoencoder", autoencoder, "--run", prior.parent / "new", "--size", 12]
    with pytest.raises(SystemExit):
        run("train_image_prior", *data, *other, *BRIEF, *PRIOR)
    assert re.search(r"12 x 12.*--size 16", capsys.readouterr().err)


def test_the_codes_of_another_autoencoder_are_not_taken(recipe, tmp_path, monkeypatch):
    from keras_vqem.evaluation import image_bits

    codes_of = recipe("train_image_prior").codes_of
    path, images = tmp_path / "codes.npz", shapes.images(4, size=8)[0]
    computed = []

    def encode(model, images, log):
        computed.append(model)
        return images[..., 0]

    monkeypatch.setattr(image_bits, "encode", encode)
    for name, number in (("first", 3), ("first", 3), ("second", 6)):
        arrays, val = codes_of(
            name, [images, images[:2]], np.arange(8), path, made_of=name
        )
        train = arrays["symbols"]
        assert len(computed) == number and train.shape == (8, 8, 8)
    np.testing.assert_array_equal(train[4:], images[:, :, ::-1, 0])
    np.testing.assert_array_equal(val, images[:2, ..., 0])


def test_a_short_prior_encodes_no_more_than_it_sees(recipe, tmp_path, monkeypatch):
    from keras_vqem.array_batches import ArrayBatches
    from keras_vqem.evaluation import image_bits

    module = recipe("train_image_prior")
    images = shapes.images(50, size=8)[0]
    encoded = []

    def encode(model, images, log):
        encoded.append(len(images))
        return images[..., 0]

    monkeypatch.setattr(image_bits, "encode", encode)
    rows, start = module.rows_seen(100, 4, 1, 3, epochs=2)
    assert start == 24 and len(rows) <= 48
    splits = [images, images[:2]]
    arrays, _ = module.codes_of("model", splits, rows, tmp_path / "codes.npz", "x")
    codes = arrays["symbols"]
    assert sum(encoded) == len(rows) + 2
    everything = np.concatenate([images, images[:, :, ::-1]])[..., 0]
    np.testing.assert_array_equal(codes[:start], everything[:start])
    seen = ArrayBatches({"symbols": codes}, 4, 1, 3)
    whole = ArrayBatches({"symbols": everything}, 4, 1, 3)
    for epoch in range(2):
        for batch, expected in zip(seen.epoch(epoch), whole.epoch(epoch), strict=True):
            np.testing.assert_array_equal(batch["symbols"], expected["symbols"])
    # A run that sees everything encodes everything.
    assert len(module.rows_seen(100, 4, 1, None, epochs=1)[0]) == 100


@pytest.mark.slow
def test_a_prior_learns_soft_labels(run, data, autoencoder, tmp_path, capsys):
    path = tmp_path / "soft"
    where = ["--autoencoder", autoencoder, "--run", path, "--soft-labels"]
    run("train_image_prior", *data, *where, *BRIEF, *PRIOR)
    with np.load(path / "codes.npz") as file:
        codes, samples = file["symbols"], file["samples"]
    assert samples.shape == (*codes.shape, 5) and samples.dtype == np.uint8
    # At a temperature of 0.003 most draws are the nearest code, but not all.
    agree = np.mean(samples == codes[..., None])
    assert 0.3 < agree < 1
    line = metrics(path)[-1]
    assert line["bits_per_symbol"] != line["val_bits_per_symbol"]

    hard = tmp_path / "hard"
    options = ["--num-samples", 0, "--num-slots", 3, "--num-codes", 8]
    given = [*BRIEF, *NETWORK, *CODES, *options, "--run", hard]
    run("train_image_autoencoder", *data, *given)
    with pytest.raises(SystemExit):
        where = ["--autoencoder", hard, "--run", tmp_path / "new", "--soft-labels"]
        run("train_image_prior", *data, *where, *BRIEF, *PRIOR)
    assert "--soft-labels needs an autoencoder" in capsys.readouterr().err
    out = tmp_path / "bits.json"
    run("evaluate_images", *data, "--model", hard, "--json", out)
    bits = json.loads(out.read_text())["rows"]["uniform prior"]["prior"]
    assert bits == pytest.approx(9 / 48)  # 3 codes of 3 bits per cell of 48 numbers


def test_losses_are_in_the_unit_of_their_parts(autoencoder, prior):
    for line in metrics(autoencoder):
        for val in ("", "val_"):
            parts = (f"{val}reconstruction_bits_per_dim", f"{val}bottleneck_loss")
            total = sum(line[part] for part in parts)
            np.testing.assert_allclose(line[f"{val}loss"], total, rtol=1e-4)
    line = metrics(prior)[-1]
    for val in ("", "val_"):
        bits = line[f"{val}bits_per_symbol"]
        np.testing.assert_allclose(line[f"{val}loss"], bits, rtol=1e-4)
    log = (prior / "log.txt").read_text().splitlines()[-1]
    assert f"the last checkpoint: bits_per_symbol {bits:.4g}  loss {bits:.4g}" in log


def test_evaluation_is_a_bound_in_parts(
    run, data, autoencoder, prior, tmp_path, capsys
):
    out = tmp_path / "bits.json"
    models = ["--model", autoencoder, "--prior", prior]
    run("evaluate_images", *data, *models, "--json", out, "--batch-size", 3)
    rows = json.loads(out.read_text())["rows"]
    names = ["uniform prior", "unigram prior", "unigram prior per cell", "predictor"]
    assert list(rows) == names
    # 4 x 4 cells of ten bytes for 16 x 16 x 3 numbers.
    np.testing.assert_allclose(rows["uniform prior"]["prior"], 5 / 3, rtol=1e-6)
    for row in rows.values():
        np.testing.assert_allclose(row["total"], row["reconstruction"] + row["prior"])
        assert row["images"] == 8
    printed = capsys.readouterr().out
    assert f"{rows['predictor']['total']:.3f}" in printed
    assert "the paper's accounting (5 draws, not a bound)" in printed


def test_pictures(run, data, autoencoder, prior, tmp_path):
    models = ["--model", autoencoder, "--prior", prior, "--output", tmp_path / "new"]
    run("sample_images", *data, *models, "--columns", 3, "--rows", 2)
    found = {path.stem: path for path in (tmp_path / "new").iterdir()}
    assert set(found) == {"reconstructions", "interpolations", "samples", "inpainting"}
    picture = tf.io.decode_png(found["reconstructions"].read_bytes()).numpy()
    # Two rows of originals, two of reconstructions; 48 pixels and a gap of 2 each.
    assert picture.shape == (4 * 50 + 2, 3 * 50 + 2, 3)
    first = shapes.images(1, size=16, split="test")[0][0].repeat(3, 0).repeat(3, 1)
    np.testing.assert_array_equal(picture[2:50, 2:50], first)


def test_a_mask_of_any_shape_is_kept(run, data, autoencoder, prior, tmp_path, capsys):
    mask = np.zeros((32, 32, 1), np.uint8)
    mask[:, 8:] = 255  # In pixels of the images: from column 4 on.
    (tmp_path / "mask.png").write_bytes(tf.io.encode_png(mask).numpy())
    models = ["--model", autoencoder, "--prior", prior, "--output", tmp_path]
    options = ["--columns", 4, "--rows", 2, "--num-candidates", 2, "--top-p", 0.9]
    run("sample_images", *data, *models, *options, "--mask", tmp_path / "mask.png")
    picture = tf.io.decode_png((tmp_path / "inpainting.png").read_bytes()).numpy()
    original = picture[2:50, 2:50]
    for column in range(1, 4):
        found = picture[2:50, 50 * column + 2 : 50 * column + 50]
        np.testing.assert_array_equal(found[:, 12:], original[:, 12:])
        assert (found[:, :12] == 128).all() == (column == 1)
    (tmp_path / "mask.png").write_bytes(b"no picture")
    with pytest.raises(SystemExit):
        given = [*models, *options, "--mask", tmp_path / "mask.png"]
        run("sample_images", *data, *given)
    assert "white where images are to be kept" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("sample_images", *data, *models[:2], *models[4:], *options, "--labels", 1)
    assert "--mask and --labels need a prior" in capsys.readouterr().err


def test_interpolations_with_one_code_a_cell(recipe):
    model = models.ImageVQVAE(
        layers.PatchCompressor(code_dim=4, channels=8, num_blocks=1),
        layers.VQEMBottleneck(8, initializer="random_normal"),
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(8, 8),
    )
    model.build()
    images = shapes.images(4, size=8)[0]
    found = recipe("sample_images").interpolations(model, images, 3)
    assert found.shape == (2, 3, 8, 8, 3)
    np.testing.assert_array_equal(found[:, 0], model.reconstruct(images[:2]))
    np.testing.assert_array_equal(found[:, -1], model.reconstruct(images[2:]))


@pytest.mark.parametrize("name", ["evaluate_images", "sample_images"])
def test_a_prior_that_fits_no_codes_is_refused(
    run, data, autoencoder, name, tmp_path, capsys
):
    from keras_vqem.models import GridTransformer

    path = tmp_path / "other.keras"
    prior = GridTransformer((2, 2, 3), 8, 8, 1, 2, 16, block_length=4)
    prior.build()
    prior.save(path)
    output = ["--output", tmp_path] if name == "sample_images" else []
    with pytest.raises(SystemExit):
        run(name, *data, "--model", autoencoder, "--prior", path, *output)
    assert "2 x 2 x 3 symbols out of 8" in capsys.readouterr().err


def test_a_preset_takes_its_prior_along(run, data, autoencoder, prior, tmp_path):
    preset, out = tmp_path / "preset", tmp_path / "bits.json"
    run("make_preset", "--run", autoencoder, "--prior", prior, "--output", preset)
    small = ["--json", out, "--unigram-images", 0]
    run("evaluate_images", *data, "--model", preset, *small)
    rows = json.loads(out.read_text())["rows"]
    assert list(rows) == ["uniform prior", "predictor"]
    words = ["--task", "shapes through codes", "--trained-on", "shapes"]
    words += ["--terms", "any use"]
    run("make_preset", "--output", preset, "--evaluation", out, *words)
    card = (preset / "README.md").read_text()
    assert f"| bits/dim, predictor | {rows['predictor']['total']:.2f} |" in card
    made = card.split("Made by `python recipes/train_image_prior.py ")[1].split("`")[0]
    assert (
        "--dataset folder --data DATA" in made and "--autoencoder AUTOENCODER" in made
    )
    assert "--run RUN" in made and str(prior) not in card


@pytest.mark.slow
def test_a_step_is_split_into_its_parts(run, data, autoencoder, tmp_path, capsys):
    out = tmp_path / "step.json"
    command = ["--model", autoencoder, "--batch-size", 4, "--rounds", 1]
    run("benchmark_image_step", *data, *command, "--json", out)
    shares = json.loads(out.read_text())["shares"]
    assert set(shares) == {"compressor", "bottleneck", "decompressor", "likelihood"}
    np.testing.assert_allclose(sum(shares.values()), 1)
    assert "images/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ["--bottleneck", "gaussian", "--latent-dim", "4"],
        ["--bottleneck", "vq", "--network", "paper", "--likelihood", "categorical"],
        pytest.param(
            ["--grouped", "--group-channels", "8", "--group-blocks", "1"],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["vae", "paper", "grouped"],
)
def test_other_rows_are_one_more_option(run, data, tmp_path, options, capsys):
    path = tmp_path / "run"
    brief = ["--epochs", 1, "--batch-size", 8, "--average", 1]
    run(
        "train_image_autoencoder",
        *data,
        "--run",
        path,
        *brief,
        *NETWORK,
        *CODES,
        *options,
    )
    run("evaluate_images", *data, "--model", path, "--importance-samples", 2)
    row = "| ELBO |" if "gaussian" in options else "| unigram prior |"
    assert row in capsys.readouterr().out


@pytest.mark.slow
def test_pixels_learn_their_neighbours_on_frozen_codes(
    run, data, autoencoder, prior, tmp_path, capsys
):
    path, out = tmp_path / "pixels", tmp_path / "bits.json"
    small = "--group-channels 8 --group-blocks 1 --group-features 4".split()
    where = ["--model", autoencoder, "--prior", prior, "--run", path]
    limited = ["--validation-images", 8]
    run("train_image_pixels", *data, *where, *BRIEF, *small, *limited)
    lines = metrics(path)
    assert lines[1]["perplexity"] > 0 and "val_reconstruction_bits_per_dim" in lines[1]
    counted = ["--json", out, "--unigram-images", 0, "--bound-only"]
    run("evaluate_images", *data, "--model", path, *counted)
    assert list(json.loads(out.read_text())["rows"]) == ["uniform prior", "predictor"]
    assert "accounting" not in capsys.readouterr().out
    drawn = ["--output", tmp_path, "--rows", 1, "--columns", 4]
    run("sample_images", *data, "--model", path, *drawn)
    for name in ("samples", "pixels"):
        assert (tmp_path / f"{name}.png").is_file()
    timed = ["--images", 1, 2, "--rounds", 1, "--json", out]
    run("benchmark_image_sampling", "--model", path, *timed)
    ways = json.loads(out.read_text())["images"]
    assert set(ways) == {"1", "2"} and len(ways["1"]) == 4
    command = ["--model", path, "--batch-size", 4, "--rounds", 1]
    run("benchmark_image_step", *data, *command)
    assert "| likelihood |" in capsys.readouterr().out
    # What was made so can be the start of another run.
    again = ["--model", path, "--run", tmp_path / "again", "--cell-size", 4]
    run("train_image_pixels", *data, *again, *BRIEF, *small, *limited)
    with pytest.raises(SystemExit):
        other = ["--model", path, "--run", tmp_path / "other", "--size", 12]
        run("train_image_pixels", *data, *other, *BRIEF, *small, *limited)
    assert "trained on 16 x 16" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("benchmark_image_sampling", "--model", autoencoder)
    assert "Pass --prior" in capsys.readouterr().err


def test_pixel_baseline(run, data, prior, tmp_path, capsys):
    path = tmp_path / "pixels"
    small = [*PRIOR, "--hidden-dim", "8", "--block-length", "48"]
    brief = ["--epochs", 1, "--batch-size", 8, "--average", 1]
    run("train_image_transformer", *data, "--run", path, *brief, *small)
    run("evaluate_images", *data, "--model", path)
    assert "| exact |" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run(
            "make_preset", "--run", path, "--prior", prior, "--output", tmp_path / "new"
        )
    assert "ImageTransformer, which takes no prior" in capsys.readouterr().err


def test_the_wrong_model_is_named(run, data, prior, capsys):
    with pytest.raises(SystemExit):
        run("evaluate_images", *data, "--model", prior)
    found = capsys.readouterr().err
    assert "holds a model of class GridTransformer, and " in found


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [3, 9])
def test_replicas_need_not_divide_a_batch(recipe, data, tmp_path, replicas):
    """In a process of its own, as TensorFlow sets up devices only once."""
    script = recipe("train_image_autoencoder").__file__
    options = [*BRIEF, *NETWORK, *CODES, "--run", tmp_path / "run"]
    command = [sys.executable, script, *data, *options]
    command += ["--strategy", f"mirrored:{replicas}"]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600
    )
    if replicas > 8:
        assert done.returncode == 2
        assert "batch of 8 rows cannot be divided among 9 replicas" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    for line in metrics(tmp_path / "run"):
        parts = ("reconstruction_bits_per_dim", "bottleneck_loss")
        for split in ("", "val_"):
            total = sum(line[split + part] for part in parts)
            np.testing.assert_allclose(line[f"{split}loss"], total, rtol=1e-5)
