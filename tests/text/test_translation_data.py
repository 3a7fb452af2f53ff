import numpy as np
import pytest

from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TranslationData


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
