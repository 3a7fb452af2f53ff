"""Against the sentencepiece package, by round trip, and through Keras' saving."""

import io
import os
import re
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_vqem.text import SentencePieceTokenizer, numbers

LINES = [line for pair in numbers.pairs(500) for line in pair]
FOREIGN = [
    "Grüße 😀🇩🇪!",
    "日本語",
    "e\u0301 ½ ﬁ ①",
    "a\x00\x01\tb\x7f",
    "a\u2028b\r\nc",
]


@pytest.fixture(scope="module")
def tokenizer():
    return SentencePieceTokenizer.train(LINES, vocabulary_size=400)


def round_trip(tokenizer, texts):
    return [text.decode() for text in tokenizer.decode(tokenizer.encode(texts)).numpy()]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_ids_are_those_of_sentencepiece(model_type, tmp_path):
    tokenizer = SentencePieceTokenizer.train(LINES, 400, model_type=model_type)
    tokenizer.save(tmp_path / "file")
    reference = sentencepiece.SentencePieceProcessor(str(tmp_path / "file"))
    texts = LINES[:50] + FOREIGN + [""]
    expected = reference.encode(texts, add_eos=True)
    assert tokenizer.encode(texts).to_list() == expected
    assert [ids.tolist() for ids in tokenizer.encode_lines(texts)] == expected
    assert tokenizer.vocabulary_size == reference.get_piece_size() == 400
    names = reference.id_to_piece([tokenizer.pad_id, tokenizer.eos_id])
    assert names == ["<pad>", "</s>"] and reference.unk_id() == tokenizer.unk_id


def test_pieces_are_those_of_the_ids(tokenizer):
    pieces = tokenizer.pieces()
    assert pieces[:3] == ["<pad>", "</s>", "<unk>"]
    assert len(pieces) == len(set(pieces)) == tokenizer.vocabulary_size
    ids = tokenizer.encode(LINES[0]).numpy()[:-1]
    text = "".join(pieces[number] for number in ids)
    assert text.replace("\u2581", " ").strip() == LINES[0]


def test_text_in_and_out(tokenizer):
    texts = LINES[:100] + FOREIGN + ["", "<pad></s><unk><0x41>"]
    assert round_trip(tokenizer, texts) == texts
    assert not (tokenizer.encode(texts).values.numpy() == tokenizer.unk_id).any()
    assert tokenizer.encode([""]).to_list() == [[tokenizer.eos_id]]
    assert tokenizer.encode_lines([]) == []


def test_many_lines_are_encoded_chunk_by_chunk(tokenizer, monkeypatch):
    expected = tokenizer.encode(LINES[:50]).to_list()
    monkeypatch.setattr("keras_vqem.text.sentencepiece_tokenizer.CHUNK_SIZE", 16)
    chunks = [ids.to_list() for ids in tokenizer.encode_chunks(iter(LINES[:50]))]
    assert list(map(len, chunks)) == [16, 16, 16, 2]
    assert sum(chunks, []) == expected
    assert [ids.tolist() for ids in tokenizer.encode_lines(LINES[:50])] == expected


def test_characters_beyond_the_coverage_are_spelled_in_bytes():
    lines = LINES + ["日本"]
    for coverage, unknown in ((1.0, ""), (0.999, "日本")):
        tokenizer = SentencePieceTokenizer.train(
            lines, 400, character_coverage=coverage
        )
        assert tokenizer.unknown_characters("日本 two") == unknown
        assert round_trip(tokenizer, ["日本 two"]) == ["日本 two"]


@settings(max_examples=15, deadline=None)
@given(texts=st.lists(st.text(max_size=20), min_size=1, max_size=50))
def test_any_unicode_comes_back(tokenizer, texts):
    spaces = [text.replace("\u2581", " ") for text in texts]
    assert round_trip(tokenizer, texts) == [
        re.sub(" +", " ", text.strip(" ")) for text in spaces
    ]


def test_bytes_that_are_not_utf8(tokenizer):
    texts = [b"a\xff\xfeb", b"\xc3", "a\udcffb"]
    assert round_trip(tokenizer, texts[:2]) == ["a\ufffd\ufffdb", "\ufffd"]
    assert "\ufffd" in round_trip(tokenizer, texts[2:])[0]
    half_an_emoji = tokenizer.encode(["😀"])[:, :-2]
    assert "\ufffd" in tokenizer.decode(half_an_emoji).numpy()[0].decode()


def test_decode_stops_at_the_end(tokenizer):
    two, ten = (ids.tolist() for ids in tokenizer.encode_lines(["two", "ten"]))
    rows = [two + ten, two + [0, 0], [0] + two[:-1], [1] + two, [0, 0]]
    expected = [b"two", b"two", b"two", b"", b""]
    ragged = tf.ragged.constant(rows, tf.int64)
    assert tokenizer.decode(ragged).numpy().tolist() == expected
    assert tokenizer.decode(ragged.to_tensor()).numpy().tolist() == expected
    assert tokenizer.decode(two).numpy() == b"two"
    assert tokenizer.decode(np.zeros([0, 4], int)).shape == [0]
    assert tokenizer.encode("two").numpy().tolist() == two
    with pytest.raises(tf.errors.OutOfRangeError):
        tokenizer.decode([[400]])


def test_in_graphs(tokenizer):
    dataset = tf.data.Dataset.from_tensor_slices(LINES[:10]).batch(4)
    dataset = dataset.map(tokenizer.encode).map(tokenizer.decode).unbatch()
    assert [text.decode() for text in dataset.as_numpy_iterator()] == LINES[:10]

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def padded(texts):
        return tokenizer.encode(texts).to_tensor()

    assert padded(tf.constant(["two", "two past ten"])).dtype == tf.int32


