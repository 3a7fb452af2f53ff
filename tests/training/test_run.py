"""A run without a command line, as in a notebook."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.array_batches import ArrayBatches
from keras_vqem.models import GridTransformer
from keras_vqem.training import Run, list_checkpoints

SYMBOLS = np.arange(64).reshape(16, 2, 2, 1) % 5


class Stopped(Exception):
    pass


def stop_in(epoch):
    def stop(begun, logs):
        if begun == epoch:
            raise Stopped

    return keras.callbacks.LambdaCallback(on_epoch_begin=stop)


def train(path, callbacks=(), symbols=SYMBOLS, epochs=3, jit=False, **options):
    with Run(path, seed=3, **options) as run:
        batches = ArrayBatches({"symbols": symbols}, batch_size=4)
        model = GridTransformer(
            (2, 2, 1),
            5,
            hidden_dim=8,
            num_layers=1,
            num_heads=2,
            intermediate_dim=16,
            block_length=2,
            dropout=0.2,
        )
        model.compile(jit_compile=jit)
        history = run.fit(model, batches, epochs, callbacks=callbacks, average=2)
        run.report({"answer": 42.0})
    return model, history


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, capsys):
    whole, _ = train(tmp_path / "whole")
    with pytest.raises(Stopped):
        train(tmp_path / "run", [stop_in(2)])
    assert "started with seed 3 on 1 replica" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="resume=True"):
        train(tmp_path / "run")
    model, history = train(tmp_path / "run", resume=True)
    printed = capsys.readouterr().out
    assert "resumed with seed 3" in printed and history.epoch == [2]
    for mine, other in zip(model.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    message = "the mean of the last 2 checkpoints"
    assert f"{message}: answer 42" in printed
    assert f"{message}: answer 42" in (tmp_path / "run" / "log.txt").read_text()
    # What was saved is what the block ends with.
    saved = keras.saving.load_model(tmp_path / "run" / "model.keras", compile=False)
    for mine, other in zip(saved.weights, model.weights, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_run_is_what_it_was_started_as(tmp_path):
    train(tmp_path, epochs=1, arguments={"hidden_dim": 8, "average": 2})
    config = json.loads((tmp_path / "config.json").read_text())
    expected = {"hidden_dim": 8, "average": 2, "seed": 3}
    expected |= {"strategy": "none", "precision": None}
    assert config["arguments"] == expected
    options = {"resume": True, "may_differ": ["average"]}
    with pytest.raises(ValueError, match="hidden_dim: the run has 8, received 9"):
        train(tmp_path, arguments={"hidden_dim": 9, "average": 2}, **options)
    same = {"hidden_dim": 8, "average": 1}
    with pytest.raises(ValueError, match="started with another data"):
        train(tmp_path, symbols=SYMBOLS[::-1], arguments=same, **options)
    train(tmp_path, epochs=1, arguments=same, **options)


def test_a_run_without_an_epoch_leaves_its_folder_free(tmp_path):
    for resume in (False, True, False):
        with pytest.raises(Stopped):
            train(tmp_path, [stop_in(0)], resume=resume)
    with pytest.raises(Stopped), Run(tmp_path, seed=3):
        raise Stopped
    train(tmp_path, epochs=1)
    with pytest.raises(Stopped):
        train(tmp_path, [stop_in(1)], resume=True)
    assert len(list_checkpoints(tmp_path / "checkpoints")) == 1
    with pytest.raises(FileExistsError):
        train(tmp_path)


def test_the_real_number_of_checkpoints_is_told(tmp_path, capsys):
    train(tmp_path, epochs=1)  # of two that are asked for
    assert "model.keras: the last checkpoint" in capsys.readouterr().out


def test_compilation_is_announced(tmp_path, capsys):
    train(tmp_path, epochs=1, jit=True)
    assert "epoch 1/1  compiling shape 1 of 1" in capsys.readouterr().out


def test_numbers_are_as_precise_as_asked_for_within_the_block(tmp_path):
    short = tf.config.experimental.tensor_float_32_execution_enabled
    assert short()
    with Run(tmp_path / "a", precision="mixed_bfloat16"):
        assert keras.layers.Dense(1).compute_dtype == "bfloat16"
        # Distances between vectors are float32 and stay so on a GPU.
        assert not short()
    with pytest.raises(Stopped), Run(tmp_path / "b"):
        assert keras.config.dtype_policy().name == "float32" and not short()
        raise Stopped
    with pytest.raises(FileExistsError), Run(tmp_path / "a", precision="mixed_float16"):
        pass
    assert keras.config.dtype_policy().name == "float32" and short()


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_a_run_in_half_precision_is_resumed(tmp_path, precision):
    train(tmp_path, epochs=1, precision=precision)
    with pytest.raises(ValueError, match="precision: the run has 'mixed"):
        train(tmp_path, resume=True)
    model, history = train(tmp_path, resume=True, precision=precision)
    assert model.compute_dtype == precision[6:]
    assert np.isfinite(history.history["loss"]).all() and history.epoch == [1, 2]
