"""LiteRT models: the same ids as in Keras, with LiteRT's own operations."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.models.precision import in_precision
from keras_vqem.serving import write_litert
from tests.models import small

TEXTS = ["twenty-one", "ten past two", "the third of May", ""]

pytestmark = pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")


@pytest.fixture(scope="module")
def model():
    return small.exportable("CTCTranslator")


def padded(model, texts, length):
    ids = model.tokenizer.encode(texts)
    return ids.to_tensor(0, shape=[None, length]).numpy()


def interpreted(path):
    """Runs ids, and the names of all operations."""
    interpreter = tf.lite.Interpreter(str(path))
    names = {operation["op_name"] for operation in interpreter._get_ops_details()}
    run = interpreter.get_signature_runner()
    return lambda ids: run(source_ids=ids)["target_ids"], names


def test_ids_are_those_of_keras(model, tmp_path):
    path = tmp_path / "new" / "model.tflite"
    write_litert(model, path, length=12)
    translate, names = interpreted(path)
    assert not {name for name in names if name.startswith("Flex") or "WHILE" in name}
    assert path.stat().st_size > 4 * model.count_params()
    lengths = set()
    for text in TEXTS:
        ids = padded(model, [text], 12)
        expected = model.translate_ids(ids)
        np.testing.assert_array_equal(translate(ids), expected)
        lengths.add(expected.shape[1])
    assert len(lengths) > 1  # They are not all empty.
    assert translate(np.zeros((1, 12), "int32")).shape == (1, 0)


@pytest.mark.slow
def test_stored_options_and_rows_together(tmp_path):
    model = small.exportable("CTCTranslator")
    model.generation_config = {"num_beams": 3, "blank_bias": 5.0}
    half = in_precision(model, "bfloat16")
    write_litert(model, tmp_path / "rows.tflite", length=14, batch_size=len(TEXTS))
    write_litert(half, tmp_path / "half.tflite", length=14)
    ids = padded(model, TEXTS, 14)
    # Beams need a loop: the best path is what is left of these options.
    expected = model.translate_ids(ids, num_beams=1).numpy()
    plain = model.translate_ids(ids, num_beams=1, blank_bias=0.0).numpy()
    assert not np.array_equal(expected, plain)
    translate, _ = interpreted(tmp_path / "rows.tflite")
    np.testing.assert_array_equal(translate(ids), expected)
    translate, _ = interpreted(tmp_path / "half.tflite")
    exact = in_precision(half, "float32").translate_ids(ids[:1], num_beams=1)
    np.testing.assert_array_equal(translate(ids[:1]), exact)


@pytest.mark.slow
def test_int8_is_smaller(model, tmp_path):
    sizes = {}
    for precision in ("float32", "int8"):
        path = tmp_path / precision
        write_litert(model, path, length=12, precision=precision)
        sizes[precision] = path.stat().st_size
    # LiteRT leaves matrices of less than 1,024 numbers as they are: most of these.
    assert sizes["float32"] - sizes["int8"] > model.embedding.count_params()
    translate, _ = interpreted(tmp_path / "int8")
    assert translate(padded(model, TEXTS[:1], 12)).dtype == np.int32


@pytest.mark.parametrize("name", ["LatentNMT", "Transformer"])
def test_models_with_a_loop_are_refused(name, tmp_path):
    said = f"must be a CTCTranslator, .* received a {name}. Take one, such as"
    with pytest.raises(ValueError, match=said):
        write_litert(small.exportable(name), tmp_path / "model.tflite")
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_are_refused(model, tmp_path):
    for options, said in [
        ({"length": 1}, "`length` must be a whole number of at least 2"),
        ({"batch_size": 0}, "`batch_size` must be a whole number of at least 1"),
        ({"precision": "float16"}, "one of float32, int8, received 'float16'"),
    ]:
        with pytest.raises(ValueError, match=said):
            write_litert(model, tmp_path / "model.tflite", **options)
    assert not list(tmp_path.iterdir())
