"""Runs compared by what they leave on disk."""

import json

import numpy as np

from keras_vqem.training import list_checkpoints


def state(run):
    """All that the last checkpoint of a run holds, without times."""
    with np.load(list_checkpoints(run / "checkpoints")[-1]) as file:
        return {key: file[key] for key in file.files if key != "seconds"}


def metrics(run):
    lines = (json.loads(line) for line in (run / "metrics.jsonl").open())
    return [
        {k: v for k, v in line.items() if not k.endswith("seconds")} for line in lines
    ]


def newest(run):
    """Name of the newest checkpoint, or None."""
    names = [path.stem for path in run.glob("checkpoints/epoch-*.npz")]
    return max(names, key=lambda name: [*map(int, name.split("-")[1::2])], default=None)


def assert_same_bits(run, whole):
    mine, other = state(run), state(whole)
    assert mine.keys() == other.keys()
    for key, value in other.items():
        np.testing.assert_array_equal(mine[key], value, err_msg=key)
    assert metrics(run) == metrics(whole)
