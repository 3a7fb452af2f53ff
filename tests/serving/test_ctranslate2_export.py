"""Weights for CTranslate2: read as it reads them, they are the same Transformer."""

import json
import pathlib
import sys

import keras
import numpy as np
import pytest

from keras_vqem import zoo
from keras_vqem.serving import ctranslate2_export as export
from tests.models import small

PEERS = pathlib.Path(__file__).parents[2] / ".venv-peers" / "bin" / "python"


@pytest.fixture(scope="module")
def model():
    """A Transformer whose norms and biases are not those of a new one."""
    model = small.transformer(num_encoder_layers=2, num_decoder_layers=1)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        if len(weight.shape) == 1:
            weight.assign(weight + 0.3 * rng.normal(size=weight.shape))
    return model


def norm(x, weights, name, epsilon):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon)
    return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def attention(queries, keys, values, num_heads, allowed):
    found = []
    parts = (np.split(x, num_heads, axis=-1) for x in (queries, keys, values))
    for q, k, v in zip(*parts, strict=True):
        scores = q @ k.T / np.sqrt(q.shape[-1])
        found.append(softmax(np.where(allowed, scores, -1e9)) @ v)
    return np.concatenate(found, axis=-1)


def as_ctranslate2(weights, settings, source_ids, target_ids):
    """Logits [T, V] of one sentence, by the layout that CTranslate2 documents."""
    heads, epsilon = settings["num_heads"], settings["layer_norm_epsilon"]

    def linear(x, name):
        return x @ weights[f"{name}/weight"].T + weights.get(f"{name}/bias", 0.0)

    def stack(x, side, number, memory=None):
        allowed = np.ones((len(x), len(x)), bool)
        if memory is not None:
            allowed = np.tril(allowed)
        for layer in (f"{side}/layer_{i}" for i in range(number)):
            own, cross, ffn = (
                f"{layer}/{part}" for part in ("self_attention", "attention", "ffn")
            )
            y = linear(
                norm(x, weights, f"{own}/layer_norm", epsilon), f"{own}/linear_0"
            )
            y = attention(*np.split(y, 3, axis=-1), heads, allowed)
            x = x + linear(y, f"{own}/linear_1")
            if memory is not None:
                y = norm(x, weights, f"{cross}/layer_norm", epsilon)
                sides = np.split(linear(memory, f"{cross}/linear_1"), 2, axis=-1)
                y = attention(linear(y, f"{cross}/linear_0"), *sides, heads, True)
                x = x + linear(y, f"{cross}/linear_2")
            y = norm(x, weights, f"{ffn}/layer_norm", epsilon)
            y = np.maximum(linear(y, f"{ffn}/linear_0"), 0)
            x = x + linear(y, f"{ffn}/linear_1")
        return norm(x, weights, f"{side}/layer_norm", epsilon)

    def embed(ids, side, place):
        table = weights[f"{side}/{place}/weight"]
        signal = weights[f"{side}/position_encodings/encodings"][: len(ids)]
        return table[ids] * np.sqrt(table.shape[1]) + signal

    encoders, decoders = settings["num_layers"]
    memory = stack(embed(source_ids, "encoder", "embeddings_0"), "encoder", encoders)
    x = stack(embed(target_ids, "decoder", "embeddings"), "decoder", decoders, memory)
    return linear(x, "decoder/projection")


def test_the_weights_are_those_of_the_same_network(model):
    weights = export.ctranslate2_weights(model, max_length=12)
    settings = export.ctranslate2_settings(model)
    source_ids, target_ids = [5, 9, 17, 4, 1], [7, 22, 3, 28, 11, 1]
    shifted = [settings["vocabulary"].index(settings["start"]), *target_ids[:-1]]
    found = as_ctranslate2(weights, settings, source_ids, shifted)
    batch = {"source_ids": np.array([source_ids]), "target_ids": np.array([target_ids])}
    np.testing.assert_allclose(found, model(batch)[0], atol=2e-5)
    # Everything is there once, apart from the shared embedding and the positions.
    shared = 2 * weights["decoder/projection/weight"].size
    positions = 2 * 12 * model.hidden_dim
    stored = sum(value.size for value in weights.values())
    assert stored == model.count_params() + shared + positions
    assert all(value.dtype == np.float32 for value in weights.values())


