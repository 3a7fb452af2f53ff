import os

from keras_vqem import compile_cache, quiet
from keras_vqem.training.compilation import Compilation


def test_false_alarms_of_compiling_steps_are_hidden_and_nothing_else(
    monkeypatch, capfd
):
    monkeypatch.setattr(quiet, "QUIET", True)
    callback = Compilation([1])
    for step in range(3):
        callback.on_train_batch_begin(step)
        os.write(2, compile_cache.FALSE_ALARMS[0] + b": 2:1\n")
        os.write(2, b"worth reading %d\n" % step)
        callback.on_train_batch_end(step)
    lines = capfd.readouterr().err.splitlines()
    alarms = [line for line in lines if "worth reading" not in line]
    assert len(alarms) == 2
    assert [f"worth reading {step}" in lines for step in range(3)] == [True] * 3


def test_an_error_in_a_compiling_step_is_shown(monkeypatch, capfd):
    monkeypatch.setattr(quiet, "QUIET", True)
    callback = Compilation([0])
    callback.on_train_batch_begin(0)
    os.write(2, b"out of memory\n")
    callback.end()  # As `Run.fit` does.
    assert capfd.readouterr().err == "out of memory\n"
