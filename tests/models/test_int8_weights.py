"""Exports in int8: a third of the size, and the translations of rounded weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from keras_vqem import models
from keras_vqem.models.int8_weights import quantized
from keras_vqem.models.precision import in_precision
from tests.models import small
from tests.models.small import TEXTS, TRANSLATORS


def is_matrix(weight):
    return weight.path.endswith(("/kernel", "/embeddings"))


def rounded_in_numpy(model):
    """The same model with the weights that an int8 export should compute with."""
    config = {**model.get_config(), "tokenizer": model.tokenizer}
    copy = type(model).from_config(config)
    copy.build()
    for mine, other in zip(copy.weights, model.weights, strict=True):
        value = other.numpy()
        if is_matrix(other):
            # A channel is a column of a kernel, and a row of an embedding.
            channels = value if other.path.endswith("/kernel") else value.T
            scales = np.max(np.abs(channels), axis=0) / np.float32(127)
            rounded = np.rint(channels / scales) * scales
            assert (np.abs(rounded - channels) <= 0.5001 * scales).all()
            value = rounded if other.path.endswith("/kernel") else rounded.T
        mine.assign(value)
    return copy


def stored(folder):
    """Numbers of bytes of the variables in a SavedModel, by their type."""
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    dtypes, sizes = reader.get_variable_to_dtype_map(), {}
    for name, shape in reader.get_variable_to_shape_map().items():
        dtype = dtypes[name]
        if dtype != tf.string:
            sizes[dtype] = sizes.get(dtype, 0) + int(np.prod(shape)) * dtype.size
    return sizes


def test_rounding_is_within_half_a_scale(rng):
    matrix = rng.normal(size=(50, 7)).astype("float32") * 10.0 ** np.arange(-3, 4)
    matrix[:, 2] = 0.0
    for axis in (0, 1):
        numbers, scales = quantized(matrix, axis)
        assert numbers.dtype == np.int8 and scales.dtype == np.float32
        assert scales.shape == ((1, 7) if axis == 0 else (50, 1))
        error = np.abs(numbers * scales - matrix)
        assert (error <= 0.5001 * scales).all() and error.max() > 0
        # The largest of each channel uses the whole range.
        largest = np.abs(numbers.astype(int)).max(axis=axis)
        assert set(largest) == ({0, 127} if axis == 0 else {127})


@pytest.fixture(scope="module")
def exported(request, tmp_path_factory):
    model = small.exportable(request.param)
    folder = tmp_path_factory.mktemp("served") / "1"
    model.export(folder, precision="int8")
    return model, folder


@pytest.mark.parametrize("exported", TRANSLATORS, indirect=True)
def test_matrices_are_stored_in_int8(exported):
    model, folder = exported
    sizes = stored(folder)
    matrices = sum(int(np.prod(w.shape)) for w in model.weights if is_matrix(w))
    assert 0 < sizes[tf.int8] <= matrices
    if not isinstance(model, models.LatentNMT):  # which has parts for training alone
        assert sizes[tf.int8] == matrices
    # Rows of 16 numbers with a scale; with 128 it would be little more than a quarter.
    assert sum(sizes.values()) < 0.4 * 4 * sizes[tf.int8]


@pytest.mark.parametrize("exported", TRANSLATORS, indirect=True)
def test_every_endpoint_computes_with_rounded_weights(exported):
    model, folder = exported
    texts = tf.constant(TEXTS)
    inputs = {
        "serve": [texts],
        "translate_ids": [model.tokenizer.encode(TEXTS).to_tensor(0)],
        "encode": [texts, texts],
        "decode": [texts, tf.constant([[3, 5, 2, 7]] * len(TEXTS))],
    }
    loaded = tf.saved_model.load(str(folder))
    endpoints = rounded_in_numpy(model)._endpoints(256, {})
    assert {*endpoints, "serving_default"} == set(loaded.signatures)
    for name, (function, signature) in endpoints.items():
        names = [spec.name for spec in signature]
        given = dict(zip(names, inputs[name], strict=True))
        found = loaded.signatures[name](**given)
        for key, value in function(*inputs[name]).items():
            if value.dtype == tf.float32:
                np.testing.assert_allclose(found[key], value, rtol=1e-4)
            else:
                np.testing.assert_array_equal(found[key], value)
    # The model that was exported stays as it was.
    assert not np.array_equal(
        model.embedding.embeddings, rounded_in_numpy(model).embedding.embeddings
    )


def test_scores_move_by_little_more_than_the_rounding():
    model = small.exportable("CTCTranslator")
    copy = rounded_in_numpy(model)
    ids = model.tokenizer.encode(TEXTS).to_tensor(0)
    exact, rounded = (
        tf.nn.log_softmax(x({"source_ids": ids})).numpy() for x in (model, copy)
    )
    error = np.abs(exact - rounded).mean() / exact.std()
    # 7 bits, some dozens of roundings: wrong weights would give 1.
    assert 0 < error < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("exported", ["LatentNMT"], indirect=True)
def test_loops_get_weights_that_are_float32_already(exported):
    content = (exported[1] / "saved_model.pb").read_bytes()
    graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
    functions = {f.signature.name: f.node_def for f in graph.library.function}
    loops = [
        functions[node.attr[part].func.name]
        for nodes in functions.values()
        for node in nodes
        if node.op in ("While", "StatelessWhile")
        for part in ("body", "cond")
    ]

    def of_int8(nodes):
        types = [a.type for n in nodes for a in n.attr.values()]
        return types.count(types_pb2.DT_INT8)

    assert loops and not any(of_int8(nodes) for nodes in loops)
    assert any(of_int8(nodes) for nodes in functions.values())


def test_a_model_of_half_precision_is_computed_in_float32(tmp_path):
    half = in_precision(small.exportable("CTCTranslator"), "bfloat16")
    assert in_precision(half, "int8").dtype_policy == keras.DTypePolicy("float32")
    half.export(tmp_path / "1", precision="int8")
    assert stored(tmp_path / "1").keys() == {tf.int8, tf.float32}


@pytest.mark.slow
def test_a_rescorer_is_stored_in_int8_too(tmp_path):
    model, teacher = small.exportable("CTCTranslator"), small.exportable("Transformer")
    options = {"num_beams": 2, "rescorer": teacher}
    model.export(tmp_path / "1", precision="int8", **options)
    matrices = sum(
        int(np.prod(w.shape))
        for x in (model, teacher)
        for w in x.weights
        if is_matrix(w)
    )
    assert stored(tmp_path / "1")[tf.int8] == matrices
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    options["rescorer"] = rounded_in_numpy(teacher)
    expected = rounded_in_numpy(model).translate(TEXTS, **options)
    found = served(texts=tf.constant(TEXTS))["translations"].numpy()
    assert [text.decode() for text in found] == expected
