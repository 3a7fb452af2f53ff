"""Flat ids against lists of arrays, from memory and from files."""

import numpy as np
import pytest

from keras_vqem.text import SentencePieceTokenizer, TokenIds


@pytest.mark.parametrize("vocabulary_size", [50, 2**16, 2**16 + 1])
def test_what_is_saved_is_loaded(rng, tmp_path, vocabulary_size, monkeypatch):
    monkeypatch.setattr("keras_vqem.text.token_ids.CHUNK", 13)
    sentences = [
        np.append(rng.integers(2, vocabulary_size, n), 1)
        for n in rng.integers(0, 9, 100)
    ]
    sentences[3][0] = vocabulary_size - 1
    path = tmp_path / "ids.npy"
    # Sentences come in parts of several.
    parts = [np.concatenate(sentences[:30]), np.concatenate(sentences[30:])]
    TokenIds.save(path, parts, vocabulary_size)
    found = TokenIds.load(path)
    assert isinstance(found.ids, np.memmap)
    assert found.ids.dtype == (np.uint16 if vocabulary_size <= 2**16 else np.int32)
    same = TokenIds.from_sentences(sentences)
    for ids in (found, same):
        assert len(ids) == 100 and ids.lengths.tolist() == list(map(len, sentences))
        for place, sentence in enumerate(sentences):
            np.testing.assert_array_equal(ids[place], sentence)
        np.testing.assert_array_equal(ids[-1], sentences[-1])
        with pytest.raises(IndexError):
            ids[100]
        padded = ids.padded([99, 0], (3, 10))
        assert padded.dtype == np.int32 and padded.shape == (3, 10)
        for row, place in ((0, 99), (1, 0)):
            length = len(sentences[place])
            np.testing.assert_array_equal(padded[row, :length], sentences[place])
            assert not padded[row, length:].any()
        assert not padded[2].any()
    # NumPy alone can read the file.
    np.testing.assert_array_equal(np.load(path), np.concatenate(sentences))


def test_no_sentence_is_no_trouble(tmp_path):
    TokenIds.save(tmp_path / "ids.npy", [], 50)
    for ids in (TokenIds.load(tmp_path / "ids.npy"), TokenIds.from_sentences([])):
        assert len(ids) == 0 and ids.lengths.tolist() == []


def test_only_complete_sentences():
    with pytest.raises(ValueError, match="do not end in the end symbol, 1"):
        TokenIds.from_flat(np.array([3, 1, 4]))
    with pytest.raises(ValueError, match="contains the id 0"):
        TokenIds.from_sentences([[3, 0, 1]])


def test_the_end_symbol_is_at_the_end_only():
    lines = ["</s> one </s>two</s>", "", " ", "<s>\x01\x00</s>", "<0x01>"]
    tokenizer = SentencePieceTokenizer.train(["one two </s> <s>"] * 9, 268)
    for ids in tokenizer.encode_lines(lines):
        assert (ids == tokenizer.eos_id).tolist() == [False] * (len(ids) - 1) + [True]
