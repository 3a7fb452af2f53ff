"""Faults of a run, tried for real on a small model; see conftest.py."""

import random
import shutil
import signal
import time

import pytest

from keras_vqem.training import list_checkpoints
from tests.reliability import children
from tests.reliability.children import finish, kill, output, start, wait_for
from tests.reliability.comparison import assert_same_bits, metrics, newest

pytestmark = pytest.mark.soak


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
    process, first = start(children.autoencoder, run), "checkpoints/epoch-0001.npz"
    wait_for((run / first).exists, process)
    kill(process)
    before = (run / first).read_bytes()
    status, printed = finish(children.autoencoder, run, True, largest=8192)
    assert status == 1 and "could not be written" in printed
    assert (run / first).read_bytes() == before
    assert [path.name for path in (run / first).parent.iterdir()] == ["epoch-0001.npz"]
    resume(run, whole)
    happened(
        "An error that names the file; the checkpoint before is intact; the same bits."
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
