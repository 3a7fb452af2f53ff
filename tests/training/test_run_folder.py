"""A run's folder: never overwritten, resumed only as itself, mended after a kill."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

import keras_vqem
from keras_vqem.files import replacing
from keras_vqem.training import RunFolder


@pytest.fixture
def run(tmp_path):
    run = RunFolder(tmp_path / "runs" / "first")
    run.start(
        {"hidden_dim": 8, "epochs": 2, "data": pathlib.Path("a/b"), "sizes": (1, 2)}
    )
    return run


def test_a_new_run_writes_down_what_it_is(run):
    written = json.loads((run.path / "config.json").read_text())
    assert written == {
        "arguments": {"hidden_dim": 8, "epochs": 2, "data": "a/b", "sizes": [1, 2]},
        "versions": {
            "python": ".".join(map(str, sys.version_info[:3])),
            "keras": keras.__version__,
            "tensorflow": tf.__version__,
            "keras_vqem": keras_vqem.__version__,
        },
        "facts": {},
    }
    assert run.config() == written
    assert run.checkpoints.is_dir()
    assert run.metrics() == []
    assert "started" in run.log_path.read_text()


def test_a_run_is_not_started_over(run):
    before = run.config_path.read_text()
    with pytest.raises(FileExistsError, match="--resume.*or choose another folder"):
        RunFolder(run.path).start({"hidden_dim": 9})
    assert run.config_path.read_text() == before


def test_resuming_takes_the_same_arguments(run):
    again = RunFolder(run.path)
    same = {"hidden_dim": 8, "epochs": 2, "data": pathlib.Path("a/b"), "sizes": (1, 2)}
    again.start(same, resume=True)
    again.start({**same, "of_a_later_version": None}, resume=True)
    other = {**same, "hidden_dim": 9, "epochs": 5, "num_layers": 1}
    del other["data"]
    with pytest.raises(ValueError, match="other arguments") as error:
        again.start(other, resume=True, may_differ=["epochs"])
    assert "hidden_dim: the run has 8, received 9" in str(error.value)
    assert "num_layers: the run has no such argument, received 1" in str(error.value)
    assert "data: the run has 'a/b', received no such argument" in str(error.value)
    assert "epochs" not in str(error.value)
    assert again.config()["arguments"]["epochs"] == 2
    again.start({**same, "epochs": 5}, resume=True, may_differ=["epochs"])
    assert again.config()["arguments"]["epochs"] == 5
    assert "epochs is 5 now, was 2" in run.log_path.read_text()


def test_resuming_where_nothing_is_starts_a_run(tmp_path):
    run = RunFolder(tmp_path / "new")
    run.start({}, resume=True)
    assert "started" in run.log_path.read_text()


def test_a_change_of_versions_is_noted(run):
    config = run.config()
    config["versions"]["keras"] = "2.0.0"
    run.config_path.write_text(json.dumps(config))
    run.start(config["arguments"], resume=True)
    assert f"keras is '{keras.__version__}' now, was '2.0.0'" in (
        run.log_path.read_text()
    )
    assert run.config()["versions"]["keras"] == keras.__version__


@pytest.mark.parametrize("torn", ["{", '{"epoch": 3, "loss": 0.1}', '{"text": "ä"}'])
def test_a_torn_line_is_dropped(run, torn):
    lines = [{"epoch": 1, "loss": 0.1 + 0.2}, {"epoch": 2, "loss": 1e-30}]
    for line in lines:
        run.add_metrics(line)
    with open(run.metrics_path, "ab") as file:
        # Half of a character of two bytes may be the last thing on the disk.
        file.write(torn.encode()[:-3] if "ä" in torn else torn.encode())
    assert run.metrics() == lines
    run.start(run.config()["arguments"], resume=True)
    run.add_metrics({"epoch": 3})
    assert run.metrics() == [*lines, {"epoch": 3}]
    read = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    assert read == run.metrics()


def test_rewinding_drops_later_epochs(run):
    for epoch in (1, 2, 3):
        run.add_metrics({"epoch": epoch})
    run.rewind(2)
    assert run.metrics() == [{"epoch": 1}, {"epoch": 2}]
    run.rewind(0)
    assert run.metrics() == []


def test_a_kill_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("before")
    program = """if True:
        import importlib.util, os, sys
        spec = importlib.util.spec_from_file_location("files", sys.argv[1])
        files = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(files)
        with files.replacing(sys.argv[2]) as temporary:
            temporary.write_text("half")
            os.kill(os.getpid(), 9)
    """
    files = replacing.__wrapped__.__code__.co_filename
    subprocess.run([sys.executable, "-c", program, files, path], check=False)
    assert path.read_text() == "before"
    assert len(os.listdir(tmp_path)) == 2
    with replacing(path) as temporary:
        assert (temporary.parent, temporary.suffix) == (path.parent, path.suffix)
        temporary.write_text("after")
    assert path.read_text() == "after"


def test_a_fact_must_hold_when_a_run_goes_on(run):
    run.remember("data", "abc", "Restore it.")
    again = RunFolder(run.path)
    again.start(run.config()["arguments"], resume=True)
    again.remember("data", "abc", "Restore it.")
    with pytest.raises(ValueError, match=r"another data \(abc, now xyz\). Restore it"):
        again.remember("data", "xyz", "Restore it.")
