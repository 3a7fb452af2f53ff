"""Faults of the recipes and the command, tried for real; see conftest.py."""

import random
import shutil
import time

import keras
import numpy as np
import pytest

from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TranslationData
from tests.reliability import children
from tests.reliability.children import finish, kill, output, start, wait_for
from tests.reliability.comparison import assert_same_bits, metrics, newest

pytestmark = pytest.mark.soak

SMALL = "--hidden-dim 16 --num-heads 2 --intermediate-dim 16".split()
TEXT = "--num-encoder-layers 1 --num-decoder-layers 1 --tokens-per-batch 256".split()
TEXT += ["--max-shapes", "1", "--epochs", "2", "--validate-every", "2", *SMALL]
IMAGES = "--dataset shapes --size 8 --validation 32 --epochs 2 --batch-size 4".split()
IMAGES += ["--steps-per-epoch", "8"]
GRID = ["--num-layers", "1", "--block-length", "16", *SMALL]
TRAINERS = {
    "train_transformer": TEXT,
    "train_latent_nmt": [*TEXT, "--num-codes", "8", "--num-predictor-layers", "1"],
    "train_ctc_translator": TEXT,
    "train_fertility_nat": TEXT,
    "train_image_autoencoder": [*IMAGES, "--channels", "8", "--pixel-channels", "4"],
    "train_image_prior": [*IMAGES, *GRID],
    "train_image_transformer": [*IMAGES, *GRID],
}
# Their models are used by the tests after them.
NEEDED = ("train_transformer", "train_image_autoencoder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of numbers, and the trained models of the tests below."""
    folder = tmp_path_factory.mktemp("trainers")
    splits = {
        name: ParallelCorpus.from_numbers(count, split=split)
        for name, count, split in [("train", 60, "train"), ("val", 8, "validation")]
    }
    lines = ParallelCorpus.from_numbers(300)
    tokenizer = SentencePieceTokenizer.train(lines.sources + lines.targets, 400)
    TranslationData.create(folder / "data", "en", "de", tokenizer, splits)
    return folder


def train(folder, name, run, *more):
    arguments = [*TRAINERS[name], "--run", run, "--checkpoint-steps", "2", *more]
    if "image" not in name:
        arguments += ["--data", folder / "data"]
    if name == "train_image_prior":
        arguments += ["--autoencoder", folder / "train_image_autoencoder"]
    return run, name, *arguments


@pytest.mark.parametrize("name", TRAINERS)
def test_kill_of_a_trainer(folder, happened, name):
    """kill -9 of `{}.py` within an epoch.
    After the first checkpoint, at a random moment; then `--resume`.
    """
    whole, run = folder / name, folder / f"{name}_killed"

    def trained(run, *more):
        """Trains until the last epoch has its metrics; some models are needed later."""
        process = start(children.recipe, *train(folder, name, run, *more))
        complete = run / "metrics.jsonl"
        if run == whole and name in NEEDED:
            process.join()
            assert process.exitcode == 0, output(run)
        else:
            wait_for(lambda: complete.exists() and len(metrics(run)) == 2, process)
            kill(process)

    trained(whole)
    process = start(children.recipe, *train(folder, name, run))
    wait_for(lambda: newest(run) is not None, process)
    time.sleep(random.Random(name).uniform(0.0, 0.2))
    kill(process)
    saved = newest(run)
    trained(run, "--resume")
    assert_same_bits(run, whole)
    happened(f"Resumed from {saved}; the same bits.")


def test_divergence(folder, tmp_path, happened):
    """Divergence.
    `train_transformer.py --learning-rate 1e30`; then a `model.keras` with a NaN, as
    earlier versions wrote it, is given to `make_preset.py` and to `translate`.
    """
    run = tmp_path / "run"
    more = ["--learning-rate", "1e30"]
    status, printed = finish(
        children.recipe, *train(folder, "train_transformer", run, *more)
    )
    assert status == 2 and "train_transformer.py: error: Training diverged" in printed
    assert not list(run.rglob("epoch*")) and not (run / "model.keras").exists()
    told = printed.partition("transformer.py: error: ")[2].partition(" (")[0]
    path = tmp_path / "nan.keras"
    model = keras.saving.load_model(folder / "train_transformer" / "model.keras")
    model.weights[0].assign(np.full(model.weights[0].shape, np.nan))
    model.save(path)
    arguments = "make_preset", "--run", path, "--output", tmp_path / "preset"
    status, printed = finish(children.recipe, tmp_path / "a", *arguments)
    assert status == 2 and "NaN or infinite" in printed
    assert not (tmp_path / "preset").exists()
    arguments = "translate", "--model", path, "twenty"
    status, printed = finish(children.command, tmp_path / "b", *arguments)
    assert status == 2 and "NaN or infinite" in printed
    happened(f'"{told} ...", exit 2, nothing saved. The model is refused by both.')


def test_long_line_in_val(folder, tmp_path, happened):
    """A line of 1 MB in the validation set.
    `train_transformer.py` with validation and choice of decoding.
    """
    data = shutil.copytree(folder / "data", tmp_path / "data")
    for suffix in ("en", "de"):
        path = data / f"val.{suffix}"
        lines = path.read_text().splitlines()
        lines[0] = "one " * 250_000
        path.write_text("\n".join(lines) + "\n")
    name, run = "train_transformer", tmp_path / "run"
    status, printed = finish(
        children.recipe, *train(folder, name, run)[:-2], "--data", data
    )
    assert status == 0, printed
    assert "1 of 8 lines to validate on cut to 256 tokens" in printed
    happened("The line is cut to 256 tokens, which is told; the run ends.")


def test_kill_in_distillation(folder, tmp_path, happened):
    """kill -9 in distillation.
    `distill.py`, at a random moment; then the same command again.
    """
    arguments = ["--data", folder / "data", "--num-beams", "2", "--batch-size", "2"]
    arguments += ["--model", folder / "train_transformer"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [children.recipe, whole, "distill", *arguments, "--output", whole]
    status, printed = finish(*command)
    assert status == 0, printed
    again = [children.recipe, killed, "distill", *arguments, "--output", killed]
    process = start(*again)
    shard = killed / "shards" / "1-of-1.txt"
    wait_for(lambda: shard.exists() and shard.stat().st_size, process)
    kill(process)
    done = len(shard.read_bytes().splitlines())
    assert done and not (killed / "data.json").exists()
    status, printed = finish(*again)
    assert status == 0, printed
    for path in whole.glob("*.*"):
        assert (killed / path.name).read_bytes() == path.read_bytes()
    happened(f"No data.json before; {done} of 60 lines were kept; the same files.")


def test_kill_in_a_preset(folder, tmp_path, happened):
    """kill -9 while a preset is replaced.
    `make_preset.py`: half of its weights are written, then the process kills itself.
    """
    preset = tmp_path / "preset"
    arguments = ["--run", folder / "train_transformer", "--output", preset]
    command = [children.recipe, preset, "make_preset", *arguments]
    status, printed = finish(*command)
    assert status == 0, printed
    before = {path.name: path.read_bytes() for path in preset.iterdir()}
    finish(*command, die=("numpy.savez_compressed", 0))
    assert {path.name: path.read_bytes() for path in preset.iterdir()} == before
    status, printed = finish(*command)
    assert status == 0, printed
    happened("The preset is as before; the same command then replaces it.")


def test_kill_in_an_export(folder, tmp_path, happened):
    """kill -9 in an export.
    `keras-vqem export`, before its last file; then the same command again.
    """
    target = tmp_path / "served" / "numbers"
    arguments = ["export", folder / "train_transformer", target]
    command = [children.command, tmp_path / "a", *arguments]
    finish(*command, die=("keras_vqem.serving.write_warmup", 0))
    assert not [path for path in target.iterdir() if path.name.isdecimal()]
    status, printed = finish(*command)
    assert status == 0, printed
    assert (target / "1" / "saved_model.pb").exists()
    happened("No numbered version, which a server would load; then version 1.")
