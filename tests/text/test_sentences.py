import pytest

from keras_vqem.text import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["A dog runs.", "Two men talk!", "Who is it?", "They left…", "1 of 3 came."],
        ['"Stop!"', "(It is late.)", "„Nein.“", "Älter ist er."],
        ["Dr. Smith and Mr. J. R. Brown met on St. Mark's Square.", "It rained."],
        ["He lives in the U.S. Army base.", "It is big."],
        ["It costs 3.5 dollars, i.e. little.", "So he buys it."],
        ["what is this? i do not know. he asks"],
        ["日本語。", "犬が走る！", "はい"],
        ["A dog"],
        [],
    ],
)
def test_sentences_are_found_again(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_spaces_and_line_breaks_do_not_matter():
    assert split_sentences(" \n A  dog\truns.\n\nIt barks. ") == [
        "A dog runs.",
        "It barks.",
    ]
    assert split_sentences(" \n") == []


def test_what_is_too_long_is_broken_behind_a_comma_or_a_word():
    words = [f"w{i}" for i in range(2000)]
    parts = split_sentences(" ".join(words), max_words=40)
    assert [len(part.split()) for part in parts] == [40] * 50
    assert " ".join(parts).split() == words
    words[29] += ","
    words[5] += ";"  # too early: its part would be short
    assert split_sentences(" ".join(words[:50]), max_words=40) == [
        " ".join(words[:30]),
        " ".join(words[30:50]),
    ]
    with pytest.raises(ValueError, match="at least 1, received 0"):
        split_sentences("a", max_words=0)


def test_a_very_long_line_takes_time_in_proportion_to_its_length():
    # Each of these would take minutes if anything were read again and again.
    for text in ("A. " * 10**5, "." * 10**6, ".' " * 10**5, "Mr. " * 10**5 + "Smith."):
        assert " ".join(split_sentences(text)).split() == text.split()
    marks = "!" * 10**6
    assert split_sentences(f"{marks} Yes") == [marks, "Yes"]


def test_spaces_before_a_mark_do_not_hide_an_abbreviation():
    assert split_sentences("Mr . Smith waits . He is late.") == [
        "Mr . Smith waits .",
        "He is late.",
    ]
