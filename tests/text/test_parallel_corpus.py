"""Corpora from every kind of place, byte for byte, and what cleaning removes."""

import gzip
import os

import pytest
import tensorflow_datasets as tfds

from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, clean, numbers


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_lines_end_with_line_feeds_alone(tmp_path):
    odd = "a\u2028b\u2029c\x0bd\x0ce\x85f\rg"
    source = write(tmp_path / "source", f"{odd}\r\n\nlast".encode())
    target = write(tmp_path / "target.gz", b"eins\nzwei \nx\n")
    corpus = ParallelCorpus.from_files(source, str(target))
    assert corpus.sources == [odd, "", "last"]
    assert corpus.targets == ["eins", "zwei ", "x"]
    assert list(corpus) == list(zip(corpus.sources, corpus.targets, strict=True))
    assert len(corpus) == 3


@pytest.mark.parametrize("name", ["source", "source.gz"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(name, tmp_path):
    source = write(tmp_path / name, "\ufeffone\n\ufefftwo\n".encode())
    target = write(tmp_path / "target", b"eins\nzwei\n")
    assert ParallelCorpus.from_files(source, target).sources == ["one", "\ufefftwo"]


def test_files_must_match(tmp_path):
    source = write(tmp_path / "s.en", b"1\n2\n3\n")
    target = write(tmp_path / "t.de", b"1\n2\n")
    with pytest.raises(ValueError, match=r"s\.en has 3 lines, .*t\.de has 2"):
        ParallelCorpus.from_files(source, target)


def test_save_writes_what_was_read(tmp_path):
    content = "one\n\nÄ\u2028😀\n".encode(), b"eins\nnot UTF-8: \xff\xc3\ndrei\n"
    paths = [write(tmp_path / f"{i}", content[i]) for i in range(2)]
    corpus = ParallelCorpus.from_files(*paths)
    saved = corpus.save(tmp_path / "new" / "folder", "train", ("en", "de"))
    assert [path.name for path in saved] == ["train.en", "train.de"]
    assert tuple(path.read_bytes() for path in saved) == content
    again = ParallelCorpus.from_files(*saved)
    assert list(again) == list(corpus)
    assert len(list(saved[0].parent.iterdir())) == 2


def test_a_failed_save_leaves_the_old_files(tmp_path, monkeypatch):
    old = ParallelCorpus(["a"], ["b"]).save(tmp_path, "train")

    def fail(*_):
        raise OSError("disk")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk"):
        ParallelCorpus(["new"], ["new"]).save(tmp_path, "train")
    assert [path.read_bytes() for path in old] == [b"a\n", b"b\n"]
    assert sorted(tmp_path.iterdir()) == sorted(old)


@pytest.mark.parametrize("text", ["two\nlines", "return\r", "\ud800"])
def test_sentences_that_do_not_fit_in_a_line(text, tmp_path):
    with pytest.raises(ValueError, match="Sentence 2 holds a l"):
        ParallelCorpus(["a", text], ["a", "b"]).save(tmp_path, "train")
    assert not list(tmp_path.iterdir())


def test_lists_are_checked():
    corpus = ParallelCorpus.from_lists(("a", "b"), ["c", "d"])
    assert (corpus.sources, corpus.targets) == (["a", "b"], ["c", "d"])
    with pytest.raises(ValueError, match="2 sources but 1 targets"):
        ParallelCorpus(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="must be of type str, not bytes"):
        ParallelCorpus(["a"], [b"c"])


def test_numbers():
    corpus = ParallelCorpus.from_numbers(20, seed=5, split="validation")
    assert list(corpus) == numbers.pairs(20, seed=5, split="validation")


class TinyTranslate(tfds.core.GeneratorBasedBuilder):
    """A data set of two languages, as the WMT sets of TensorFlow Datasets are."""

    VERSION = tfds.core.Version("1.0.0")
    PAIRS = [("ein Haus", "a house"), ("Straße\u2028", "street"), ("", "nothing")]

    def _info(self):
        languages = tfds.features.Translation(languages=("de", "en"))
        return tfds.core.DatasetInfo(builder=self, features=languages)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for number, (german, english) in enumerate(self.PAIRS):
            yield number, {"de": german, "en": english}


def test_tensorflow_datasets(tmp_path):
    with pytest.raises(FileNotFoundError, match="tfds build tiny_translate --data_dir"):
        ParallelCorpus.from_tfds("tiny_translate", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match="tfds build no_such_set"):
        ParallelCorpus.from_tfds("no_such_set", data_dir=tmp_path)
    TinyTranslate(data_dir=tmp_path).download_and_prepare()
    corpus = ParallelCorpus.from_tfds("tiny_translate", data_dir=tmp_path)
    assert sorted(zip(corpus.targets, corpus.sources, strict=True)) == sorted(
        TinyTranslate.PAIRS
    )
    with pytest.raises(ValueError, match=r"languages \['de', 'en'\]"):
        ParallelCorpus.from_tfds(
            "tiny_translate", source_language="fr", data_dir=tmp_path
        )


def test_cleaning_removes_each_pair_for_its_first_reason(tmp_path):
    pairs = [
        (b"one", b"eins"),
        (b"\xff", b""),
        (b"two", " \u2003".encode()),
        (b"x" * 31, b"y" * 30),
        (b"a", b"b" * 10),
        (b"ab", b"b" * 18),
        (b"one", b"eins"),
        (b"one", b"ein"),
        (b"", b"z"),
    ]
    paths = [
        write(tmp_path / f"{i}", b"".join(pair[i] + b"\n" for pair in pairs))
        for i in range(2)
    ]
    corpus = ParallelCorpus.from_files(*paths)
    cleaned, summary = clean(corpus, max_characters=30)
    assert list(cleaned) == [("one", "eins"), ("ab", "b" * 18), ("one", "ein")]
    assert summary.removed == {
        "not UTF-8": [2],
        "empty": [3, 9],
        "too long": [4],
        "length ratio": [5],
        "duplicate": [7],
    }
    assert (summary.total, summary.kept) == (9, 3)
    assert len(corpus) == 9
    rows = [line.split() for line in str(summary).splitlines()]
    assert rows[0] == ["pairs", "9"] and rows[-1] == ["kept", "3"]
    assert rows[2] == ["empty", "2", "lines", "3,", "9"]
    everything = clean(corpus, max_ratio=None, remove_duplicates=False)[0]
    assert len(everything) == 6


def test_duplicates_have_both_sides_alike():
    pairs = [("ab", "c"), ("a", "bc"), ("ab", "c"), ("1 a", "b"), ("a", "bc")] * 2
    cleaned, summary = clean(ParallelCorpus(*zip(*pairs, strict=True)))
    assert list(cleaned) == [("ab", "c"), ("a", "bc"), ("1 a", "b")]
    assert summary.removed["duplicate"] == [3, 5, 6, 7, 8, 9, 10]


def test_cleaning_by_tokens(monkeypatch):
    monkeypatch.setattr("keras_vqem.text.sentencepiece_tokenizer.CHUNK_SIZE", 7)
    corpus = ParallelCorpus.from_numbers(300)
    tokenizer = SentencePieceTokenizer.train(corpus.sources + corpus.targets, 400)
    lengths = [
        max(len(tokenizer.encode_lines([text])[0]) for text in pair) for pair in corpus
    ]
    cleaned, summary = clean(corpus, tokenizer=tokenizer, max_tokens=12)
    expected = [p for p, n in zip(corpus, lengths, strict=True) if n <= 12]
    assert list(cleaned) == expected and 0 < len(expected) < 300
    assert summary.kept == len(expected)
    nothing, summary = clean(corpus, max_characters=1)
    assert len(nothing) == summary.kept == 0
    assert str(summary).count("...") == 1
    with pytest.raises(ValueError, match="Pass tokenizer="):
        clean(corpus, max_tokens=12)
