"""Strategies by name; what depends on a fresh TensorFlow runs in a process."""

import subprocess
import sys

import pytest
import tensorflow as tf

from keras_vqem.training import strategy_scope


def test_none_is_the_default_strategy():
    strategy = strategy_scope("none")
    assert strategy is tf.distribute.get_strategy()
    assert strategy.num_replicas_in_sync == 1


@pytest.mark.parametrize("name", ["", "mirror", "mirrored:", "mirrored:0", "tpu"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="'none', 'mirrored' .*'mirrored:2'") as error:
        strategy_scope(name)
    assert repr(name) in str(error.value)


def test_cpu_devices_are_made_while_they_can_be():
    program = """if True:
        from keras_vqem.training import strategy_scope
        strategy = strategy_scope("mirrored:2")
        assert strategy.num_replicas_in_sync == 2
        assert strategy_scope("mirrored").num_replicas_in_sync == 2
        assert strategy_scope("mirrored:1").num_replicas_in_sync == 1
        try:
            strategy_scope("mirrored:3")
        except RuntimeError as error:
            print(error)
    """
    # Without GPUs, which a machine that runs this may have.
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            'import os; os.environ["CUDA_VISIBLE_DEVICES"] = ""\n' + program,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "needs 3 logical CPU devices" in result.stdout
    assert "already set up 2." in result.stdout
    assert "strategy_scope('mirrored:3') before" in result.stdout


def test_more_gpus_than_there_are_is_an_error(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a GPU"])
    with pytest.raises(ValueError, match="needs 2 GPUs.* has 1.*'mirrored:1'"):
        strategy_scope("mirrored:2")
