"""`keras-vqem translate`: sentences, scores, warnings and options of decoding."""

import functools
import io
import math
import sys

import pytest

from keras_vqem import zoo
from keras_vqem.command import answers, decoding, demo, main, translate
from keras_vqem.models import (
    CTCTranslator,
    FertilityNAT,
    LatentNMT,
    RefinementNAT,
    Transformer,
    loading,
)
from keras_vqem.text import SplitText
from tests.command.test_export import failed
from tests.models.small import exportable

CAPTION = "A man is riding a bicycle down the street."


LONG = f"{demo.SENTENCES[-1][:-1]}, and her two children are eating ice cream."
TEACHER, LATENT = "multi30k_en_de_teacher", "multi30k_en_de_em"
BEAMS = "--num-beams 3 --blank-bias 9 --length-bonus 0.5 --top-k 4".split()


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """Presets are loaded, and their graphs traced, once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("load_translator", "load_model"):
            load = functools.lru_cache(getattr(loading, name))
            patch.setattr(loading, name, load)
        yield


@pytest.fixture(scope="module")
def default():
    return loading.load_translator(translate.DEFAULT)


def run(capfd, *arguments):
    main.main(["translate", *arguments])
    return capfd.readouterr()


def test_the_readme_examples_are_translated_without_a_word(capfd):
    found = run(capfd, "A dog runs.", "A dog.", CAPTION)
    assert found.out.splitlines() == [
        "Ein Hund rennt.",
        "Ein Hund.",
        "Ein Mann fährt auf einem Fahrrad die Straße entlang.",
    ]
    assert "warning" not in found.err


def test_scores_and_several_sentences(default, capfd):
    text = f"{CAPTION} A dog runs."
    [line] = run(capfd, "--scores", text).out.splitlines()
    score, translation = line.split("\t")
    texts, scores = default.translate([CAPTION, "A dog runs."], return_scores=True)
    assert translation == " ".join(texts)
    assert float(score) == pytest.approx(min(scores), abs=1e-3)
    found = default.score([CAPTION, "A dog runs."], texts)
    assert [s.per_token for s in found] == pytest.approx(scores, abs=1e-3)


@pytest.mark.parametrize(
    "text, words",
    [
        (
            "Parliament adopted the resolution by 312 votes to 47.",
            "is probably wrong: its score",
        ),
        ("a man and " * 500, "very long and was translated in parts"),
    ],
)
def test_text_that_the_model_does_not_know_is_warned_of(text, words, capfd):
    found = run(capfd, text)
    assert found.out.count("\n") == 1 and found.out.strip()
    assert words in found.err and text[:20] in found.err


def test_a_line_of_a_megabyte_costs_no_other_line(tmp_path, capfd):
    path = tmp_path / "lines"
    path.write_text(f"\ufeffA dog runs.\n{'xyz' * 350_000}\nA dog.\n")
    found = run(capfd, "--file", str(path))
    first, long, last = found.out.splitlines()
    assert (first, last) == ("Ein Hund rennt.", "Ein Hund.")
    assert len(long) < 10_000
    assert '"xyzxyz' in found.err and "more than 256 tokens" in found.err
    assert "UserWarning" not in found.err


def test_warnings_are_few(capfd):
    found = run(capfd, *["Parliament adopted a resolution."] * 20)
    assert found.err.count("is probably wrong") <= translate.WARNINGS
    assert "15 more like these" in found.err


def test_what_stays_as_it_is(capfd):
    text = "A dog runs 🐕.\n\n- “A man.”  See https://a.org/b.c, or me@x.de!\n\n日本"
    found = run(capfd, text, "A dog.")
    lines = found.out.split("\n")
    assert lines[0] == "Ein Hund rennt 🐕." and lines[1] == lines[3] == ""
    assert lines[2].startswith("- ") and lines[2].endswith(" me@x.de!")
    assert "https://a.org/b.c, " in lines[2]
    assert lines[4:] == ["日本", "Ein Hund.", ""]
    assert "note" not in found.err
    told = run(capfd, "--verbose", text).err
    assert "copied as it is: 🐕 https://a.org/b.c me@x.de 日本" in told


def test_numbers_that_are_lost_are_copied(capfd):
    found = run(capfd, "--verbose", "Man 4711 is riding a bicycle.")
    assert "4711" in found.out
    assert "as the model lost it: 4711" in found.err


def test_bytes_that_are_not_text(tmp_path, capfd):
    path = tmp_path / "lines"
    path.write_bytes("A dog runs.\nA man sits in a caf\xe9.\n".encode("latin-1"))
    found = run(capfd, "--file", str(path))
    assert found.out.splitlines()[0] == "Ein Hund rennt."
    assert "caf\ufffd" in found.out and "iconv -f LATIN1" in found.err
    path.write_bytes("A dog runs.\n".encode("utf-16"))
    said = failed(["translate", "--file", str(path)], capfd)
    assert "line 1, holds zero bytes" in said and "iconv -f UTF-16" in said


def test_a_file_is_translated_to_a_file(tmp_path, capfd):
    source, output = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("A dog runs.\n\nA dog.\n")
    found = run(capfd, "--file", str(source), "--output", str(output))
    assert output.read_text() == "Ein Hund rennt.\n\nEin Hund.\n"
    assert found.out == "" and "a.de: 3 lines" in found.err
    for arguments, words in [
        (["--output", str(output)], "--output is for the translations of --file"),
        (["--file", str(source), "--output", str(source)], "both read and written"),
        (["--file", str(source), "--output", str(tmp_path)], "is a folder"),
    ]:
        assert words in failed(["translate", *arguments], capfd)


def test_a_forced_beginning_is_that_of_the_first_sentence():
    model = exportable("Transformer")
    sentences = ["twenty-one", "five"]
    texts, prefix = ["\n".join(sentences), "🐕"], "drei"
    first, second = answers.answer_texts(model, texts, target_prefix=prefix)
    expected = model.translate(sentences, target_prefix=[prefix, ""])
    assert first.translation == "\n".join(expected)
    assert first.translation.startswith(prefix)
    assert second.translation == "🐕"


def test_options_of_decoding_reach_the_model(capfd):
    latent = loading.load_translator(LATENT)
    model = ["--model", LATENT, LONG]
    rescored = run(capfd, *model, "--num-beams", "3", "--rescorer", TEACHER)
    options = {"num_beams": 3, "rescorer": loading.load_model(TEACHER, Transformer)}
    assert rescored.out.strip() == latent.translate([LONG], **options)[0]
    arguments = ["--num-beams", "1", "--no-drop-repeats", "--max-codes", "1"]
    options = {"num_beams": 1, "drop_repeats": False, "max_codes": 1}
    more = ["--length-penalty", "1", "--min-codes", "1"]
    found = run(capfd, *model, *arguments, *more)
    assert found.out.strip() == latent.translate([LONG], **options)[0]
    assert found.out != rescored.out


def test_several_translations_are_separated_by_tabs(capfd):
    teacher = loading.load_translator(TEACHER)
    ways = [
        ("--num-beams 3", {"num_beams": 3}),
        (
            "--num-beams 1 --temperature 0.7 --seed 5",
            {"num_beams": 1, "temperature": 0.7, "seed": 5},
        ),
    ]
    for flags, options in ways:
        flags = ["--model", TEACHER, "--num-return-sequences", "2", *flags.split()]
        found = run(capfd, *flags, "--scores", f"{CAPTION} A dog runs.").out
        fields = found.removesuffix("\n").split("\t")
        texts, scores = teacher.translate(
            [CAPTION, "A dog runs."],
            return_scores=True,
            num_return_sequences=2,
            **options,
        )
        assert fields[1::2] == [" ".join(pair) for pair in zip(*texts, strict=True)]
        lowest = [min(pair) for pair in zip(*scores, strict=True)]
        assert list(map(float, fields[::2])) == pytest.approx(lowest, abs=1e-3)
    # One line in, one line out.
    flags = ["--model", TEACHER, "--num-return-sequences", "2", "--num-beams", "2"]
    lines = run(capfd, *flags, "A dog runs.", " ", "A dog.").out.split("\n")
    assert [line.count("\t") for line in lines] == [1, 0, 1, 0]
    assert lines[0].split("\t")[0] == "Ein Hund rennt."


def test_a_style_or_a_first_code(tmp_path, capfd):
    model = exportable("LatentNMT")
    model.styles = {"formal": 3, "informal": 5}
    model.save_to_preset(tmp_path / "latent")
    arguments = ["--model", str(tmp_path / "latent"), "twenty-one"]
    found = [
        run(capfd, *arguments, *more).out.strip("\n")
        for more in ([], ["--style", "formal"], ["--first-code", "5"])
    ]
    options = [{}, {"style": "formal"}, {"style": "informal"}]
    assert found == [model.translate(["twenty-one"], **o)[0] for o in options]
    assert len(set(found)) == 3
    for more, words in [
        (["--style", "rude"], "has no style 'rude'; it has 'formal', 'informal'"),
        (["--first-code", "8"], "--first-code must be below 8"),
        (["--first-code", "-1"], "--first-code must be at least 0"),
        (["--style", "formal", "--first-code", "1"], "Pass one of them"),
    ]:
        assert words in failed(["translate", *arguments, *more], capfd)
    stored = {"style": "formal"}
    model.generation_config = stored
    assert decoding.chosen({"first_code": 5}, model) == {"style": None, "first_code": 5}
    assert decoding.chosen({}, model) == {}


def test_every_option_of_every_model_is_one_of_the_command():
    classes = (Transformer, LatentNMT, CTCTranslator, FertilityNAT, RefinementNAT)
    names = {name for model in classes for name in model.generate.options}
    assert names == set(decoding.NAMES)


def test_a_translator_without_codes(tmp_path, capfd):
    model = exportable("CTCTranslator")
    model.generation_config = {"blank_bias": -2.0}
    model.save_to_preset(tmp_path / "ctc")
    arguments = ["--model", str(tmp_path / "ctc"), "twenty-one"]
    found = [run(capfd, *arguments, *more).out.strip() for more in ([], BEAMS)]
    options = {"num_beams": 3, "blank_bias": 9.0, "length_bonus": 0.5, "top_k": 4}
    assert found == [model.translate(["twenty-one"], **o)[0] for o in ({}, options)]
    assert found[0] != found[1]


def test_mistakes_are_one_sentence(tmp_path, capsys):
    teacher, latent = ["--model", TEACHER], ["--model", LATENT]
    for arguments, words in [
        ([*teacher, "--min-codes", "1"], "--min-codes is not an option of Tran"),
        ([*teacher, "--style", "formal"], "--style is not an option of Transformer"),
        (["--target-prefix", "a"], "--target-prefix is not an option of CTC"),
        (["--max-length", "9"], "--max-length is not an option of CTCTranslator"),
        ([*latent, "--blank-bias", "-1"], "has no blank: leave it out"),
        (["--top-k", "0"], "--top-k must be at least 1, received 0"),
        (["--rescorer", "multi30k_en_de_em"], "Transformer is needed here"),
        (["--rescorer", "nothing"], "There is no model nothing"),
        (["--num-beams", "0"], "--num-beams must be at least 1, received 0"),
        ([*latent, "--num-beams", "9999"], "Use fewer beams"),
        ([*teacher, "--seed", "-1"], "--seed must be at least 0, received -1"),
        ([*teacher, "--temperature", "1"], "Pass num_beams=1"),
        ([*teacher, "--num-return-sequences", "9"], "Pass num_beams=9"),
        (["--num-return-sequences", "0"], "must be at least 1, received 0"),
        (["--model", "cifar10_em"], "is needed here"),
        (["--model", "nothing"], "There is no model nothing"),
    ]:
        assert words in failed(["translate", CAPTION, *arguments], capsys)
    missing = str(tmp_path / "none")
    assert missing in failed(["translate", "--file", missing], capsys)
    assert "directory" in failed(["translate", "--file", str(tmp_path)], capsys)


def test_an_empty_translation_and_a_text_without_words_are_told(default):
    text = SplitText("x")
    assert answers.warnings_of(default, text, [""], math.nan) == [
        "the translation is empty"
    ]
    fine = default.low_score + 0.1
    assert answers.warnings_of(default, text, ["x"], fine) == []
    [told] = answers.warnings_of(default, text, ["x", " "], fine)
    assert told == "that of a sentence is empty"
    assert math.isnan(answers.lowest([math.nan]))
    [answer] = answers.answer_texts(default, ["... !"])
    assert answer.translation == "... !" and answer.warnings == []


def test_the_zoo_says_captions_and_terms(capsys):
    main.main(["zoo"])
    printed = capsys.readouterr().out
    assert "captions" in printed and "num_beams=4, drop_repeats=True" in printed
    for entry in zoo.entries():
        assert entry.terms and entry.terms in printed
    for command in ("translate", "zoo"):
        with pytest.raises(SystemExit, match="0"):
            main.main([command, "--help"])
        assert "captions of photos" in " ".join(capsys.readouterr().out.split())


def test_standard_error_may_be_unable_to_write_everything(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stderr", stream)
    translate.Warnings().tell("\ud800 🐕", ["x"])
    stream.flush()
    assert b"warning" in stream.buffer.getvalue()
