"""A run without a command line, as in a notebook."""

import json
import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.array_batches import ArrayBatches
from keras_vqem.training import (
    DivergedError,
    Interrupted,
    Run,
    list_checkpoints,
    validation_set,
)
from tests.training.tiny_run import Autoencoder

ROWS = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")


class Stopped(Exception):
    pass


def stop_in(epoch):
    def stop(begun, logs):
        if begun == epoch:
            raise Stopped

    return keras.callbacks.LambdaCallback(on_epoch_begin=stop)


def train(path, callbacks=(), rows=ROWS, epochs=3, jit=False, fit=None, **options):
    with Run(path, seed=3, **options) as run:
        batches = ArrayBatches({"rows": rows}, batch_size=4)
        model = Autoencoder()
        model.compile("adam", jit_compile=jit)
        fit = {"average": 2, **(fit or {})}
        history = run.fit(model, batches, epochs, callbacks=callbacks, **fit)
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
    before = model.get_weights()
    model.load_weights(tmp_path / "run" / "model.keras")
    for mine, other in zip(before, model.get_weights(), strict=True):
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
        train(tmp_path, rows=ROWS[::-1], arguments=same, **options)
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


class At(keras.callbacks.Callback):
    """Does something at an event of the second epoch."""

    def __init__(self, event, act, batch=None):
        super().__init__()
        self.batch, self.act = batch, act
        setattr(self, event, self.there)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def there(self, batch=None, logs=None):
        if self.epoch == 1 and self.batch in (None, batch):
            self.act()


def stop():
    raise Stopped


def metrics(path):
    """All metrics but times, which differ."""
    lines = (json.loads(line) for line in (path / "metrics.jsonl").open())
    return [
        {k: v for k, v in line.items() if not k.endswith("seconds")} for line in lines
    ]


