"""Training on several processes of this machine, against one with the whole batch."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import types

import keras
import numpy as np
import pytest

from keras_vqem.training import multi_worker, strategy_scope
from tests.training.worker import MODELS

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 1200


def cluster(count):
    """TF_CONFIG of each worker, at free ports of this machine."""
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in with_ports]
    for server in with_ports:
        server.close()
    return [
        json.dumps(
            {
                "cluster": {"worker": addresses},
                "task": {"type": "worker", "index": index},
            }
        )
        for index in range(count)
    ]


def start(folder, index, config=None, **settings):
    """Starts worker.py; its output is in the folder `index`."""
    output = folder / str(index)
    output.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("TF_CONFIG", None)
    if config:
        environment["TF_CONFIG"] = config
    settings = json.dumps({"folder": str(folder / "runs"), **settings})
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.worker", str(output), settings],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait(processes, code=0):
    try:
        printed = [process.communicate(timeout=SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, printed, strict=True):
        assert process.returncode == code, text[-3000:]
    return printed


def results(folder, count, names):
    """What each worker measured: per model, a list of dicts of arrays."""
    return {
        name: [
            dict(np.load(folder / str(index) / f"{name}.npz")) for index in range(count)
        ]
        for name in names
    }


def train(folder, count, names, **settings):
    """Trains on `count` workers, or without TF_CONFIG if there is one."""
    folder.mkdir()
    configs = cluster(count) if count > 1 else [None]
    wait(
        [
            start(folder, index, config, names=names, **settings)
            for index, config in enumerate(configs)
        ]
    )
    return results(folder, count, names)


def assert_equal_to_one(one, workers):
    for name, found in workers.items():
        alone = one[name][0]
        for mine in found:
            for key, value in alone.items():
                if key.startswith("log/"):
                    np.testing.assert_allclose(
                        mine[key], value, rtol=1e-5, err_msg=f"{name} {key}"
                    )
                elif key.startswith("weight/"):
                    np.testing.assert_allclose(
                        mine[key], value, atol=1e-4, err_msg=f"{name} {key}"
                    )


def assert_identical(workers):
    for name, (first, *others) in workers.items():
        for other in others:
            assert other.keys() == first.keys()
            for key in first:
                if key != "written":
                    np.testing.assert_array_equal(other[key], first[key], f"{name}")


@pytest.mark.slow
def test_two_workers_train_as_one(tmp_path):
    one = train(tmp_path / "one", 1, [*MODELS])
    two = train(tmp_path / "two", 2, [*MODELS])
    assert_equal_to_one(one, two)
    assert_identical(two)
    for chief, other in two.values():
        assert {"model.keras", "metrics.jsonl"} <= {*chief["written"]}
        assert not {"model.keras", "metrics.jsonl"} & {*other["written"]}


@pytest.mark.soak
@pytest.mark.parametrize("fed", [False, True], ids=["hard", "fed"])
def test_four_workers_train_as_one(tmp_path, fed):
    # Fed: the draws of soft EM are the same for a vector on any worker.
    settings = {"names": [*MODELS], "soft": fed, "fed": fed}
    one = train(tmp_path / "one", 1, **settings)
    four = train(tmp_path / "four", 4, **settings)
    assert_equal_to_one(one, four)
    assert_identical(four)


@pytest.mark.soak
def test_four_workers_with_noise_hold_the_same_codebook(tmp_path):
    assert_identical(train(tmp_path / "four", 4, [*MODELS], noise=True, soft=True))


@pytest.mark.soak
def test_a_lost_worker_is_told_of_and_the_run_resumed(tmp_path):
    settings = {"names": ["LatentNMT"], "noise": True, "soft": True}
    whole = train(tmp_path / "whole", 2, **settings)
    folder = tmp_path / "run"
    folder.mkdir()
    configs = cluster(2)
    chief = start(folder, 0, configs[0], **settings)
    other = start(folder, 1, configs[1], **settings, die_in=1)
    other.communicate(timeout=SECONDS)
    (text,) = wait([chief], code=1)
    assert "Worker 0 of 2 lost the others" in text and "--resume" in text
    configs = cluster(2)
    wait([start(folder, i, c, **settings, resume=True) for i, c in enumerate(configs)])
    resumed = results(folder, 2, ["LatentNMT"])
    assert_identical(resumed)
    for key, value in whole["LatentNMT"][0].items():
        if key.startswith("weight/"):
            np.testing.assert_array_equal(resumed["LatentNMT"][0][key], value)


# Without other processes.


def test_worker_is_read_from_the_environment(monkeypatch):
    hosts = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    for task, index, found in [("chief", 0, 0), ("worker", 0, 1), ("worker", 1, 2)]:
        config = {"cluster": hosts, "task": {"type": task, "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        assert multi_worker.worker() == (found, 3)


@pytest.mark.parametrize(
    "config",
    [
        "",
        "{",
        "[]",
        '{"cluster": {"worker": ["a:1"]}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, '
        '"task": {"type": "worker", "index": 0}}',
    ],
)
def test_another_environment_is_refused_with_an_example(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="Set, for example, TF_CONFIG=.*scaling.md"):
        strategy_scope("multi_worker")


def test_an_untried_keras_is_refused(monkeypatch):
    monkeypatch.setattr(keras, "version", lambda: "3.16.0")
    with pytest.raises(RuntimeError, match="tried with Keras 3.15 only; .* 3.16.0"):
        multi_worker.mend_keras()


def test_mended_functions_leave_other_strategies_alone(monkeypatch, strategy, rng):
    trainer = multi_worker.trainer
    monkeypatch.setattr(trainer, "reduce_per_replica", trainer.reduce_per_replica)
    monkeypatch.setattr(
        trainer.TensorFlowTrainer,
        "_maybe_symbolic_build",
        trainer.TensorFlowTrainer._maybe_symbolic_build,
    )
    x = rng.normal(size=(8, 2)).astype("float32")
    losses = []
    for _ in range(2):
        with strategy.scope():
            keras.utils.set_random_seed(0)
            model = keras.Sequential([keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        losses.append(model.fit(x, x[:, :1], batch_size=4, verbose=0).history["loss"])
        multi_worker.mend_keras()
    assert losses[0] == losses[1]


def test_without_workers_state_stays_where_it_is():
    model = types.SimpleNamespace(distribute_strategy=strategy_scope("none"))
    assert multi_worker.share_state(model, [3, 0.5]) == [3, 0.5]


@pytest.mark.parametrize("scheduler", ["Slurm", "Kubernetes"])
def test_documented_scripts_make_the_environment(scheduler, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "scaling.md").read_text()
    section = page.split(f"### {scheduler}\n")[1].split("\n## ")[0].split("\n### ")[0]
    script = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)[-1]
    script = script[: script.index("exec python")] + 'echo "$TF_CONFIG"'
    names = tmp_path / "scontrol"
    names.write_text("#!/bin/sh\nprintf 'node1\\nnode2\\nnode3\\n'\n")
    names.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "WORKERS": "3",
        "JOB_COMPLETION_INDEX": "2",
        "SLURM_JOB_NODELIST": "node[1-3]",
        "SLURM_PROCID": "2",
    }
    done = subprocess.run(
        ["bash", "-euc", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    monkeypatch.setenv("TF_CONFIG", done.stdout)
    assert multi_worker.worker() == (2, 3)
    workers = json.loads(done.stdout)["cluster"]["worker"]
    assert len(set(workers)) == 3 and all(host.endswith(":2222") for host in workers)
