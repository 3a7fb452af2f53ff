"""Faults, tried for real; `make soak` writes what happened to docs/reliability.md.

The first line of a test's docstring is the fault, the rest is how it was tried.
"""

import datetime
import inspect
import json
import os
import pathlib
import random
import shutil
import signal
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vqem
from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TranslationData
from keras_vqem.training import latest, list_checkpoints
from tests.reliability import children
from tests.reliability.children import finish, kill, output, start, wait_for

pytestmark = pytest.mark.soak

PAGE = """\
# Reliability

Every fault that `make soak` tries, and what happened. It wrote the table on {date},
with keras_vqem {version}, Keras {keras} and TensorFlow {tensorflow} on Linux; the code
is in `tests/reliability`. "The same bits" means that weights, optimizer, seeds and
logged metrics are equal, bit for bit, to those of a run that nothing happened to.

| Fault | How it was tried | What happened |
| --- | --- | --- |
{rows}

[The guide](guides/translation.md#the-whole-way-by-recipes) says how runs are saved and
resumed, [decision 0013](decisions/0013-checkpoints.md) why so.
"""
ROWS = []


@pytest.fixture(autouse=True, scope="module")
def page():
    yield
    if path := os.environ.get("RELIABILITY_PAGE"):
        text = PAGE.format(
            date=datetime.date.today(),
            version=keras_vqem.__version__,
            keras=keras.__version__,
            tensorflow=tf.__version__,
            rows="\n".join(ROWS),
        )
        pathlib.Path(path).write_text(text)


@pytest.fixture
def happened(request):
    """Function that notes what happened, for the page."""
    words = ["**The test failed.**"]
    yield lambda text: words.append(text)
    fault, _, tried = inspect.getdoc(request.function).partition("\n")
    if hasattr(request.node, "callspec"):
        name = next(iter(request.node.callspec.params.values()))
        fault = fault.format(getattr(name, "name", name))
    ROWS.append(f"| {fault.rstrip('.')} | {' '.join(tried.split())} | {words[-1]} |")


def state(run):
    """All that the last checkpoint of a run holds, without times."""
    with np.load(list_checkpoints(run / "checkpoints")[-1]) as file:
        return {key: file[key] for key in file.files if key != "seconds"}


def metrics(run):
    lines = (json.loads(line) for line in (run / "metrics.jsonl").open())
    return [
        {k: v for k, v in line.items() if not k.endswith("seconds")} for line in lines
    ]


def newest(run):
    """Name of the newest good checkpoint, or None."""
    path = latest(run / "checkpoints")
    return path and path.stem


def assert_same_bits(run, whole):
    mine, other = state(run), state(whole)
    assert mine.keys() == other.keys()
    for key, value in other.items():
        np.testing.assert_array_equal(mine[key], value, err_msg=key)
    assert metrics(run) == metrics(whole)