def test_works_after_the_session_is_cleared(tokenizer):
    keras.backend.clear_session()
    dataset = tf.data.Dataset.from_tensors(FOREIGN).map(tokenizer.encode)
    assert next(iter(dataset)).to_list() == tokenizer.encode(FOREIGN).to_list()
    assert round_trip(tokenizer, FOREIGN) == FOREIGN


def test_another_process_gives_the_same_tokenizer(tokenizer, tmp_path):
    code = (
        "from keras_vqem.text import SentencePieceTokenizer, numbers\n"
        "lines = [line for pair in numbers.pairs(500) for line in pair]\n"
        f"SentencePieceTokenizer.train(lines, 400).save({str(tmp_path / 'other')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    tokenizer.save(tmp_path / "this")
    assert (tmp_path / "other").read_bytes() == (tmp_path / "this").read_bytes()


def test_a_sample_of_the_lines(tokenizer):
    sample = [
        SentencePieceTokenizer.train(LINES, 340, max_lines=200, seed=seed)
        for seed in (0, 0, 1)
    ]
    first, again, other = (s.encode_lines(LINES) for s in sample)
    assert all(map(np.array_equal, first, again))
    assert not all(map(np.array_equal, first, other))


def test_errors_name_the_remedy(tmp_path):
    for coverage in (0.9, 1.1, float("nan")):
        with pytest.raises(ValueError, match="character_coverage must be from 0.98"):
            SentencePieceTokenizer.train(LINES, 400, character_coverage=coverage)
    with pytest.raises(ValueError, match="too high.*ask for fewer ids or pass more"):
        SentencePieceTokenizer.train(["one two"], 5000)
    with pytest.raises(ValueError, match="ask for more ids"):
        SentencePieceTokenizer.train(LINES, 200)
    with pytest.raises(ValueError, match="no line with text"):
        SentencePieceTokenizer.train(["", " ", "\udcff"], 400)
    with pytest.raises(ValueError, match=r"Pass a list such as \[line\]"):
        SentencePieceTokenizer.train("one line", 400)
    with pytest.raises(ValueError, match="no vocabulary yet"):
        SentencePieceTokenizer().encode(["a"])
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        SentencePieceTokenizer(b"something else")
    foreign = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=foreign, vocab_size=100
    )
    with pytest.raises(ValueError, match="they must be <pad>, </s>, <unk>"):
        SentencePieceTokenizer(foreign.getvalue())


def test_a_failed_save_leaves_the_old_file(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError("disk")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk"):
        tokenizer.save(path)
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@keras.saving.register_keras_serializable(package="tests")
class Embedder(keras.Model):
    """A subclassed model that holds a tokenizer."""

    def __init__(self, tokenizer, **kwargs):
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.embedding = keras.layers.Embedding(tokenizer.vocabulary_size, 3)

    def build(self, input_shape):
        self.embedding.build(input_shape)

    def call(self, inputs):
        return self.embedding(inputs)

    def embed(self, texts):
        return self(self.tokenizer.encode(texts).to_tensor())

    def get_config(self):
        tokenizer = keras.saving.serialize_keras_object(self.tokenizer)
        return {**super().get_config(), "tokenizer": tokenizer}

    @classmethod
    def from_config(cls, config):
        tokenizer = keras.saving.deserialize_keras_object(config.pop("tokenizer"))
        return cls(tokenizer, **config)


@pytest.fixture
def model(tokenizer):
    model = Embedder(tokenizer)
    model.build([None, None])
    return model


def test_a_model_takes_its_tokenizer_along(model, tmp_path):
    model.save(tmp_path / "model.keras")
    names = zipfile.ZipFile(tmp_path / "model.keras").namelist()
    assert sum(name.endswith("tokenizer.model") for name in names) == 1
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.tokenizer.vocabulary_size == 400
    texts = LINES[:20] + FOREIGN
    assert round_trip(loaded.tokenizer, texts) == texts
    np.testing.assert_array_equal(loaded.embed(texts), model.embed(texts))
    assert not model.tokenizer.weights and model.tokenizer.built


def test_a_model_with_a_tokenizer_exports(model, tmp_path):
    ids = tf.TensorSpec([None, None], tf.int32)
    model.export(tmp_path / "ids", input_signature=[ids], verbose=False)
    archive = keras.export.ExportArchive()
    archive.track(model)
    texts = tf.TensorSpec([None], tf.string)
    archive.add_endpoint("embed", model.embed, input_signature=[texts])
    archive.write_out(tmp_path / "texts", verbose=False)
    from_ids = tf.saved_model.load(tmp_path / "ids")
    from_texts = tf.saved_model.load(tmp_path / "texts")
    expected = model.embed(FOREIGN)
    encoded = model.tokenizer.encode(FOREIGN).to_tensor()
    np.testing.assert_allclose(from_ids.serve(encoded), expected, atol=1e-6)
    given_texts = from_texts.embed(tf.constant(FOREIGN))
    np.testing.assert_allclose(given_texts, expected, atol=1e-6)


def test_unknown_characters_are_those_spelled_in_bytes(tokenizer):
    assert (
        tokenizer.unknown_characters("ten 😀 past 日本 <0x41> two 😀") == "😀日本<041>"
    )
    assert tokenizer.unknown_characters(LINES[0]) == ""
    assert tokenizer.unknown_characters(" \n") == ""
