"""Fresh processes, as TensorFlow reads the name of the folder only while it starts."""

import hashlib
import os
import pathlib
import subprocess
import sys

import pytest

from keras_vqem import compile_cache

ROOT = pathlib.Path(__file__).parent.parent
# Prints the result, and the number of programs compiled and stored.
PROGRAM = """
import sys
import keras_vqem, pathlib, tensorflow as tf
from keras_vqem import compile_cache
if len(sys.argv) > 1:  # Another number of functions before it.
    for _ in range(3):
        tf.function(lambda x: x + 1).get_concrete_function(tf.constant(1.0))
compile_cache.align_names()
step = tf.function(lambda x: tf.reduce_sum(x * x), jit_compile=True)
print(float(step(tf.range(5.0))))
compile_cache.store()
"""


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_VQEM_QUIET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**environment, compile_cache.VARIABLE: str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "30.0\n"


def programs(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("*/*.pb")}


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_a_torn_file_is_replaced(tmp_path):
    run(tmp_path)
    [path] = first = programs(tmp_path)
    run(tmp_path, "after other functions")
    assert programs(tmp_path) == first
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    run(tmp_path)
    [restored] = programs(tmp_path)
    digest = hashlib.sha256(restored.read_bytes()).hexdigest()
    assert restored.stem.endswith(digest)


def test_only_files_with_the_right_hash_are_linked(tmp_path):
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir(), own.mkdir()
    good = shared / f"a.{hashlib.sha256(b'program').hexdigest()}.pb"
    torn = shared / f"b.{hashlib.sha256(b'program').hexdigest()}.pb"
    good.write_bytes(b"program")
    torn.write_bytes(b"prog")
    compile_cache._link(shared, own)
    assert [path.name for path in own.iterdir()] == ["a.pb"]
    assert (own / "a.pb").read_bytes() == b"program"
    assert not torn.exists()


def test_the_oldest_programs_are_removed(tmp_path):
    for age, name in enumerate(("new", "older", "oldest")):
        path = tmp_path / "machine" / f"{name}.pb"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"12345")
        os.utime(path, (1e9 - age, 1e9 - age))
    compile_cache._prune(tmp_path, most=10)
    kept = {path.stem for path in tmp_path.glob("*/*.pb")}
    assert kept == {"new", "older"}


def test_programs_of_another_compiler_setting_are_apart(monkeypatch):
    before = compile_cache._machine()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert compile_cache._machine() != before


def test_without_the_variable_nothing_is_set_up(monkeypatch):
    monkeypatch.setattr(compile_cache, "_own", None)
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    for value in ("", "0"):
        monkeypatch.setenv(compile_cache.VARIABLE, value)
        compile_cache.start()
    monkeypatch.delenv(compile_cache.VARIABLE)
    compile_cache.start()
    assert "TF_XLA_FLAGS" not in os.environ