def resume(run, whole, program=children.autoencoder):
    status, printed = finish(program, run, True)
    assert status == 0, printed
    assert_same_bits(run, whole)
    assert (run / "model.keras").exists() and not list(run.rglob(".*partial*"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of the autoencoder that nothing happened to."""
    run = tmp_path_factory.mktemp("whole") / "run"
    status, printed = finish(children.autoencoder, run)
    assert status == 0, printed
    return run


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def test_twenty_kills(tmp_path, happened):
    """kill -9 at twenty random moments.
    An autoencoder with soft EM, dropout and Adam, three epochs of 100 steps,
    `checkpoint_steps=5`. Ten times the process is killed up to a second after its
    start, ten times up to 0.3 seconds after a new checkpoint; each time it is started
    again with `resume`.
    """
    program, straight, run = children.long_autoencoder, tmp_path / "a", tmp_path / "b"
    status, printed = finish(program, straight)
    assert status == 0, printed
    rng, restored = random.Random(0), [None]
    for number in range(20):
        process = start(program, run, True)
        wait_for(lambda: "batches" in output(run), process)
        if number % 2:
            wait_for(lambda: newest(run) != restored[-1], process)
        time.sleep(rng.uniform(0.0, 0.3 if number % 2 else 1.0))
        assert kill(process) == -signal.SIGKILL
        restored.append(newest(run))
    resume(run, straight, program)
    places = len(set(restored) - {None})
    happened(f"The same bits, after restarts from {places} different checkpoints.")


@pytest.mark.parametrize("call", [0, 4])
def test_kill_in_a_checkpoint(run, whole, happened, call):
    """kill -9 while checkpoint number {} is written.
    Half of the file is written, then the process kills itself.
    """
    status, _ = finish(children.autoencoder, run, die=("numpy.savez", call))
    assert status == -signal.SIGKILL
    left = [path for path in (run / "checkpoints").iterdir() if "partial" in path.name]
    assert len(left) == 1
    resume(run, whole)
    happened(
        "The half file has another name, and the next start removes it; the same bits."
    )


def test_kill_in_validation(run, whole, happened):
    """kill -9 in the validation of an epoch.
    The process is killed once the checkpoint of epoch 2 is there, before its metrics.
    """
    process = start(children.autoencoder, run)
    second = run / "checkpoints" / "epoch-0002.npz"
    wait_for(second.exists, process)
    kill(process)
    assert len(metrics(run)) == 1
    resume(run, whole)
    assert "epoch 2 is validated again" in (run / "log.txt").read_text()
    happened("The epoch is not lost, its validation is done again; the same bits.")


def test_kill_in_the_end(run, whole, happened):
    """kill -9 while `model.keras` is written.
    Half of the file is written, then the process kills itself.
    """
    finish(children.autoencoder, run, die=("keras.Model.save", 0))
    assert not (run / "model.keras").exists() and list(run.glob(".model*partial*"))
    resume(run, whole)
    happened("No model.keras until the run is resumed; then the same bits.")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal(run, whole, happened, number):
    """{} in the middle of an epoch.
    Sent to the process in epoch 2, after a checkpoint within it.
    """
    process = start(children.autoencoder, run)
    wait_for(lambda: any(run.glob("checkpoints/epoch-0001-batch*")), process)
    kill(process, number)
    assert "Interrupted" in output(run) and "after this very step" in output(run)
    saved = newest(run)
    assert "batch" in saved
    resume(run, whole)
    happened(
        f"The step is completed and saved ({saved}); resumed there; the same bits."
    )


@pytest.mark.parametrize("damage", ["cut", "a flipped byte"])
def test_damage(run, whole, happened, damage):
    """Newest checkpoint damaged: {}.
    The last checkpoint of a complete run.
    """
    shutil.copytree(whole, run)
    path = list_checkpoints(run / "checkpoints")[-1]
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 2] ^= 255
    path.write_bytes(content)
    resume(run, whole)
    assert "is damaged" in output(run)
    happened("A warning; the run goes on from the checkpoint before it; the same bits.")


def test_damage_of_an_older_checkpoint(run, whole, happened):
    """Older checkpoint damaged.
    One that the mean at the end of the run needs.
    """
    shutil.copytree(whole, run)
    oldest = list_checkpoints(run / "checkpoints")[0]
    oldest.write_bytes(b"")
    status, printed = finish(children.autoencoder, run, True)
    assert status == 0 and f"{oldest.name} is damaged and left out" in printed
    assert "model.keras: the last checkpoint" in printed
    happened("A warning that names it; the mean is of the others, and says so.")


def test_full_disk(run, whole, happened):
    """Disk full while a checkpoint is written.
    The kernel refuses bytes after 8,192 per file (RLIMIT_FSIZE).
    """
    process = start(children.autoencoder, run)
    wait_for((run / "checkpoints" / "epoch-0001.npz").exists, process)
    kill(process)
    before = sorted(path.name for path in (run / "checkpoints").glob("epoch*"))
    status, printed = finish(children.autoencoder, run, True, largest=8192)
    assert status == 1 and "could not be written" in printed
    after = sorted(path.name for path in (run / "checkpoints").glob("epoch*"))
    assert after == before
    resume(run, whole)
    happened(
        "An error that names the file; all checkpoints intact; resumed: the same bits."
    )


def test_second_process(run, happened):
    """Second process in the folder of a run.
    The same command with `resume`, while the first process is training.
    """
    process = start(children.autoencoder, run)
    wait_for((run / "checkpoints" / "epoch-0001.npz").exists, process)
    shutil.move(f"{run}.out", f"{run}.first")
    status, printed = finish(children.autoencoder, run, True)
    assert status == 1 and f"Another process (process {process.pid}" in printed
    process.join()
    assert process.exitcode == 0 and len(metrics(run)) == 3
    happened("Refused with the number of the first process, which is not disturbed.")


def test_memory(run, happened):
    """Out of memory in a training step.
    A tensor of four petabytes is asked for.
    """
    status, printed = finish(children.out_of_memory, run)
    assert status == 1 and "Lower batch_size (--batch-size), now 4" in printed
    happened("An error that names batch, epoch and the setting to lower.")


def test_collapse(run, happened):
    """Collapse of the codebook.
    A codebook of 512 codes of which nearly all are far from all vectors.
    """
    status, printed = finish(children.autoencoder, run, False, True)
    assert status == 0 and "WARNING: the codebook has collapsed" in printed
    happened("A warning in the first epoch, with the perplexity and remedies.")


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
    told = printed.strip().splitlines()[-1].partition("error: ")[2].partition(". ")[0]
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
    status = told.partition(" (")[0]
    happened(f'"{status} ...", exit 2, nothing saved. The model is refused by both.')


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
