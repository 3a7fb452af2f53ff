"""Corpora in files do what corpora in lists do."""

import gzip

import pytest

from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, clean
from keras_vqem.text.lines import one_line
from keras_vqem.text.stored_corpus import StoredCorpus


@pytest.fixture
def paths(tmp_path):
    pairs = [
        *ParallelCorpus.from_numbers(200),
        ("", "leer"),
        ("a\rb\u2028", "return"),
        *ParallelCorpus.from_numbers(40),
        ("x", "y" * 50),
    ]
    sources, targets = ("\n".join(side).encode() for side in zip(*pairs, strict=True))
    (tmp_path / "s.gz").write_bytes(gzip.compress(sources + b"\nnot UTF-8 \xff\n"))
    (tmp_path / "t").write_bytes(targets + b"\r\nlast")
    return tmp_path / "s.gz", tmp_path / "t"


@pytest.mark.parametrize(
    "change",
    [
        lambda corpus: corpus,
        lambda corpus: corpus.take([3, 5, 243, 0, 0, 7]),
        lambda corpus: corpus.take([]),
        lambda corpus: corpus.map(one_line).map(str.upper),
        lambda corpus: corpus.repeated(2.5),
        lambda corpus: corpus + corpus.map(one_line).take(range(5)),
        lambda corpus: (corpus + corpus.map(str.upper)).take(
            [9, 300, 400, 2, 401, 244]
        ),
        lambda corpus: clean(corpus)[0].repeated(0.5, seed=3),
    ],
)
def test_the_same_pairs_as_in_memory(paths, tmp_path, change):
    expected, found = (
        change(kind(*paths)) for kind in (ParallelCorpus.from_files, StoredCorpus)
    )
    assert isinstance(found, StoredCorpus) and not isinstance(found.sources, list)
    assert len(found) == len(expected)
    for _ in range(2):
        assert list(found) == list(expected)
    sides = zip(expected.save(tmp_path, "e"), found.save(tmp_path, "f"), strict=True)
    for side, same in sides:
        assert side.read_bytes() == same.read_bytes()


def test_cleaning_and_learning_a_vocabulary(paths):
    corpora = [ParallelCorpus.from_files(*paths), StoredCorpus(*paths)]
    summaries = [clean(corpus)[1] for corpus in corpora]
    assert summaries[0] == summaries[1]
    assert all(summaries[0].removed[r] for r in ("not UTF-8", "empty", "duplicate"))
    protos = []
    for corpus in corpora:
        lines = corpus.sources + corpus.targets
        for given in (lines, iter(lines)):
            tokenizer = SentencePieceTokenizer.train(given, 340, max_lines=150)
            protos.append(tokenizer.sha256)
    assert len(set(protos)) == 1
    counts = [clean(corpus, tokenizer, max_tokens=12)[1] for corpus in corpora]
    assert counts[0] == counts[1] and counts[0].removed["too long"]


def test_files_must_match(tmp_path):
    (tmp_path / "s").write_bytes(b"1\n2\n3")
    (tmp_path / "t").write_bytes(b"1\n2\n")
    with pytest.raises(ValueError, match="s has 3 lines, .*t has 2"):
        StoredCorpus(tmp_path / "s", tmp_path / "t")
    for content in (b"", b"\n", b"a", b"a\n\nb\n"):
        for name in "st":
            (tmp_path / name).write_bytes(content)
        corpus = StoredCorpus(tmp_path / "s", tmp_path / "t")
        same = ParallelCorpus.from_files(tmp_path / "s", tmp_path / "t")
        assert list(corpus) == list(same) and len(corpus) == len(same)
