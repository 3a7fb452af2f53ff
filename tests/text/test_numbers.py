"""The corpus: pinned, distinct, balanced, its splits disjoint."""

import itertools

import pytest

from keras_vqem.text import numbers
from keras_vqem.text.numbers import (
    KINDS,
    SPLITS,
    capacity,
    pairs,
    parse_english,
    parse_german,
)


def test_first_pairs_are_pinned():
    assert pairs(8) == GOLDEN
    assert pairs(4, seed=1, split="test") == GOLDEN_TEST


def test_pairs_depend_on_the_seed_alone():
    assert pairs(500) == pairs(500)
    assert pairs(500, seed=1) != pairs(500)
    assert pairs(9, -1, "time") == pairs(9, 2**64 - 1, "time")
    assert pairs(50, kinds=["time", "date"]) == pairs(50, kinds=("date", "time"))
    assert pairs(50, kinds="time") == pairs(50, kinds=("time",))


def test_pairs_are_distinct_correct_and_balanced():
    sample = pairs(4_000)
    assert len(dict(sample)) == 4_000
    read = [parse_english(english) for english, _ in sample]
    assert read == [parse_german(german) for _, german in sample]
    assert {kind: sum(item[0] == kind for item in read) for kind in KINDS} == {
        kind: 1_000 for kind in KINDS
    }
    dates = [item for item in read if item[0] == "date"]
    assert sum(item[1] is None and item[4] is None for item in dates) == 250


def test_kinds_with_few_sentences_are_filled_up_from_others():
    read = [parse_english(english)[0] for english, _ in pairs(20_000)]
    assert read.count("time") == capacity(("time",))
    assert len(read) == 20_000
    assert max(map(read.count, KINDS)) - read.count("cardinal") <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_splits_are_disjoint_and_make_up_the_corpus(kind):
    everything = sum(len(form.ids) for form in numbers._FORMS if form.kind == kind)
    sizes = {split: capacity(kind, split) for split in SPLITS}
    assert sum(sizes.values()) == everything
    assert 0.85 < sizes["train"] / everything < 0.95
    english = {
        split: {
            english
            for seed in (seed, seed + 1)
            for english, _ in pairs(min(6_000, sizes[split]), seed, kind, split)
        }
        for seed, split in enumerate(SPLITS)
    }
    for one, other in itertools.combinations(SPLITS, 2):
        assert not english[one] & english[other]


def test_near_duplicates_share_a_split():
    for split in SPLITS:
        items_of = {
            kind: {
                form.item(i)
                for form, ids in forms
                if len(form.ids) <= 100_000
                for i in ids.tolist()
            }
            for kind, forms in zip(KINDS, numbers._members(KINDS, split), strict=True)
        }
        assert {value for _, value in items_of["cardinal"]} - {0} == {
            value for _, value in items_of["ordinal"]
        }
        for _, weekday, *rest in items_of["date"]:
            assert weekday is None or ("date", None, *rest) in items_of["date"]
        for _, hour, minute, _ in items_of["time"]:
            clock = ("time", hour % 12 or 12, minute, "clock")
            assert minute % 5 or clock in items_of["time"]


def test_a_whole_split_can_be_drawn():
    count = capacity(("ordinal", "time"), "test")
    assert len(dict(pairs(count, 5, ("ordinal", "time"), "test"))) == count


def test_the_corpus_has_over_a_million_pairs():
    assert [capacity(split=split) for split in SPLITS] == [1_651_705, 91_463, 92_082]


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match=r"some of \('cardinal', .* not \('year',\)"):
        pairs(1, kinds=("year",))
    with pytest.raises(ValueError, match="kinds must be some of"):
        capacity(kinds=())
    with pytest.raises(ValueError, match="one of .*'validation'.* not 'dev'"):
        pairs(1, split="dev")
    with pytest.raises(ValueError, match="split must be one of"):
        capacity(split=None)
    with pytest.raises(ValueError, match="count must be from 1 to 1616"):
        pairs(0, kinds=("time",))
    with pytest.raises(ValueError, match="1 to 1616, .* not 1617. Ask for fewer"):
        pairs(1_617, kinds=("time",))


GOLDEN = [
    (
        "three hundred and eighty-seven thousand three hundred and twenty-three",
        "dreihundertsiebenundachtzigtausenddreihundertdreiundzwanzig",
    ),
    (
        "the twentieth of October, fifteen seventy-six",
        "der zwanzigste Oktober fünfzehnhundertsechsundsiebzig",
    ),
    (
        "Tuesday, the twenty-ninth of January, eleven twenty-nine",
        "Dienstag, der neunundzwanzigste Januar elfhundertneunundzwanzig",
    ),
    ("one twenty-nine", "ein Uhr neunundzwanzig"),
    ("quarter past ten in the morning", "Viertel nach zehn vormittags"),
    (
        "eighty-three thousand nine hundred and sixty-seven",
        "dreiundachtzigtausendneunhundertsiebenundsechzig",
    ),
    (
        "the thirty-eight thousand six hundred and sixty-third",
        "der achtunddreißigtausendsechshundertdreiundsechzigste",
    ),
    (
        "the nine thousand nine hundred and ninety-sixth",
        "der neuntausendneunhundertsechsundneunzigste",
    ),
]
GOLDEN_TEST = [
    (
        "eight hundred and ninety-one thousand four hundred and thirty-nine",
        "achthunderteinundneunzigtausendvierhundertneununddreißig",
    ),
    ("one fifteen", "ein Uhr fünfzehn"),
    (
        "Monday, the twelfth of July, fifteen sixty-five",
        "Montag, der zwölfte Juli fünfzehnhundertfünfundsechzig",
    ),
    (
        "the ninety-three thousand eight hundred and twenty-seventh",
        "der dreiundneunzigtausendachthundertsiebenundzwanzigste",
    ),
]
