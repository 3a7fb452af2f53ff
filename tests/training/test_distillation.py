import signal
import subprocess
import sys

import pytest

from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TranslationData
from keras_vqem.training.distillation import Shard, back_translate, distill, join

SOURCES = [f"line {i}" for i in range(23)]
SETTINGS = {"model": "abc", "num_beams": 4}

# Dies in its third chunk, as a machine does: no handler runs.
DYING = """
import os, signal, sys
from keras_vqem.training.distillation import Shard

calls = []

def translate(texts):
    calls.append(texts)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return [text.upper() for text in texts]

sources = [f"line {i}" for i in range(23)]
Shard(sys.argv[1]).translate(translate, sources, {"model": "abc", "num_beams": 4}, 4)
"""


def upper(texts):
    return [text.upper() for text in texts]


def test_a_killed_shard_goes_on_after_its_complete_lines(tmp_path):
    run = subprocess.run([sys.executable, "-c", DYING, tmp_path], capture_output=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    shard = Shard(tmp_path)
    assert shard.outputs() == upper(SOURCES[:8])
    with open(shard.path, "ab") as file:
        file.write("torn ü".encode()[:-1])
    asked, progress = [], []

    def translate(texts):
        asked.extend(texts)
        return upper(texts)

    shard.translate(translate, SOURCES, SETTINGS, chunk_lines=4, log=progress.append)
    assert asked == SOURCES[8:]
    assert shard.path.read_text() == "".join(f"{s}\n" for s in upper(SOURCES))
    assert "23 of 23 lines" in progress[-1] and "0.0 minutes left" in progress[-1]


@pytest.mark.parametrize("count", [1, 2, 5, 23, 30])
def test_shards_cover_all_lines_in_order(tmp_path, count):
    parts = [Shard(tmp_path, i + 1, count).part(SOURCES) for i in range(count)]
    assert [line for part in parts for line in part] == SOURCES
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_other_settings_or_a_second_process_are_refused(tmp_path):
    shard = Shard(tmp_path)

    def second(texts):
        with pytest.raises(BlockingIOError, match="Another process"):
            Shard(tmp_path).translate(upper, SOURCES, SETTINGS)
        return upper(texts)

    shard.translate(second, SOURCES, SETTINGS, log=lambda line: None)
    with pytest.raises(ValueError, match="num_beams: started with 4, received 1"):
        shard.translate(upper, SOURCES, {**SETTINGS, "num_beams": 1})
    with pytest.raises(ValueError, match="23 lines for 3 sources"):
        shard.translate(upper, SOURCES[:3], SETTINGS)
    shard.settings_path.unlink()
    with pytest.raises(ValueError, match="is missing"):
        shard.translate(upper, SOURCES, SETTINGS)
    with pytest.raises(ValueError, match="0 lines for 23"):
        Shard(tmp_path, 1, 1).path.unlink()
        shard.translate(lambda texts: [], SOURCES, SETTINGS)
    with pytest.raises(ValueError, match="Shard 3/2 does not exist"):
        Shard(tmp_path, 3, 2)


def test_joined_shards_are_data(tmp_path):
    train = ParallelCorpus.from_numbers(300)
    tokenizer = SentencePieceTokenizer.train(train.sources + train.targets, 400)
    val = ParallelCorpus.from_numbers(5, split="validation")
    splits = {"train": train, "val": val}
    data = TranslationData.create(tmp_path / "data", "en", "de", tokenizer, splits)
    output = tmp_path / "distilled"

    def translate(texts):
        # Nothing for some, and line breaks for others.
        return ["" if "one" in text else f"{text}\nend" for text in texts]

    more = ["more", "one more", " ", "more"]
    lines = train.sources + more
    for number in (3, 1, 2):
        assert join(lines, output, 3) is None
        Shard(output, number, 3).translate(
            translate, lines, SETTINGS, log=lambda line: None
        )
    translations = join(lines, output, 3)
    made = distill(data, output, translations, more)
    expected = [
        target if "one" in source else f"{source} end" for source, target in train
    ]
    # Further lines are cleaned: no empty sides, no repeated pairs.
    assert made.data.corpus("train").targets == [*expected, "more end"]
    assert made.data.corpus("train").sources == [*train.sources, "more"]
    assert list(made.data.corpus("val")) == list(val)
    assert made.lines == 301 and made.kept == sum("one" in s for s in train.sources) > 0
    # Two processes may end at once, and both join.
    assert distill(data, output, translations, more).kept == made.kept
    with pytest.raises(FileExistsError):
        distill(data, output, translations[: len(train)])

    Shard(output, 1, 3).settings_path.write_text("{}")
    with pytest.raises(ValueError, match="different settings"):
        join(lines, output, 3)


def test_back_translated_pairs_join_the_weighted_ones(tmp_path):
    train = ParallelCorpus.from_numbers(300)
    tokenizer = SentencePieceTokenizer.train(train.sources + train.targets, 400)
    splits = {"train": train, "val": train}
    data = TranslationData.create(tmp_path / "data", "en", "de", tokenizer, splits)
    targets = ["zwei", "drei", "zwei"]
    made = back_translate(data, tmp_path / "more", ["two", "", "two"], targets, 2.0)
    assert list(made.data.corpus("train")) == [*train, *train, ("two", "zwei")]
    assert made.lines == 601 and made.kept == 600
    assert list(made.data.corpus("val")) == list(train)
    made = back_translate(data, tmp_path / "tagged", ["two"], ["zwei"], tag="#")
    assert list(made.data.corpus("train")) == [*train, ("# two", "zwei")]