def test_settings_say_what_the_special_ids_are(model):
    settings = export.ctranslate2_settings(model)
    assert settings["vocabulary"] == [str(number) for number in range(29)]
    assert [settings[name] for name in ("start", "end", "unknown")] == ["0", "1", "2"]
    teacher = zoo.load("multi30k_en_de_teacher")
    settings = export.ctranslate2_settings(teacher)
    assert len(set(settings["vocabulary"])) == teacher.tokenizer.vocabulary_size
    assert [settings[name] for name in ("start", "end", "unknown")] == [
        "<pad>",
        "</s>",
        "<unk>",
    ]


def test_errors_name_the_remedy(model, tmp_path):
    causal = small.transformer(causal_encoder=True)
    with pytest.raises(ValueError, match="no causal encoder.*SavedModel"):
        export.ctranslate2_weights(causal)
    with pytest.raises(export.PeerFailed, match="cannot be run.*venv-peers"):
        export.write_ctranslate2(model, tmp_path / "model", tmp_path / "no_python")
    with pytest.raises(export.PeerFailed, match="has no package ctranslate2.*make"):
        export.write_ctranslate2(model, tmp_path / "model", sys.executable)
    with pytest.raises(export.PeerFailed, match="has no package ctranslate2"):
        export.ctranslate2_precisions(sys.executable)
    assert not (tmp_path / "model").exists()
    with pytest.raises(ValueError, match=r"must end in id 1, received \[3, 4\]"):
        export.ctranslate2_translate(tmp_path, [[3, 4]], sys.executable)


def cut(rows):
    """Ids up to the end symbol, as lists."""
    return [row[: row.index(1)] if 1 in row else row for row in rows]


@pytest.mark.soak
def test_every_processor_has_float32():
    assert "float32" in export.ctranslate2_precisions(PEERS)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["random", "multi30k_en_de_teacher"])
def test_ctranslate2_writes_the_same(name, tmp_path):
    if name == "random":
        keras.utils.set_random_seed(3)
        model = small.transformer(hidden_dim=64, num_heads=4, intermediate_dim=128)
        for weight in model.encoder.weights + model.decoder.weights:
            weight.assign(3 * weight)  # Else it writes its start symbol for ever.
        rng = np.random.default_rng(0)
        rows = [[*rng.integers(3, 29, rng.integers(1, 20)), 1] for _ in range(50)]
    else:
        model = zoo.load(name)
        rows = model.tokenizer.encode(TEXTS).to_list()
    export.write_ctranslate2(model, tmp_path / "model", PEERS)
    source_ids = keras.utils.pad_sequences(rows, padding="post")
    for beams in (1, 4):
        options = {"num_beams": beams, "length_penalty": 0.0, "max_length": 40}
        ours = cut(model.translate_ids(source_ids, **options).numpy().tolist())
        theirs = export.ctranslate2_translate(
            tmp_path / "model",
            rows,
            PEERS,
            beam_size=beams,
            length_penalty=0,
            min_decoding_length=0,  # By default it writes at least one token.
            max_decoding_length=40,
        )
        assert ours == theirs, f"{beams} beams"
        assert len({tuple(row) for row in ours}) > len(rows) // 2
    saved = json.loads((tmp_path / "model" / "config.json").read_text())
    assert saved["layer_norm_epsilon"] == 1e-6


TEXTS = [
    "Two dogs play.",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "Three people sit at a picnic table outside of a building.",
    "A girl jumps.",
    "Several men in hard hats are operating a giant pulley system.",
    "A child in a pink dress is climbing up a set of stairs in an entry way.",
    "Zürich, 1998: «naïve» café — 日本!",
    "People are fixing the roof of a house while a small dog watches them from the "
    "garden, and an older woman with a red hat hands them something to drink.",
]
