"""Exports in bfloat16: half the size, the same signatures, nearly the same scores."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.models.precision import in_precision
from tests.models import small
from tests.models.small import TEXTS, TRANSLATORS


def stored(folder):
    """Types and numbers of bytes of the variables in a SavedModel, by their names."""
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    dtypes = reader.get_variable_to_dtype_map()
    return {
        name: (dtypes[name], int(np.prod(shape)) * dtypes[name].size)
        for name, shape in reader.get_variable_to_shape_map().items()
        if dtypes[name].is_floating
    }


def called(folder):
    loaded = tf.saved_model.load(str(folder))
    serve = loaded.signatures["serving_default"]
    return serve.structured_outputs, serve(texts=tf.constant(TEXTS))


def size_in_bytes(variables):
    return sum(size for _, size in variables.values())


@pytest.mark.parametrize("name", TRANSLATORS)
def test_bfloat16_is_half_and_says_nearly_the_same(name, tmp_path):
    model = small.exportable(name)
    model.export(tmp_path / "full")
    model.export(tmp_path / "half", precision="bfloat16")
    full, half = stored(tmp_path / "full"), stored(tmp_path / "half")
    # Each weight is stored once, and only those that an endpoint uses.
    assert size_in_bytes(full) <= 4 * model.count_params()
    assert len(full) == len(half)
    codebook = 0
    if name.startswith("LatentNMT"):
        weights = model.bottleneck.weights
        codebook = sum(4 * int(np.prod(w.shape)) for w in weights)
        assert tf.float32 in {dtype for dtype, _ in half.values()}
    else:
        assert {dtype for dtype, _ in half.values()} == {tf.bfloat16}
    assert size_in_bytes(half) <= size_in_bytes(full) / 2 + codebook / 2
    (specs, _), (half_specs, found) = (
        called(tmp_path / kind) for kind in ("full", "half")
    )
    assert {k: (v.dtype, v.shape.as_list()) for k, v in specs.items()} == {
        k: (v.dtype, v.shape.as_list()) for k, v in half_specs.items()
    }
    copy = in_precision(model, "bfloat16")
    copy.translate(TEXTS)  # Without a graph, which rounds at other places.
    assert [t.decode() for t in found["translations"].numpy()] == copy.translate(TEXTS)
    assert found["scores"].dtype == tf.float32
    # The model that was exported stays as it was.
    assert model.embedding.embeddings.dtype == "float32"


@pytest.mark.parametrize("name", ["Transformer", "CTCTranslator"])
def test_logits_agree_to_the_rounding_of_bfloat16(name):
    model = small.exportable(name)
    copy = in_precision(model, "bfloat16")
    rng = np.random.default_rng(0)
    batch = {
        key: rng.integers(3, 300, (3, 9)).astype("int32")
        for key in ("source_ids", "target_ids")
    }
    exact = tf.nn.log_softmax(model(batch)).numpy()
    rounded = tf.nn.log_softmax(tf.cast(copy(batch), tf.float32)).numpy()
    error = np.abs(exact - rounded).mean() / exact.std()
    # 8 bits of mantissa, some dozens of roundings: wrong weights would give 1.
    assert 0 < error < 0.05


def test_a_model_built_in_bfloat16_is_what_export_makes():
    model = small.exportable("CTCTranslator")
    config = {**model.get_config(), "dtype": "bfloat16", "tokenizer": model.tokenizer}
    built = type(model).from_config(config)
    built.build()
    for mine, other in zip(built.weights, model.weights, strict=True):
        mine.assign(keras.ops.cast(other, mine.dtype))
    copy = in_precision(model, "bfloat16")
    assert [w.dtype for w in copy.weights] == [w.dtype for w in built.weights]
    assert in_precision(built, "bfloat16") is built
    assert in_precision(model, None) is model is in_precision(model, "float32")
    ids = model.tokenizer.encode(TEXTS).to_tensor(0)
    for name, value in built.generate(ids).items():
        np.testing.assert_array_equal(value, copy.generate(ids)[name])


def test_other_precisions_name_the_alternatives(tmp_path):
    model = small.exportable("CTCTranslator")
    said = "received 'float16'. Use bfloat16, .* or int8"
    with pytest.raises(ValueError, match=said):
        model.export(tmp_path / "x", precision="float16")
    assert not (tmp_path / "x").exists()


def test_a_rescorer_is_in_the_same_precision(tmp_path):
    model, teacher = small.exportable("CTCTranslator"), small.exportable("Transformer")
    model.export(tmp_path / "1", precision="bfloat16", num_beams=2, rescorer=teacher)
    assert {dtype for dtype, _ in stored(tmp_path / "1").values()} == {tf.bfloat16}


@pytest.mark.slow
def test_a_new_process_loads_bfloat16(tmp_path):
    model = small.exportable("LatentNMT")
    model.export(tmp_path / "1", precision="bfloat16")
    script = f"""
import json, sys, tensorflow as tf, tensorflow_text
served = tf.saved_model.load({str(tmp_path / "1")!r})
found = served.signatures["serving_default"](texts=tf.constant({TEXTS!r}))
print(json.dumps([t.decode() for t in found["translations"].numpy()]))
assert not {{"keras_vqem", "sentencepiece"}} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, timeout=300
    )
    expected = in_precision(model, "bfloat16").translate(TEXTS)
    assert json.loads(done.stdout.splitlines()[-1]) == expected
