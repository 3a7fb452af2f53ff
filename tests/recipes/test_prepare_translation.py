import gzip
from collections import Counter

import pytest

from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TranslationData


@pytest.fixture(scope="module")
def main(recipe):
    return recipe("prepare_translation").main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files with faults in all sets; sources gzipped, last lines without line ends."""
    folder = tmp_path_factory.mktemp("files")
    pairs = list(ParallelCorpus.from_numbers(300))
    faults = [("", "leer"), pairs[0], ("one", "x" * 100), ("two\r", "zwei")]
    arguments = []
    for split, lines in [
        ("train", pairs + faults),
        ("val", pairs[:3] + faults[:3]),
        ("test", pairs[3:6] + faults[:3]),
    ]:
        source, target = folder / f"{split}.en.gz", folder / f"{split}.de"
        sources, targets = zip(*lines, strict=True)
        source.write_bytes(gzip.compress("\n".join(sources).encode()))
        target.write_text("\n".join(targets))
        arguments += [
            f"--{split}-source",
            str(source),
            f"--{split}-target",
            str(target),
        ]
    return pairs, faults, arguments


def test_only_the_training_set_is_cleaned(main, files, tmp_path, capsys):
    pairs, faults, arguments = files
    output = tmp_path / "data"
    main(
        [
            *arguments,
            "--output",
            str(output),
            "--vocabulary",
            "400",
            "--max-shapes",
            "2",
        ]
    )
    data = TranslationData(output)
    assert data.splits == ["test", "train", "val"]
    assert list(data.corpus("train")) == [*pairs, ("two", "zwei")]
    assert list(data.corpus("val")) == pairs[:3] + faults[:3]
    assert list(data.corpus("test")) == pairs[3:6] + faults[:3]
    assert data.tokenizer.vocabulary_size == 400
    printed = capsys.readouterr().out
    for row in ("pairs 304", "empty 1 lines 301", "duplicate 1 lines 302", "kept 301"):
        assert row in " ".join(printed.split())
    assert "train 301, val 6, test 6 pairs, 400 ids" in printed
    batches = data.batches("train", 2048, max_shapes=2, length_multiple=1)
    assert printed.endswith(batches.summary() + "\n")

    # The same folder is not written twice, and its vocabulary serves another.
    with pytest.raises(SystemExit):
        main([*arguments, "--output", str(output)])
    assert "already holds prepared data" in capsys.readouterr().err
    again = [
        "--output",
        str(tmp_path / "again"),
        "--max-tokens",
        "12",
        "--max-shapes",
        "1",
    ]
    main([*again, "--numbers", "50", "--tokenizer", str(output / "tokenizer.model")])
    other = TranslationData(tmp_path / "again")
    proto = (output / "tokenizer.model").read_bytes()
    assert (tmp_path / "again" / "tokenizer.model").read_bytes() == proto
    lengths = [
        max(map(len, data.tokenizer.encode_lines(pair)))
        for pair in ParallelCorpus.from_numbers(50)
    ]
    assert 0 < len(other.corpus("train")) == sum(n <= 12 for n in lengths) < 50
    assert len(other.corpus("val")) == len(other.corpus("test")) == 50


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "choose one of"),
        (["--numbers", "5", "--tfds", "x"], "choose one of"),
        (["--train-source", __file__], "go together"),
        (["--train-source", __file__, "--train-target", __file__], "--val-source"),
        (["--train-source", "no", "--train-target", __file__], "no file no"),
    ],
)
def test_a_wrong_choice_of_pairs_is_explained(main, tmp_path, capsys, arguments, words):
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path), *arguments])
    assert words in capsys.readouterr().err


def test_a_tensorflow_data_set_is_read_split_by_split(recipe, tmp_path, monkeypatch):
    def from_tfds(name, split, source_language, target_language, data_dir):
        assert (name, data_dir) == ("wmt14_translate/de-en", tmp_path)
        return f"{split}: {source_language} to {target_language}"

    monkeypatch.setattr(ParallelCorpus, "from_tfds", from_tfds)
    module = recipe("prepare_translation")
    command = ["--tfds", "wmt14_translate/de-en", "--data", str(tmp_path)]
    command += ["--output", str(tmp_path), "--languages", "de", "en"]
    assert module.read(module.parse(command)) == {
        "train": ["train: de to en"],
        "val": ["validation: de to en"],
        "test": ["test: de to en"],
    }


def test_training_files_are_mixed_by_weights(main, tmp_path, capsys):
    corpora = [ParallelCorpus.from_numbers(200, seed=seed) for seed in (0, 1)]
    paths = [c.save(tmp_path, f"c{i}", ("en", "de")) for i, c in enumerate(corpora)]
    sides = [[str(path[side]) for path in paths] for side in (0, 1)]
    command = ["--val-source", sides[0][0], "--val-target", sides[1][0]]
    command += ["--vocabulary", "400", "--max-shapes", "2"]
    command += ["--train-source", *sides[0], "--train-target"]
    output = ["--output", str(tmp_path / "data")]
    main([*command, *sides[1], "--weights", "0.5", "2.25", *output])
    printed = capsys.readouterr().out
    assert f"Cleaning of the training set, {sides[0][1]}" in printed
    found = Counter(TranslationData(tmp_path / "data").corpus("train"))
    first, second = map(set, corpora)
    only_first, only_second = first - second, second - first
    assert set(found) <= first | second
    assert {found[pair] for pair in only_first} == {0, 1}
    assert {found[pair] for pair in only_second} == {2, 3}
    assert sum(found.values()) == 100 + 450
    for arguments, words in [
        ([*sides[1], "--weights", "1"], "give one per file"),
        (sides[1][:1], "in the same order"),
    ]:
        with pytest.raises(SystemExit):
            main([*command, *arguments, "--output", str(tmp_path / "wrong")])
        assert words in capsys.readouterr().err


def test_how_the_vocabulary_is_learned_can_be_chosen(main, tmp_path, monkeypatch):
    learned = []
    train = SentencePieceTokenizer.train

    def remember(lines, vocabulary_size, **arguments):
        learned.append(arguments)
        return train(lines, vocabulary_size, **arguments)

    monkeypatch.setattr(SentencePieceTokenizer, "train", remember)
    command = ["--numbers", "300", "--vocabulary", "400", "--max-shapes", "1"]
    command += ["--character-coverage", "0.999", "--vocabulary-lines", "200"]
    main([*command, "--output", str(tmp_path / "data")])
    assert learned == [{"character_coverage": 0.999, "max_lines": 200}]
