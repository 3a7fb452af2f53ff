"""What several tables of this folder check in the same way."""

import keras
import numpy as np
import pytest
import tensorflow as tf


def slow_but(kinds, names):
    """Names for a test that takes long: those not among `kinds` are slow tests."""
    return [
        name if name in kinds else pytest.param(name, marks=pytest.mark.slow)
        for name in names
    ]


def assert_same(first, second, **tolerance):
    """Two nests of tensors or arrays have the same values, exactly by default."""
    # Keras loads tuples as lists, so structures are compared by their paths.
    first, second = (keras.tree.flatten_with_path(nest) for nest in (first, second))
    for (path, a), (other, b) in zip(first, second, strict=True):
        assert path == other and a.dtype == b.dtype, path
        a, b = (np.asarray(x, "float64") for x in (a, b))
        np.testing.assert_allclose(a, b, **{"rtol": 0, **tolerance}, err_msg=str(path))


def assert_same_shapes(symbolic, found):
    """Symbolic tensors have the shapes that were found, but for the batch."""
    pairs = zip(keras.tree.flatten(symbolic), keras.tree.flatten(found), strict=True)
    for tensor, value in pairs:
        wanted = tensor.shape
        assert len(wanted) == len(value.shape) and wanted.count(None) == 1
        assert all(a in (None, b) for a, b in zip(wanted, value.shape, strict=True))


def assert_pure(signature):
    """Nothing in an exported graph writes or draws: no metric, codebook or seed."""
    definition = signature.graph.as_graph_def()
    nodes = [*definition.node]
    for function in definition.library.function:
        nodes.extend(function.node_def)
    operations = {node.op for node in nodes}
    assert not [op for op in operations if "Assign" in op or "Random" in op]


def variables(layer):
    """What there is of variables, in the order of making: names, shapes and dtypes."""
    return [(v.name, tuple(v.shape), v.dtype) for v in layer.variables]


def shake(layer, seed=0):
    """Moves all weights from a start at which some of them do not matter."""
    rng = np.random.default_rng(seed)
    for weight in layer.trainable_weights:
        weight.assign(weight + 0.3 * rng.normal(size=weight.shape))
    return layer


def mixed(outputs):
    """A number that depends on every floating output, each in a way of its own."""
    total = 0.0
    for output in keras.tree.flatten(outputs):
        if output.dtype.is_floating:
            output = tf.reshape(tf.cast(output, "float32"), [-1])
            total += tf.reduce_sum(output * tf.sin(tf.range(1.0, tf.size(output) + 1)))
    return total


def trained(make_model, inputs, strategy=None, rows=5, **settings):
    """Weights and metrics after four steps on the 8 rows of inputs, again and again."""
    with (strategy or tf.distribute.get_strategy()).scope():
        model = make_model()
        model.compile(keras.optimizers.SGD(0.1), **settings)
    data = tf.data.Dataset.from_tensor_slices(inputs).batch(rows).repeat()
    history = model.fit(data, steps_per_epoch=4, verbose=0).history
    losses = model.evaluate(data, steps=2, verbose=0, return_dict=True)
    history |= {f"val_{name}": [value] for name, value in losses.items()}
    return model.get_weights(), history


def assert_trained_alike(first, second):
    """Two results of `trained` are equal, but for rounding."""
    for a, b in zip(first[0], second[0], strict=True):
        np.testing.assert_allclose(a, b, atol=5e-5)
    assert first[1].keys() == second[1].keys()
    for key, values in first[1].items():
        np.testing.assert_allclose(values, second[1][key], rtol=1e-5, err_msg=key)
