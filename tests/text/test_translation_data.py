import os
import shutil

import numpy as np
import pytest

from keras_vqem.text import (
    ParallelCorpus,
    SentencePieceTokenizer,
    TokenIds,
    TranslationData,
)


@pytest.fixture(scope="module")
def corpus():
    return ParallelCorpus.from_numbers(300)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return SentencePieceTokenizer.train(corpus.sources + corpus.targets, 400)


def test_what_is_written_is_read(tmp_path, corpus, tokenizer):
    val = ParallelCorpus(["", " odd\r spaces "], ["leer", ""])
    folder = tmp_path / "new" / "data"
    splits = {"train": corpus, "val": val}
    TranslationData.create(folder, "en", "de", tokenizer, splits)
    data = TranslationData(folder)
    assert (data.source, data.target, data.splits) == ("en", "de", ["train", "val"])
    assert list(data.corpus("train")) == list(corpus)
    assert list(data.corpus("val")) == list(val)
    batches = data.batches("train", 2048, max_shapes=1, shuffle=False)
    rows = np.concatenate([batch["source_ids"] for batch in batches.epoch(0)])
    texts = data.tokenizer.decode(rows[: len(corpus)]).numpy()
    assert [text.decode() for text in texts] == corpus.sources
    assert sorted(path.name for path in folder.iterdir()) == [
        "data.json",
        "ids",
        "tokenizer.model",
        "train.de",
        "train.en",
        "val.de",
        "val.en",
    ]
    with pytest.raises(FileNotFoundError, match="no split 'test'; it has train, val"):
        data.corpus("test")
    with pytest.raises(FileExistsError, match="already"):
        TranslationData.create(folder, "en", "de", tokenizer, splits)


def test_a_folder_that_was_not_finished_is_no_data(tmp_path, corpus, tokenizer):
    broken = ParallelCorpus(["two\nlines"], ["zwei"])
    splits = {"train": corpus, "val": broken}
    with pytest.raises(ValueError, match="line break"):
        TranslationData.create(tmp_path, "en", "de", tokenizer, splits)
    with pytest.raises(FileNotFoundError, match="prepare_translation.py"):
        TranslationData(tmp_path)
    with pytest.raises(ValueError, match="Both languages are 'en'"):
        TranslationData.create(tmp_path, "en", "en", tokenizer, {"train": corpus})


@pytest.fixture
def data(tmp_path, corpus, tokenizer):
    folder = tmp_path / "data"
    return TranslationData.create(folder, "en", "de", tokenizer, {"train": corpus})


def check(data, corpus, capsys, said):
    """Checks the ids of the training set against those of a corpus."""
    for side, lines in zip(
        data.ids("train"), (corpus.sources, corpus.targets), strict=True
    ):
        expected = data.tokenizer.encode_lines(lines)
        assert len(side) == len(expected)
        for found, ids in zip(side, expected, strict=True):
            np.testing.assert_array_equal(found, ids)
    printed = capsys.readouterr().out
    assert printed.count("tokenizing, once") == said
    return data.ids("train"), capsys.readouterr().out


