"""Texts come back as they were, but for their sentences."""

import pytest

from keras_vqem.text import SplitText, split_sentences
from keras_vqem.text.copied import lost_numbers
from keras_vqem.text.sentences import sentence_spans

UNKNOWN = "😀🐕日本ń’“”…\ufffd"


def shouted(text, **options):
    """The text with every sentence in capitals, so that all else is seen to stay."""
    split = SplitText(text, UNKNOWN, **options)
    return split.join([sentence.upper() for sentence in split.sentences])


@pytest.mark.parametrize(
    "text, sentences, copied",
    [
        ("", [], []),
        (" \n\t ", [], []),
        ("  It rains.  Why? \n\n He left.", ["It rains.", "Why?", "He left."], []),
        ("one\r\ntwo\ttab\x0bthree", ["one", "two", "tab", "three"], []),
        (
            "- Buy milk\n 2) Call.\n> * so",
            ["Buy milk", "Call.", "so"],
            [],
        ),
        (
            "See https://a.org/b.c?d=1. Then write me@x.co.uk, please!",
            ["See", "Then write", "please!"],
            ["https://a.org/b.c?d=1", "me@x.co.uk"],
        ),
        ("(www.a.de) is down.", ["is down."], ["www.a.de"]),
        ("At b-c.org/d: end.com. OK", ["At", "OK"], ["b-c.org/d", "end.com"]),
        ("Hi @tom #now", ["Hi"], ["@tom", "#now"]),
        ("Thanks 😀! A 🐕 runs to 日本.", ["Thanks", "A", "runs to"], list("😀🐕")),
        ("Gdańsk is nice😀😀!", ["is nice"], ["Gdańsk", "😀😀"]),
        ("A ma\ufffd sits.", ["A", "sits."], ["ma\ufffd"]),
        ("😀 日本", [], ["😀", "日本"]),
        ("No. 5 costs $3.", ["No. 5 costs $3."], []),
    ],
)
def test_what_is_translated_and_what_is_copied(text, sentences, copied):
    split = SplitText(text, UNKNOWN)
    assert split.sentences == sentences
    assert [word for word in split.copied if word != "日本"] == [
        word for word in copied if word != "日本"
    ]
    assert split.join(sentences) == text
    # All characters are in a sentence or between two, and stay in their order.
    assert "".join(split.parts(sentences)) == text
    assert len(split.parts(sentences)) == 2 * len(sentences) + 1


def test_quotes_that_the_model_does_not_know_become_plain_ones():
    split = SplitText("“It’s late…” he said.", UNKNOWN)
    assert split.sentences == ['"It\'s late..." he said.'] and not split.copied
    assert SplitText("“It’s late.”").sentences == ["“It’s late.”"]


def test_numbers_are_copied_if_asked_for():
    text = "In 1984 it cost $1,234.50 or 20%, not 5."
    assert SplitText(text).copied == []
    assert SplitText(text, numbers=["1984", "20%"]).copied == ["1984", "20%"]
    assert shouted(text, numbers=["$1,234.50"]) == text.upper()
    assert SplitText("room A42 b7", numbers=["42"]).copied == []


def test_translations_take_the_places_of_sentences():
    split = SplitText("A. B.\nC 🐕 d. E.", UNKNOWN)
    assert split.sentences == ["A. B.", "C", "d. E."]  # A single letter is an initial.
    split = SplitText("One. Two.\nThree 🐕 four. Five.", UNKNOWN)
    found = split.join(["Eins.", "", "Drei.", "vier\n!", "Fünf."])
    # Part of a sentence gets no full stop, and an empty one leaves no space.
    assert found == "Eins.\nDrei 🐕 vier ! Fünf."
    with pytest.raises(ValueError):
        split.join(["Eins."])
    assert SplitText("犬。猫。").join(["Dog.", "Cat."]) == "Dog. Cat."


def test_long_sentences_are_broken_and_told():
    text = "word " * 120
    split = SplitText(text)
    assert split.is_broken and len(split.sentences) == 3
    assert split.join(split.sentences) == text
    assert not SplitText("A dog runs. " * 120).is_broken


def test_spans_are_those_of_the_sentences():
    text = ' Mr. Smith  waits. "Why?" he\nasks: ' + "so " * 60
    spans = sentence_spans(text)
    assert [" ".join(text[a:b].split()) for a, b in spans] == split_sentences(text)
    assert all(text[a].strip() and text[b - 1].strip() for a, b in spans)


def test_lost_numbers():
    assert lost_numbers("At 10:30, 2 men", "Um 10.30 Uhr zwei Männer") == []
    assert lost_numbers("1,000 and 1984", "1.000 und 1948") == ["1984"]
    assert lost_numbers("42 and 42", "42") == ["42"]


def test_the_time_is_in_proportion_to_the_length():
    # Each of these would take minutes if anything were read again and again.
    for text in (
        "xyz" * 10**5,
        "1.1." * 10**5 + "x",
        "a@" * 10**5,
        "www." * 10**5,
        "- " * 10**5 + "x",
        "🐕 a " * 10**4,
        "🐕" * 10**5,
    ):
        split = SplitText(text, UNKNOWN, numbers=["11"])
        assert split.join(split.sentences).replace(" ", "") == text.replace(" ", "")