def fit_options():
    val = validation_set({"rows": ROWS[:8]}, 4)
    return {"validation_data": val, "checkpoint_steps": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing happened to."""
    path = tmp_path_factory.mktemp("whole")
    model, _ = train(path, fit=fit_options())
    return model, metrics(path)


def assert_resumes_exactly(path, whole):
    model, _ = train(path, resume=True, fit=fit_options())
    for mine, other in zip(model.weights, whole[0].weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert metrics(path) == whole[1]


@pytest.mark.parametrize("batch", [1, 3])
def test_an_epoch_goes_on_after_its_last_saved_batch(tmp_path, whole, batch):
    with pytest.raises(Stopped):
        train(tmp_path, [At("on_train_batch_end", stop, batch)], fit=fit_options())
    name = f"epoch-0001-batch-{batch:08d}.npz"
    assert name in os.listdir(tmp_path / "checkpoints")
    steps = []
    at = At("on_train_batch_end", lambda: steps.append(1))
    train_again = {"resume": True, "fit": fit_options()}
    with pytest.raises(Stopped):
        train(tmp_path, [at, At("on_epoch_end", stop)], **train_again)
    assert len(steps) == 4 - batch
    # The epoch was complete, but not its line of metrics.
    assert len(metrics(tmp_path)) == 1
    assert_resumes_exactly(tmp_path, whole)


def test_validation_that_fails_costs_no_epoch(tmp_path, whole):
    with pytest.raises(Stopped):
        train(tmp_path, [At("on_test_batch_end", stop)], fit=fit_options())
    assert len(list_checkpoints(tmp_path / "checkpoints")) == 2
    assert_resumes_exactly(tmp_path, whole)
    assert "epoch 2 is validated again" in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_very_step(tmp_path, whole, number):
    def act():
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    fit = {**fit_options(), "checkpoint_steps": None}
    with pytest.raises(Interrupted, match="stopped the run.*--resume") as stopped:
        train(tmp_path, [At("on_train_batch_begin", act, 2)], fit=fit)
    assert stopped.value.signal_number == number
    assert signal.getsignal(number) is before
    newest = tmp_path / "checkpoints" / "epoch-0001-batch-00000003.npz"
    assert newest.exists() and str(newest) in str(stopped.value)
    assert str(stopped.value) in (tmp_path / "log.txt").read_text()
    assert_resumes_exactly(tmp_path, whole)


def test_a_signal_stops_validation_at_once(tmp_path, whole):
    def act():
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="All epochs so far are saved"):
        train(tmp_path, [At("on_test_begin", act)], fit=fit_options())
    assert_resumes_exactly(tmp_path, whole)


@pytest.mark.parametrize(
    "layer, words", [("decoder", "loss is nan"), ("encoder", "dense/kernel has values")]
)
def test_divergence_stops_the_run_and_keeps_what_was_good(tmp_path, layer, words):
    class Blow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.optimizer.iterations == 10:
                kernel = getattr(self.model, layer).kernel
                kernel.assign(np.full(kernel.shape, np.nan))

    with pytest.raises(DivergedError) as error:
        train(tmp_path, [Blow()])
    message = str(error.value)
    assert "batch 3 of epoch 3 (step 11): " in message and words in message
    assert ("error is nan" in message) == (layer == "decoder")
    assert "epoch-0002.npz" in message
    assert len(list_checkpoints(tmp_path / "checkpoints")) == 2
    assert not (tmp_path / "model.keras").exists()
    # What was good can be had: the run ends where it was good.
    model, _ = train(tmp_path, epochs=2, resume=True)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.slow
def test_memory_that_runs_out_names_the_setting(tmp_path):
    def act():
        tf.zeros((10**6, 10**6, 10**3))  # Four petabytes.

    with pytest.raises(RuntimeError, match="Out of memory") as error:
        train(tmp_path, [At("on_train_batch_begin", act, 2)])
    message = str(error.value)
    assert "in batch 3 of epoch 2. Lower batch_size (--batch-size), now 4" in message


def test_the_best_epoch_is_kept(tmp_path, capsys):
    class Scores(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["val_bleu"] = [3.0, 9.0, 5.0, 9.0, 1.0, 2.0][epoch]

    weights = {}
    after = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: weights.update(
            {epoch + 1: after.model.get_weights()}
        )
    )
    fit = {"keep_best": "val_bleu"}
    model, _ = train(tmp_path, [Scores(), after], epochs=6, fit=fit)
    names = [path.stem for path in list_checkpoints(tmp_path / "checkpoints")]
    assert names == ["epoch-0002", "epoch-0005", "epoch-0006"]
    for mine, other in zip(model.get_weights(), weights[2], strict=True):
        np.testing.assert_array_equal(mine, other)
    assert "model.keras: epoch 2, the best by val_bleu" in capsys.readouterr().out
    # Without the metric there is no best epoch, and that is told at once.
    fit = {"keep_best": "val_blue"}
    with pytest.raises(ValueError, match="no metric 'val_blue'.* of .*val_bleu"):
        train(tmp_path / "other", [Scores()], fit=fit)
    assert len(metrics(tmp_path / "other")) == 1


def test_a_damaged_older_checkpoint_does_not_block_the_end(tmp_path, capsys):
    train(tmp_path)
    oldest, _ = list_checkpoints(tmp_path / "checkpoints")
    oldest.write_bytes(b"cut")
    with pytest.warns(UserWarning, match=f"{oldest.name} is damaged and left out"):
        train(tmp_path, resume=True)
    assert "model.keras: the last checkpoint" in capsys.readouterr().out


def test_epochs_may_change_and_that_is_told(tmp_path, whole, capsys):
    with pytest.raises(ValueError, match="`epochs` must be at least 1, received 0"):
        train(tmp_path, epochs=0)
    train(tmp_path, epochs=2)
    assert "epochs now" not in capsys.readouterr().out
    model, history = train(tmp_path, epochs=3, resume=True)
    assert history.epoch == [2]
    # Nothing here depends on the number of steps, so that it is exact.
    for mine, other in zip(model.weights, whole[0].weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert "The run has 3 epochs now, and had 2. What" in capsys.readouterr().out
    with pytest.raises(ValueError, match="for more than 2 epochs already"):
        train(tmp_path, epochs=2, resume=True)
    train(tmp_path, epochs=3, resume=True)
    assert "epochs now" not in capsys.readouterr().out


def test_one_process_at_a_time(tmp_path):
    partial = tmp_path / "checkpoints" / ".epoch-0001.123.partial.npz"
    partial.parent.mkdir()
    partial.write_bytes(b"half")
    with Run(tmp_path, seed=3):
        assert not partial.exists()
        with pytest.raises(RuntimeError, match=rf"\(process {os.getpid()} on .*\)"):
            Run(tmp_path, seed=3, resume=True).__enter__()
    with Run(tmp_path, seed=3, resume=True):
        pass


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


@pytest.mark.parametrize(
    "precision",
    [
        pytest.param(policy, marks=pytest.mark.slow)
        for policy in ("mixed_bfloat16", "mixed_float16")
    ],
)
def test_a_run_in_half_precision_is_resumed(tmp_path, precision):
    train(tmp_path, epochs=1, precision=precision)
    with pytest.raises(ValueError, match="precision: the run has 'mixed"):
        train(tmp_path, resume=True)
    model, history = train(tmp_path, resume=True, precision=precision)
    assert model.compute_dtype == precision[6:]
    assert np.isfinite(history.history["loss"]).all() and history.epoch == [1, 2]
