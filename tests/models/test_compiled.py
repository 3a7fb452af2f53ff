"""Parts that XLA compiles: the same translations, few programs, exports."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers, models
from keras_vqem.models import compiled
from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer
from tests.models.conftest import SMALL

CORPUS = ParallelCorpus.from_numbers(200)
# Several lengths, one of them of more than one multiple, and a text without words.
TEXTS = ["twelve", "", *CORPUS.sources[:5], "the third of May at half past three " * 3]


@pytest.fixture(scope="module")
def tokenizer():
    lines = CORPUS.sources + CORPUS.targets
    return SentencePieceTokenizer.train(lines, vocabulary_size=350)


TWO, BIAS = {"num_return_sequences": 2}, {"blank_bias": -1.0}


def made(kind, tokenizer, **options):
    """Returns a model with random weights that are large enough to write words."""
    keras.utils.set_random_seed(3)
    if kind is models.LatentNMT:
        bottleneck = layers.VQEMBottleneck(8, initializer="random_normal")
        options = {"bottleneck": bottleneck, "num_predictor_layers": 2, **options}
    model = kind(tokenizer, num_decoder_layers=2, **SMALL, **options)
    model.build()
    for weight in model.trainable_variables:
        if len(weight.shape) > 1:
            weight.assign(3.0 * weight)
    return model


KINDS = {
    "transformer": (models.Transformer, {}),
    "latent": (models.LatentNMT, {}),
    "latent_ctc": (models.LatentNMT, {"word_output": "ctc"}),
    "latent_causal": (models.LatentNMT, {"word_output": "causal"}),
    "ctc": (models.CTCTranslator, {}),
    "fertility": (models.FertilityNAT, {}),
    "refinement": (models.RefinementNAT, {"refinement": "mask"}),
}
OBJECTS = {
    "ctc": models.CTCOutput,
    "causal": models.CausalOutput,
    "mask": models.MaskPredict,
}


QUICK = ("transformer", "latent", "ctc")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.slow)
        for kind in KINDS
    ],
)
def model(request, tokenizer):
    kind, options = KINDS[request.param]
    return made(kind, tokenizer, **{name: OBJECTS[x]() for name, x in options.items()})


def test_translations_and_scores_are_the_same(model):
    plain = model.translate(TEXTS, return_scores=True)
    found = model.translate(TEXTS, return_scores=True, jit_compile=True)
    assert found[0] == plain[0] and any(plain[0]) and not found[0][1]
    np.testing.assert_allclose(found[1], plain[1], rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("transformer", {"max_length": 5, "min_length": 4, "target_prefix": "zwölf"}),
        pytest.param("transformer", {"num_beams": 3, **TWO}, marks=pytest.mark.slow),
        pytest.param("transformer", {"temperature": 0.7}, marks=pytest.mark.slow),
        ("latent", {"min_codes": 2, "max_codes": 3, "first_code": 5}),
        pytest.param("latent", {"end_threshold": 0.05}, marks=pytest.mark.slow),
        pytest.param("latent", {"num_beams": 3}, marks=pytest.mark.slow),
        pytest.param("ctc", {"num_beams": 3, **BIAS}, marks=pytest.mark.slow),
    ],
)
def test_options(tokenizer, name, options):
    model = made(KINDS[name][0], tokenizer)
    plain = model.translate(TEXTS, **options)
    assert model.translate(TEXTS, jit_compile=True, **options) == plain


@pytest.mark.slow
def test_limits_of_rows(tokenizer):
    model = made(models.LatentNMT, tokenizer)
    ids = tokenizer.encode(TEXTS).to_tensor()
    limits = tf.constant([1, 2, 0, 3, 1, 2, 3, 1])
    plain = model.generate(ids, max_codes=limits)
    with compiled.compiling():
        found = tf.function(model.generate, autograph=False)(ids, max_codes=limits)
    for name in ("target_ids", "codes"):
        assert found[name].numpy().tolist() == plain[name].numpy().tolist()


def test_parts_are_compiled_only_when_asked(tokenizer):
    model = made(models.CTCTranslator, tokenizer)

    def programs(graph):
        functions = graph.get_concrete_function().graph.as_graph_def().library.function
        return [f for f in functions if f.attr["_XlaMustCompile"].b]

    assert not programs(model.translation_graph())
    # The encoder, and all behind it.
    assert len(programs(model.translation_graph(jit_compile=True))) == 2
    assert not compiled.is_compiling()


def test_lengths_are_few():
    ids = tf.ones([2, 9], "int32")
    assert compiled.padded(ids) is ids
    with compiled.compiling():
        assert compiled.padded(ids).shape == (2, 16)
        assert compiled.padded(ids[:, :8]).shape == (2, 8)
        assert compiled.padded(ids[:, :0]).shape == (2, 0)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [None, "bfloat16", "int8"])
def test_an_export_translates_in_a_fresh_process(tokenizer, tmp_path, precision):
    model = made(models.LatentNMT, tokenizer)
    folder = tmp_path / "1"
    model.export(folder, jit_compile=True, precision=precision)
    code = f"""
import tensorflow as tf
import tensorflow_text
served = tf.saved_model.load({str(folder)!r}).signatures["serving_default"]
for texts in ({TEXTS!r}, {TEXTS[2:3]!r}):
    for text in served(texts=tf.constant(texts))["translations"].numpy():
        print(text.decode())
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    lines = found.stdout.split("\n")[:-1]
    assert len(lines) == len(TEXTS) + 1 and lines[-1] == lines[2] and lines[2]
    if precision is None:
        assert lines[:-1] == model.translate(TEXTS)
