"""Resuming is exact: bit for bit what an uninterrupted run gives."""

import os
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers
from keras_vqem.training import (
    Checkpoints,
    DivergedError,
    RunFolder,
    average_weights,
    good_checkpoints,
    latest,
    list_checkpoints,
    load_state,
    resume,
    save_model,
    save_state,
)
from keras_vqem.training.training_state import metric_values
from tests.training import tiny_run


def new_model(jit_compile=False):
    # Another seed each time: nothing may come from the initial values by chance.
    new_model.calls = getattr(new_model, "calls", 0) + 1
    keras.utils.set_random_seed(new_model.calls)
    return tiny_run.make_model(jit_compile)


def values(model):
    variables = model.variables + model.optimizer.variables
    return [tf.convert_to_tensor(variable.value).numpy() for variable in variables]


def assert_same_state(model, other):
    for a, b in zip(values(model), values(other), strict=True):
        np.testing.assert_array_equal(a, b)


def small(width=3, optimizer="sgd"):
    parts = [keras.Input((2,)), keras.layers.Dense(width), keras.layers.Dense(1)]
    model = keras.Sequential(parts)
    model.compile(optimizer, "mse")
    return model


@pytest.mark.slow
def test_a_new_process_goes_on_bit_for_bit(tmp_path):
    straight = new_model(jit_compile=True)
    tiny_run.fit(straight, 0, 4, callbacks=[Checkpoints(tmp_path)])
    second = tmp_path / "epoch-0002.npz"
    subprocess.run(
        [sys.executable, tiny_run.__file__, second, "4", "jit"],
        env={**os.environ, "TF_NUM_INTRAOP_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    restored = new_model()
    # The other process wrote its state in the place of the one it began with.
    assert load_state(restored, second)[:3] == (4, 0, 4 * tiny_run.STEPS)
    assert_same_state(restored, straight)


def test_losses_go_on_as_if_nothing_had_happened(tmp_path):
    straight, resumed = new_model(), new_model()
    history = tiny_run.fit(straight, 0, 3, callbacks=[Checkpoints(tmp_path)]).history
    position = load_state(resumed, tmp_path / "epoch-0001.npz")
    assert position[:3] == (1, 0, tiny_run.STEPS)
    losses = tiny_run.fit(resumed, position.epoch, 3).history["loss"]
    assert losses == history["loss"][1:]


def test_every_replica_is_restored(strategy, tmp_path):
    with strategy.scope():
        first, second = new_model(), new_model()
    tiny_run.fit(first, 0, 1, callbacks=[Checkpoints(tmp_path)])
    load_state(second, latest(tmp_path))
    variables = second.variables + second.optimizer.variables
    for variable, value in zip(variables, values(first), strict=True):
        assert len(variable.value.values) == 2
        for copy in variable.value.values:
            np.testing.assert_array_equal(copy.numpy(), value)
    # Metrics are sums over the examples of each replica.
    sums = [value for _, value in metric_values(first)]
    for value, (_, other) in zip(sums, metric_values(second), strict=True):
        assert len(value) == 2
        np.testing.assert_array_equal(value, other)
    assert any(np.any(value[0] != value[1]) for value in sums)
    # A run under a strategy may go on without one.
    alone = new_model()
    assert load_state(alone, latest(tmp_path))[:3] == (1, 0, tiny_run.STEPS)
    assert_same_state(alone, first)
    for value, (_, other) in zip(sums, metric_values(alone), strict=True):
        np.testing.assert_array_equal(value.sum(axis=0, keepdims=True), other)


@pytest.mark.parametrize("policy", ["mixed_float16", "bfloat16"])
def test_other_dtypes_survive(policy, tmp_path):
    keras.config.set_dtype_policy(policy)
    try:
        model, other = small(optimizer="adam"), small(optimizer="adam")
    finally:
        keras.config.set_dtype_policy("float32")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    save_state(model, tmp_path / "state.npz", 1)
    load_state(other, tmp_path / "state.npz")
    assert any(np.any(value) for value in values(model))
    assert_same_state(other, model)


def test_old_checkpoints_go_when_the_new_one_is_complete(tmp_path, monkeypatch):
    x, y = np.ones((4, 2)), np.ones((4, 1))
    model = small()
    model.fit(x, y, epochs=4, verbose=0, callbacks=[Checkpoints(tmp_path, keep=2)])
    kept = ["epoch-0003.npz", "epoch-0004.npz"]
    assert sorted(os.listdir(tmp_path)) == kept

    def full_disk(file, **arrays):
        file.write(b"half a file")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="epoch-0005.npz could not be.*No space.*intact"):
        fit = {"initial_epoch": 4, "epochs": 5, "verbose": 0}
        model.fit(x, y, callbacks=[Checkpoints(tmp_path, keep=2)], **fit)
    assert sorted(os.listdir(tmp_path)) == kept
    with pytest.raises(ValueError, match="at least 1"):
        Checkpoints(tmp_path, keep=0)


def test_gradient_accumulation_is_part_of_the_state(tmp_path):
    def make():
        optimizer = keras.optimizers.Adam(0.1, gradient_accumulation_steps=2)
        return small(optimizer=optimizer)

    x, y = np.arange(12.0).reshape(6, 2), np.ones((6, 1))
    fit = {"batch_size": 2, "shuffle": False, "verbose": 0}
    straight, resumed = make(), make()
    # An epoch of three batches: half of an accumulation is left at its end.
    straight.fit(x, y, epochs=2, callbacks=[Checkpoints(tmp_path)], **fit)
    position = load_state(resumed, tmp_path / "epoch-0001.npz")
    assert position[:3] == (1, 0, 1)
    resumed.fit(x, y, initial_epoch=1, epochs=2, **fit)
    assert_same_state(resumed, straight)


def test_states_that_are_not_finite_are_neither_written_nor_used(tmp_path):
    model = small()
    paths = [tmp_path / f"epoch-{epoch:04d}.npz" for epoch in (1, 2, 3)]
    for epoch, path in enumerate(paths, 1):
        save_state(model, path, epoch)
    # As an earlier version would have written them.
    arrays = dict(np.load(paths[1]))
    (key,) = (key for key in arrays if key.startswith("weights/00000/"))
    arrays[key][0, 0] = np.inf
    np.savez(paths[1], **arrays)
    with pytest.raises(ValueError, match="epoch-0002.npz cannot be averaged.*infinite"):
        average_weights(model, paths)
    with pytest.warns(UserWarning, match="epoch-0002.npz is damaged and left out"):
        assert good_checkpoints(tmp_path) == [paths[0], paths[2]]
    paths[2].unlink()
    with pytest.warns(UserWarning, match="infinite"):
        assert latest(tmp_path) == paths[0]

    kernel = model.weights[0]
    kernel.assign(np.full(kernel.shape, np.nan))
    before = paths[0].read_bytes()
    with pytest.raises(DivergedError, match="kernel has values that are NaN"):
        save_state(model, paths[0], 1)
    with pytest.raises(DivergedError, match="kernel has values that are NaN"):
        save_model(model, tmp_path / "model.keras")
    assert paths[0].read_bytes() == before
    assert not (tmp_path / "model.keras").exists()


def test_a_damaged_file_to_average_is_named(tmp_path):
    model = small()
    for epoch in (1, 2):
        save_state(model, tmp_path / f"epoch-{epoch:04d}.npz", epoch)
    (tmp_path / "epoch-0001.npz").write_bytes(b"cut")
    with pytest.raises(ValueError, match="epoch-0001.npz cannot be averaged"):
        average_weights(model, list_checkpoints(tmp_path))


def test_checkpoints_within_an_epoch(tmp_path):
    seen = {}

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen[batch + 1] = sorted(os.listdir(tmp_path))

    model = new_model()
    checkpoints = Checkpoints(tmp_path, every_steps=2)
    x = np.ones((7 * 16, 4), "float32")
    fit = {"batch_size": 16, "verbose": 0, "callbacks": [checkpoints, Look()]}
    model.fit(x, x.copy(), **fit)
    names = [f"epoch-0000-batch-0000000{n}.npz" for n in (2, 4, 6)]
    assert [len(seen[batch]) for batch in (1, 2, 3, 4)] == [0, 1, 1, 2]
    # The two newest, until validation has ended.
    assert seen[6] == names[1:] and seen[7] == [*names[1:], "epoch-0001.npz"]
    assert os.listdir(tmp_path) == ["epoch-0001.npz"]
    for wrong in ({"every_steps": 0}, {"every_minutes": 0.0}):
        with pytest.raises(ValueError, match="must be"):
            Checkpoints(tmp_path, **wrong)


def test_checkpoints_by_time(tmp_path, monkeypatch):
    now = iter(range(0, 100_000, 40))  # Forty seconds with every look.
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    model = new_model()
    x = np.ones((4 * 16, 4), "float32")
    written = []
    monkeypatch.setattr(
        "keras_vqem.training.checkpoints.save_state",
        lambda model, path, *_: written.append(path.name),
    )
    checkpoints = Checkpoints(tmp_path, every_minutes=2.0)
    model.fit(x, x.copy(), batch_size=16, verbose=0, callbacks=[checkpoints])
    assert written[-1] == "epoch-0001.npz" and 1 < len(written) < 4


def test_order_is_by_epoch_beyond_four_digits(tmp_path):
    model = small()
    for epoch in (9_999, 10_000):
        save_state(model, tmp_path / f"epoch-{epoch:04d}.npz", epoch)
    assert load_state(model, latest(tmp_path))[0] == 10_000


def test_damaged_checkpoints_are_skipped(tmp_path):
    model = small()
    for epoch in (1, 2):
        save_state(model, tmp_path / f"epoch-{epoch:04d}.npz", epoch)
    newest = tmp_path / "epoch-0002.npz"
    whole = newest.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert latest(tmp_path) == newest
    assert b"dense" in whole
    damaged = [b"", whole[:-1], whole[: len(whole) // 2]]
    # A flipped byte in the content of the first weight.
    place = whole.index(b"weights/00000") + 200
    damaged.append(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
    for content in damaged:
        newest.write_bytes(content)
        with pytest.warns(UserWarning, match="epoch-0002.npz is damaged"):
            assert latest(tmp_path).name == "epoch-0001.npz"
    (tmp_path / "epoch-0001.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        assert latest(tmp_path) is None
    assert latest(tmp_path / "nowhere") is None


def test_resume_rewinds_the_run_to_its_last_whole_checkpoint(tmp_path):
    run = RunFolder(tmp_path)
    run.start({})
    model = small()
    assert resume(model, run) == (0, 0, 0, 0.0)
    for epoch in (1, 2, 3):
        model.optimizer.iterations.assign(7 * epoch)
        save_state(model, run.checkpoints / f"epoch-{epoch:04d}.npz", epoch)
        run.add_metrics({"epoch": epoch})
    (run.checkpoints / "epoch-0003.npz").write_bytes(b"cut")
    with pytest.warns(UserWarning, match="damaged"):
        assert resume(model, run)[:3] == (2, 0, 14)
    assert run.metrics() == [{"epoch": 1}, {"epoch": 2}]
    assert "2 epochs, 0 batches of the next, 14 steps" in run.log_path.read_text()


def test_names_may_differ_in_their_numbers_only(tmp_path):
    model = small(optimizer="adam")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    save_state(model, tmp_path / "state.npz", 1)
    other = small(optimizer="adam")
    assert other.weights[0].path != model.weights[0].path
    load_state(other, tmp_path / "state.npz")
    assert_same_state(other, model)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = tmp_path / "state.npz"
    save_state(small(optimizer="adam"), path, 1)
    wider = small(width=5, optimizer="adam")
    before = values(wider)
    with pytest.raises(ValueError, match=r"kernel.*\(2, 3\).*\(2, 5\).*arguments that"):
        load_state(wider, path)
    for value, after in zip(before, values(wider), strict=False):
        np.testing.assert_array_equal(value, after)
    with pytest.raises(
        ValueError, match="optimizer is 'adam.*/iteration'.*the model has 'sgd/"
    ):
        load_state(small(optimizer="sgd"), path)
    shallow = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    shallow.compile("adam", "mse")
    with pytest.raises(ValueError, match="has 4 weights, but the model has 2"):
        load_state(shallow, path)
    with pytest.raises(ValueError, match="Build it first"):
        save_state(keras.Sequential([keras.layers.Dense(3)]), path, 1)


def test_average_is_the_mean_but_for_the_codebook(tmp_path):
    model = new_model()
    tiny_run.fit(model, 0, 3, callbacks=[Checkpoints(tmp_path)])
    paths = list_checkpoints(tmp_path)
    saved = []
    for path in paths:
        load_state(model, path)
        saved.append(model.get_weights())
    uncompiled = keras.Model.from_config(model.get_config())
    average_weights(uncompiled, paths)
    names = [weight.path for weight in uncompiled.weights]
    assert sum("/ema/" in name for name in names) == 2
    for i, weight in enumerate(uncompiled.weights):
        stacked = np.stack([weights[i] for weights in saved])
        assert np.ptp(stacked, axis=0).max() > 0
        expected = stacked[-1] if "/ema/" in names[i] else stacked.mean(axis=0)
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-6, atol=1e-7)
    average_weights(uncompiled, paths[:2], last_only=lambda path: "kernel" in path)
    for i, weight in enumerate(uncompiled.weights):
        two = np.stack([weights[i] for weights in saved[:2]])
        expected = two[-1] if "kernel" in names[i] else two.mean(axis=0)
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match="`paths` is empty"):
        average_weights(uncompiled, [])


def test_codebooks_are_known_by_their_layer_not_by_a_name(tmp_path):
    def make():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((4,))
        # A codebook two models deep, and a layer that is called what others are.
        found = layers.VQBottleneck(8, name="gradient")(inputs)["quantized"]
        found = layers.VQEMBottleneck(
            8, initializer="random_normal", groups=2, name="moving"
        )(found)["quantized"]
        inner = keras.Sequential([keras.Input((4,)), keras.Model(inputs, found)])
        ema = keras.layers.Dense(4, name="ema")
        return keras.Sequential([keras.Input((4,)), ema, inner])

    model, paths, saved = make(), [], []
    rng = np.random.default_rng(0)
    for epoch in (1, 2, 3):
        model.set_weights([rng.normal(size=w.shape) for w in model.weights])
        paths.append(tmp_path / f"epoch-{epoch:04d}.npz")
        save_state(model, paths[-1], epoch)
        saved.append(model.get_weights())
    other = make()
    average_weights(other, paths)
    last, mean = set(), set()
    for i, weight in enumerate(other.weights):
        stacked = np.stack([weights[i] for weights in saved])
        if np.allclose(weight, stacked[-1]):
            last.add(weight.name)
        else:
            np.testing.assert_allclose(weight, stacked.mean(axis=0), rtol=1e-5)
            mean.add(weight.name)
    assert last == {"codebook", "vectors", "counts"}
    assert mean == {"kernel", "bias"}


def test_saved_models_are_complete_or_absent(tmp_path, monkeypatch):
    model = small()
    path = tmp_path / "model.keras"
    save_model(model, path)
    x = np.ones((1, 2), "float32")
    restored = keras.saving.load_model(path)
    np.testing.assert_array_equal(restored(x), model(x))
    content = path.read_bytes()

    def killed(target):
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        save_model(model, path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["model.keras"]
    with pytest.raises(ValueError, match="must end in .keras"):
        save_model(model, tmp_path / "model.h5")