def test_ids_are_memory_maps_that_are_made_once(data, corpus, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(SentencePieceTokenizer, "encode_chunks")
        ids = data.ids("train")
        batches = data.batches("train", 2048)
    for side in ids:
        assert isinstance(side.ids, np.memmap) and side.ids.dtype == np.uint16
    assert batches.steps_per_epoch > 0
    check(data, corpus, capsys, said=0)


def test_a_folder_of_an_earlier_version_gets_its_ids(data, corpus, capsys):
    before = sorted(path.name for path in (data.folder / "ids").iterdir())
    shutil.rmtree(data.folder / "ids")
    data = TranslationData(data.folder)
    ids, said = check(data, corpus, capsys, said=2)
    assert isinstance(ids[0].ids, np.memmap) and said == ""
    assert sorted(path.name for path in (data.folder / "ids").iterdir()) == before


def test_ids_of_another_text_or_tokenizer_are_not_used(data, corpus, capsys):
    # The same size and the same time: only the content tells.
    path = data.folder / "train.en"
    stat = path.stat()
    lines = [corpus.sources[0][::-1], *corpus.sources[1:]]
    changed = ParallelCorpus(lines, corpus.targets)
    changed.save(data.folder, "train", ("en", "de"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    check(data, changed, capsys, said=1)

    other = SentencePieceTokenizer.train(corpus.sources + corpus.targets, 350)
    other.save(data.folder / "tokenizer.model")
    data = TranslationData(data.folder)
    assert data.tokenizer.vocabulary_size == 350
    check(data, changed, capsys, said=2)
    # What no text belongs to is removed.
    assert len(list((data.folder / "ids").iterdir())) == 2


def test_a_text_that_changes_while_it_is_tokenized_has_no_ids(data, monkeypatch):
    shutil.rmtree(data.folder / "ids")
    encode = SentencePieceTokenizer.encode

    def edit_and_encode(tokenizer, texts):
        with open(data.folder / "train.en", "a") as file:
            file.write("one more\n")
        return encode(tokenizer, texts)

    monkeypatch.setattr(SentencePieceTokenizer, "encode", edit_and_encode)
    with pytest.raises(ValueError, match="train.en has changed .* Start again"):
        data.ids("train")
    assert not list((data.folder / "ids").iterdir())


def test_a_copy_of_a_folder_keeps_its_ids(data, corpus, capsys, tmp_path):
    shutil.copytree(data.folder, tmp_path / "copy", copy_function=shutil.copyfile)
    check(TranslationData(tmp_path / "copy"), corpus, capsys, said=0)


@pytest.mark.parametrize("written", [0, 1, 130])
def test_ids_that_are_not_complete_are_made_again(data, corpus, capsys, written):
    for path in (data.folder / "ids").iterdir():
        path.write_bytes(path.read_bytes()[:written])
    check(data, corpus, capsys, said=2)


def test_a_writer_that_was_stopped_leaves_no_ids(data, corpus, capsys, monkeypatch):
    shutil.rmtree(data.folder / "ids")

    class Stopped(BaseException):
        pass

    def stop(*_):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stop)
        with pytest.raises(Stopped):
            data.ids("train")
    assert not list((data.folder / "ids").glob("*.npy"))
    # A process that is killed cannot even remove the part that it has written.
    (data.folder / "ids" / ".train.en.0123456789abcdef.1.partial.npy").write_bytes(b"")
    check(data, corpus, capsys, said=3)


def test_ids_stay_in_memory_if_the_folder_cannot_be_written(data, corpus, capsys):
    shutil.rmtree(data.folder / "ids")
    (data.folder / "ids").write_text("not a folder")
    ids, said = check(data, corpus, capsys, said=2)
    assert not isinstance(ids[0].ids, np.memmap)
    assert "train.en are not kept" in said and "writable once" in said
    expected = TokenIds.from_sentences(data.tokenizer.encode_lines(corpus.sources))
    np.testing.assert_array_equal(ids[0].ids, expected.ids)
    np.testing.assert_array_equal(ids[0].offsets, expected.offsets)


def test_sides_of_different_length_are_named(data):
    with open(data.folder / "train.de", "a") as file:
        file.write("one more\n")
    with pytest.raises(ValueError, match=r"train.en has 300 lines, .*train.de has 301"):
        data.batches("train", 2048)
    with pytest.raises(FileNotFoundError, match="no split 'val'; it has train"):
        data.batches("val", 2048)


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "data.json is no complete JSON"), ("[]", "data.json must name"), ("{}", "")],
)
def test_a_damaged_description_is_named(data, content, words):
    (data.folder / "data.json").write_text(content)
    with pytest.raises(ValueError, match=words or "`source` and `target`"):
        TranslationData(data.folder)
