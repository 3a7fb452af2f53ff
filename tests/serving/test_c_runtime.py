"""An exported translator in TensorFlow's C runtime: translate.c, built and run."""

import os
import pathlib
import shlex
import shutil
import subprocess

import pytest
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import saved_model_pb2

TEXTS = ["twenty-one", "", "ten past two", "fünf", "日本 ½", "--"]
OPERATIONS = (
    pathlib.Path(tensorflow_text.__file__).parent
    / "python/ops/_sentencepiece_tokenizer.so"
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if not shutil.which(compiler[0]):
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("program") / "translate"
    library = tf.sysconfig.get_lib()
    command = [
        *compiler,
        *("-std=c11", "-Wall", "-Wextra", "-Werror"),
        *("-isystem", tf.sysconfig.get_include()),
        pathlib.Path(__file__).with_name("translate.c"),
        *("-o", path),
        # By their full names: the wheel has none without the version.
        *(f"-L{library}", "-l:libtensorflow_cc.so.2"),
        *("-l:libtensorflow_framework.so.2", f"-Wl,-rpath,{library}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return path


def tensor_names(folder):
    """The tensors of `serving_default` that texts go into and translations leave."""
    saved = saved_model_pb2.SavedModel.FromString(
        (folder / "saved_model.pb").read_bytes()
    )
    signature = saved.meta_graphs[0].signature_def["serving_default"]
    return signature.inputs["texts"].name, signature.outputs["translations"].name


def run(*command):
    # Nothing of ours in the environment, and no way to Python.
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(command, env=environment, capture_output=True, timeout=300)


def test_translations_are_those_of_python(program, model, folder):
    done = run(program, folder, *tensor_names(folder), OPERATIONS, "--", *TEXTS)
    assert done.returncode == 0, done.stderr.decode()
    expected = model.translate(TEXTS)
    assert expected[1] == "" and len(set(expected)) > 3
    assert done.stdout.decode() == "".join(f"{text}\n" for text in expected)


def test_a_folder_without_a_model(program, tmp_path):
    done = run(program, tmp_path, "texts:0", "translations:0", OPERATIONS, "--", "ten")
    assert done.returncode == 1 and done.stdout == b""
    assert f"{tmp_path}: Could not find SavedModel" in done.stderr.decode()


def test_without_the_operations_of_text(program, folder):
    done = run(program, folder, *tensor_names(folder), "--", "ten")
    assert done.returncode == 1 and done.stdout == b""
    assert "Op type not registered 'Sentencepiece" in done.stderr.decode()
