"""What the command and the recipes print at their start, and what the library does not.

Fresh processes, as only the first import of TensorFlow prints anything.
"""

import logging
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from keras_vqem import quiet
from keras_vqem.command.photos import photos

ROOT = pathlib.Path(__file__).parent.parent
COMMAND = pathlib.Path(sys.executable).with_name("keras-vqem")
RECIPES = sorted(p for p in ROOT.glob("recipes/*.py") if "\ndef main(" in p.read_text())
GREETING = "All log messages before absl::InitializeLog() is called"


def run(*command, **variables):
    hidden = ("TF_CPP_MIN_LOG_LEVEL", "KERAS_VQEM_QUIET", "KERAS_VQEM_COMPILE_CACHE")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    return subprocess.run(
        [str(part) for part in command],
        env={**environment, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_command_prints_nothing_but_its_own():
    done = run(COMMAND, "zoo")
    assert done.returncode == 0 and "cifar10_em" in done.stdout
    assert done.stderr == ""


def test_verbose_gives_the_rest_back():
    done = run(COMMAND, "zoo", "--verbose")
    assert done.returncode == 0 and "cifar10_em" in done.stdout
    assert GREETING in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["translate", "beams", "demo", "export", "images"])
def test_models_at_work_are_quiet(command, tmp_path):
    options = {
        "translate": ["A dog runs."],
        "beams": ["--num-beams", "4", "--scores", "A dog runs."],
        "demo": ["--output", tmp_path / "demo.png"],
        "export": ["multi30k_en_de_em", tmp_path],
        "compress": [tmp_path / "photo.png"],
        "decompress": [tmp_path / "photo.vqem", "--output", tmp_path / "again.png"],
    }
    subcommands = {"beams": ["translate"], "images": ["compress", "decompress"]}
    png = tf.io.encode_png(photos()[0]).numpy()
    (tmp_path / "photo.png").write_bytes(png)
    for subcommand in subcommands.get(command, [command]):
        chosen = command if command == "beams" else subcommand
        done = run(COMMAND, subcommand, *options[chosen])
        assert done.returncode == 0 and done.stdout
        assert done.stderr == ""


@pytest.mark.slow
def test_a_recipe_at_work_is_quiet(tmp_path):
    script = [sys.executable, ROOT / "recipes" / "quickstart.py"]
    script += ["--steps", "20", "--output", tmp_path]
    done = run(*script)
    assert done.returncode == 0 and "inertia" in done.stdout
    assert done.stderr == ""
    assert GREETING in run(*script, "--verbose").stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_starts_quietly(path):
    done = run(sys.executable, path, "--help")
    assert done.returncode == 0 and "usage:" in done.stdout
    assert done.stderr == ""


def test_errors_of_tensorflow_are_shown():
    script = """
import keras_vqem
import tensorflow as tf
tf.print("from C++")
tf.reshape(tf.range(2), [3])
"""
    done = run(sys.executable, "-c", script, KERAS_VQEM_QUIET="1")
    assert done.returncode == 1 and GREETING not in done.stderr
    assert "from C++" in done.stderr and "InvalidArgumentError" in done.stderr


def test_the_library_leaves_logging_alone():
    script = """
import logging, os
import keras, tensorflow, tensorflow_datasets, tensorflow_text
def state():
    loggers = [logging.getLogger(name) for name in (None, "absl", "tensorflow")]
    return dict(os.environ), [logger.level for logger in loggers]
before = state()
import keras_vqem
assert state() == before
"""
    done = run(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    assert GREETING in done.stderr


@pytest.fixture
def asked(monkeypatch):
    monkeypatch.setattr(quiet, "QUIET", True)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    loggers = [logging.getLogger(name) for name in ("absl", "tensorflow")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def test_what_is_held_back_is_shown_when_the_block_fails(asked, capfd):
    with quiet.held_back():
        os.write(2, b"a greeting\n")
    with pytest.raises(ImportError), quiet.held_back():
        os.write(2, b"the reason\n")
        raise ImportError
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "the reason\nlater\n"


def test_a_crash_says_where_it_was():
    script = "import os, quiet\nwith quiet.held_back():\n    os.abort()"
    rooms = str(ROOT / "keras_vqem")
    done = run(sys.executable, "-c", script, PYTHONPATH=rooms, KERAS_VQEM_QUIET="1")
    assert done.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in done.stderr


@pytest.mark.parametrize("driver", [True, False])
def test_a_gpu_that_cannot_be_used_is_no_greeting(
    driver, asked, monkeypatch, capfd, tmp_path
):
    def no_gpus(kind):
        os.write(2, b"failed call to cuInit\n")
        return []

    monkeypatch.setattr(quiet, "DRIVER", tmp_path if driver else tmp_path / "none")
    monkeypatch.setattr(tf.config, "list_physical_devices", no_gpus)
    quiet.start()
    assert capfd.readouterr().err == ("failed call to cuInit\n" if driver else "")


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_a_closed_screen_does_not_stop_the_import(closed):
    script = "import os; from keras_vqem import quiet; print(quiet.QUIET)"
    done = subprocess.run(
        f"{sys.executable} -c '{script}' {closed}",
        shell=True,
        env={**os.environ, "KERAS_VQEM_QUIET": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0 and done.stdout == "True\n"
