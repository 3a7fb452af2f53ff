"""What a server must bring to load an exported translator, as docs/serving.md says."""

import json
import subprocess
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

TEXTS = ["twenty-one", "", "fünf 日本", "ten past two"]
OF_TEXT = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}


def operations(folder):
    content = (folder / "saved_model.pb").read_bytes()
    graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    return {node.op for node in nodes}


def test_three_operations_are_not_of_tensorflow(folder):
    names = operations(folder)
    script = f"""
import json, tensorflow
from tensorflow.python.framework import op_def_registry
unknown = [name for name in {sorted(names)!r} if op_def_registry.get(name) is None]
print(json.dumps(unknown))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, timeout=300
    )
    assert set(json.loads(done.stdout.splitlines()[-1])) == OF_TEXT
    # Files and Python would be nowhere on the server.
    assert not names & {"PyFunc", "EagerPyFunc", "ReadFile", "HashTableV2"}
    assert not list((folder / "assets").iterdir())


def test_a_session_gives_the_same(folder, model):
    # TensorFlow Serving runs signatures by a session, not by tf.saved_model.load.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
        signature = graph.signature_def["serving_default"]
        assert signature.method_name == "tensorflow/serving/predict"
        outputs = {name: info.name for name, info in signature.outputs.items()}
        texts = {signature.inputs["texts"].name: np.array(TEXTS, object)}
        found = session.run(outputs, texts)
        again = session.run(outputs, texts)
    assert [text.decode() for text in found["translations"]] == model.translate(TEXTS)
    for name in outputs:
        np.testing.assert_array_equal(found[name], again[name])
        assert len(found[name]) == len(TEXTS)
