"""Warm-up records: read back as TensorFlow Serving reads them, and replayed."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_vqem.serving import write_warmup

TEXTS = ["five", "twenty-one past ten", "", "fünf 日本", "three"]


def records(path):
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        yield prediction_log_pb2.PredictionLog.FromString(record).predict_log.request


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "numbers" / "1")


def test_records_replay_on_the_loaded_model(copy, loaded, model):
    path = write_warmup(copy, TEXTS, batch_sizes=(1, 2, 8))
    assert path == copy / "assets.extra" / "tf_serving_warmup_requests"
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    requests, batches = list(records(path)), []
    for request in requests:
        assert request.model_spec.name == "numbers"
        signature = loaded.signatures[request.model_spec.signature_name]
        inputs = {
            name: tf.constant(tf.make_ndarray(value))
            for name, value in request.inputs.items()
        }
        texts = [text.decode() for text in inputs["texts"].numpy()]
        found = signature(**inputs)["translations"].numpy()
        assert [text.decode() for text in found] == model.translate(texts)
        batches.append(texts)
    # Each size has all texts; what is short is filled from the start.
    assert [len(batch) for batch in batches] == [1] * 5 + [2] * 3 + [8]
    assert sum(batches[:5], []) == TEXTS
    assert sum(batches[5:8], []) == [*TEXTS, TEXTS[0]]
    assert batches[8] == TEXTS + TEXTS[:3]


def test_a_model_with_warmup_still_loads_and_can_be_warmed_again(copy):
    write_warmup(copy, TEXTS)
    tf.saved_model.load(str(copy))
    path = write_warmup(copy, ["five"], batch_sizes=(1,))
    assert len(list(records(path))) == 1


def test_no_more_records_than_the_server_takes(copy):
    assert len(list(records(write_warmup(copy, ["a"] * 1000, (1,))))) == 1000
    with pytest.raises(ValueError, match="1001 rows.*1001 requests.*at most 1000"):
        write_warmup(copy, ["a"] * 1001, (1,))


def test_a_failed_write_leaves_the_old_file(copy, monkeypatch):
    path = write_warmup(copy, TEXTS)
    before = path.read_bytes()

    class Full(tf.io.TFRecordWriter):
        def write(self, record):
            raise OSError("disk full")

    monkeypatch.setattr(tf.io, "TFRecordWriter", Full)
    with pytest.raises(OSError, match="disk full"):
        write_warmup(copy, ["five"])
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_errors_say_what_to_do(copy, tmp_path):
    for arguments, words in [
        ((tmp_path, TEXTS), "not an exported model.*model.export"),
        ((copy, "five"), r"Write write_warmup\(folder, \['five'\]\)"),
        ((copy, []), "nothing to warm up with"),
        ((copy, np.zeros((2, 4, 4, 3), "uint8")), r"takes string \[None\]"),
        ((copy, TEXTS, (0,)), "integers of at least 1"),
        ((copy, TEXTS, ()), "integers of at least 1"),
        ((copy, TEXTS, (1,), "decode"), "'decode': .*'codes', 'sources'"),
        ((copy, TEXTS, (1,), "none"), "'none' of .* is not"),
    ]:
        with pytest.raises(ValueError, match=words):
            write_warmup(*arguments)


def test_without_the_extra_the_error_names_it(copy, monkeypatch):
    import importlib

    def missing(name, *rest):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install '\.\[serving\]'"):
        write_warmup(copy, TEXTS)
    assert not (copy / "assets.extra").exists()
