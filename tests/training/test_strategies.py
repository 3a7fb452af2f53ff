"""Strategies by name; what depends on a fresh TensorFlow runs in a process."""

import subprocess
import sys
import types

import keras
import pytest
import tensorflow as tf

from keras_vqem.text import TokenBatches
from keras_vqem.training import distribute_batches, strategy_scope
from keras_vqem.training.strategies import num_devices
from tests.models import small


@pytest.mark.parametrize("name", ["none", "auto"])
def test_without_gpus_none_and_auto_are_the_default_strategy(name, monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["one GPU"])
    strategy = strategy_scope(name)
    assert strategy is tf.distribute.get_strategy()
    assert strategy.num_replicas_in_sync == num_devices(name) == 1


def test_auto_is_mirrored_with_several_gpus(monkeypatch):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [1, 2, 3])
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", list)
    assert strategy_scope("auto") == strategy_scope("mirrored")
    assert strategy_scope("auto") == ["GPU:0", "GPU:1", "GPU:2"]
    assert strategy_scope("mirrored:2") == ["GPU:0", "GPU:1"]
    found = [num_devices(x) for x in ("auto", "none", "mirrored:2", "multi_worker")]
    assert found == [3, 1, 2, 3]


@pytest.mark.parametrize("name", ["", "mirror", "mirrored:", "mirrored:0", "tpu"])
def test_other_names_are_refused(name):
    wanted = "'none', 'mirrored' .*'multi_worker'"
    with pytest.raises(ValueError, match=wanted) as error:
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


def shares(dataset, strategy):
    """Rows of each replica, batch by batch."""
    return [
        [x.numpy().tolist() for x in strategy.experimental_local_results(batch)]
        for batch in distribute_batches(dataset, strategy)
    ]


def test_replicas_share_the_rows_of_each_batch(strategy):
    even = tf.data.Dataset.range(8).batch(4, drop_remainder=True)
    assert shares(even, strategy) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    # Of several sizes, one of them a single row.
    uneven = tf.data.Dataset.range(8).batch(7)
    assert shares(uneven, strategy) == [[[0, 1, 2], [3, 4, 5, 6]], [[], [7]]]
    assert int(distribute_batches(uneven.repeat(), strategy).cardinality) == -1
    single = tf.data.Dataset.range(3).batch(1, drop_remainder=True)
    with pytest.raises(ValueError, match="1 rows cannot be divided among 2 .*at least"):
        shares(single, strategy)


SETTINGS = {
    "jit": {"jit_compile": True},
    "steps": {"steps_per_execution": 2},
    "accumulation": {
        "optimizer": keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    },
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_keras_cannot_do_on_replicas_is_refused(strategy, setting):
    with strategy.scope():
        model = small.transformer()
    with pytest.raises(ValueError, match="on several replicas.*with 2. (Leave|Use)"):
        model.compile(**SETTINGS[setting])


def test_long_pairs_fit_the_default_budget_on_eight_replicas():
    # Pairs of 298 tokens: 6 rows of 2048 tokens, fewer than replicas.
    ids = [[*range(3, 300), 1]] * 20
    batches = TokenBatches(ids, ids, tokens_per_batch=2048)
    assert batches.shapes == [(6, 298, 304)]
    eight = types.SimpleNamespace(
        num_replicas_in_sync=8,
        distribute_datasets_from_function=lambda pipeline: pipeline(
            types.SimpleNamespace(num_input_pipelines=1, input_pipeline_id=0)
        ),
    )
    found = distribute_batches(batches.dataset(epochs=1), eight)
    rows = [len(batch["source_ids"]) for batch in found]
    assert rows == [0, 1, 1, 1, 0, 1, 1, 1] * 4
