"""The wording against hand-written examples, the parsers by round trip."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_vqem.text import number_words, numbers
from keras_vqem.text.numbers import (
    KINDS,
    parse_english,
    parse_german,
    to_english,
    to_german,
)

GOLD = [
    (("cardinal", 0), "zero", "null"),
    (("cardinal", 1), "one", "eins"),
    (("cardinal", 11), "eleven", "elf"),
    (("cardinal", 12), "twelve", "zwölf"),
    (("cardinal", 16), "sixteen", "sechzehn"),
    (("cardinal", 17), "seventeen", "siebzehn"),
    (("cardinal", 20), "twenty", "zwanzig"),
    (("cardinal", 21), "twenty-one", "einundzwanzig"),
    (("cardinal", 23), "twenty-three", "dreiundzwanzig"),
    (("cardinal", 30), "thirty", "dreißig"),
    (("cardinal", 46), "forty-six", "sechsundvierzig"),
    (("cardinal", 67), "sixty-seven", "siebenundsechzig"),
    (("cardinal", 76), "seventy-six", "sechsundsiebzig"),
    (("cardinal", 100), "one hundred", "einhundert"),
    (("cardinal", 101), "one hundred and one", "einhunderteins"),
    (("cardinal", 121), "one hundred and twenty-one", "einhunderteinundzwanzig"),
    (("cardinal", 818), "eight hundred and eighteen", "achthundertachtzehn"),
    (("cardinal", 1_000), "one thousand", "eintausend"),
    (("cardinal", 1_001), "one thousand and one", "eintausendeins"),
    (("cardinal", 1_100), "one thousand one hundred", "eintausendeinhundert"),
    (("cardinal", 21_000), "twenty-one thousand", "einundzwanzigtausend"),
    (("cardinal", 100_000), "one hundred thousand", "einhunderttausend"),
    (
        ("cardinal", 101_101),
        "one hundred and one thousand one hundred and one",
        "einhunderteintausendeinhunderteins",
    ),
    (
        ("cardinal", 423_506),
        "four hundred and twenty-three thousand five hundred and six",
        "vierhundertdreiundzwanzigtausendfünfhundertsechs",
    ),
    (
        ("cardinal", 999_999),
        "nine hundred and ninety-nine thousand nine hundred and ninety-nine",
        "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
    ),
    (("cardinal", 1_000_000), "one million", "eine Million"),
    (("ordinal", 1), "the first", "der erste"),
    (("ordinal", 2), "the second", "der zweite"),
    (("ordinal", 3), "the third", "der dritte"),
    (("ordinal", 5), "the fifth", "der fünfte"),
    (("ordinal", 6), "the sixth", "der sechste"),
    (("ordinal", 7), "the seventh", "der siebte"),
    (("ordinal", 8), "the eighth", "der achte"),
    (("ordinal", 9), "the ninth", "der neunte"),
    (("ordinal", 12), "the twelfth", "der zwölfte"),
    (("ordinal", 17), "the seventeenth", "der siebzehnte"),
    (("ordinal", 18), "the eighteenth", "der achtzehnte"),
    (("ordinal", 19), "the nineteenth", "der neunzehnte"),
    (("ordinal", 20), "the twentieth", "der zwanzigste"),
    (("ordinal", 21), "the twenty-first", "der einundzwanzigste"),
    (("ordinal", 40), "the fortieth", "der vierzigste"),
    (("ordinal", 87), "the eighty-seventh", "der siebenundachtzigste"),
    (("ordinal", 100), "the one hundredth", "der einhundertste"),
    (("ordinal", 101), "the one hundred and first", "der einhunderterste"),
    (("ordinal", 307), "the three hundred and seventh", "der dreihundertsiebte"),
    (("ordinal", 1_000), "the one thousandth", "der eintausendste"),
    (("ordinal", 1_003), "the one thousand and third", "der eintausenddritte"),
    (
        ("ordinal", 12_030),
        "the twelve thousand and thirtieth",
        "der zwölftausenddreißigste",
    ),
    (("date", None, 3, 5, None), "the third of May", "der dritte Mai"),
    (("date", 0, 3, 5, None), "Monday, the third of May", "Montag, der dritte Mai"),
    (
        ("date", 5, 1, 3, None),
        "Saturday, the first of March",
        "Samstag, der erste März",
    ),
    (
        ("date", None, 29, 2, None),
        "the twenty-ninth of February",
        "der neunundzwanzigste Februar",
    ),
    (
        ("date", None, 3, 5, 1984),
        "the third of May, nineteen eighty-four",
        "der dritte Mai neunzehnhundertvierundachtzig",
    ),
    (
        ("date", None, 16, 1, 1100),
        "the sixteenth of January, eleven hundred",
        "der sechzehnte Januar elfhundert",
    ),
    (
        ("date", None, 7, 10, 1201),
        "the seventh of October, twelve oh one",
        "der siebte Oktober zwölfhunderteins",
    ),
    (
        ("date", None, 8, 12, 1905),
        "the eighth of December, nineteen oh five",
        "der achte Dezember neunzehnhundertfünf",
    ),
    (
        ("date", 1, 29, 2, 2000),
        "Tuesday, the twenty-ninth of February, two thousand",
        "Dienstag, der neunundzwanzigste Februar zweitausend",
    ),
    (
        ("date", 2, 31, 10, 2007),
        "Wednesday, the thirty-first of October, two thousand and seven",
        "Mittwoch, der einunddreißigste Oktober zweitausendsieben",
    ),
    (
        ("date", None, 20, 6, 2014),
        "the twentieth of June, twenty fourteen",
        "der zwanzigste Juni zweitausendvierzehn",
    ),
    (("time", 1, 0, "clock"), "one o'clock", "ein Uhr"),
    (("time", 2, 0, "clock"), "two o'clock", "zwei Uhr"),
    (("time", 1, 5, "clock"), "five past one", "fünf nach eins"),
    (("time", 2, 10, "clock"), "ten past two", "zehn nach zwei"),
    (("time", 2, 15, "clock"), "quarter past two", "Viertel nach zwei"),
    (("time", 2, 20, "clock"), "twenty past two", "zwanzig nach zwei"),
    (("time", 2, 25, "clock"), "twenty-five past two", "fünf vor halb drei"),
    (("time", 2, 30, "clock"), "half past two", "halb drei"),
    (("time", 12, 30, "clock"), "half past twelve", "halb eins"),
    (("time", 2, 35, "clock"), "twenty-five to three", "fünf nach halb drei"),
    (("time", 2, 40, "clock"), "twenty to three", "zwanzig vor drei"),
    (("time", 12, 45, "clock"), "quarter to one", "Viertel vor eins"),
    (("time", 11, 50, "clock"), "ten to twelve", "zehn vor zwölf"),
    (("time", 6, 55, "clock"), "five to seven", "fünf vor sieben"),
    (("time", 0, 0, "daypart"), "twelve o'clock at night", "zwölf Uhr nachts"),
    (("time", 1, 0, "daypart"), "one o'clock in the morning", "ein Uhr nachts"),
    (("time", 7, 30, "daypart"), "half past seven in the morning", "halb acht morgens"),
    (
        ("time", 11, 0, "daypart"),
        "eleven o'clock in the morning",
        "elf Uhr vormittags",
    ),
    (
        ("time", 14, 45, "daypart"),
        "quarter to three in the afternoon",
        "Viertel vor drei nachmittags",
    ),
    (
        ("time", 19, 50, "daypart"),
        "ten to eight in the evening",
        "zehn vor acht abends",
    ),
    (("time", 22, 0, "daypart"), "ten o'clock at night", "zehn Uhr abends"),
    (("time", 0, 7, "24h"), "zero oh seven", "null Uhr sieben"),
    (("time", 1, 1, "24h"), "one oh one", "ein Uhr eins"),
    (("time", 14, 25, "24h"), "fourteen twenty-five", "vierzehn Uhr fünfundzwanzig"),
    (("time", 21, 12, "24h"), "twenty-one twelve", "einundzwanzig Uhr zwölf"),
]

BAD_ENGLISH = """
twenty-eleven|twenty-zero|twenty three|ten-one|one-twenty|one hundred one
one hundred and zero|eleven hundred|zero hundred|one thousand six|one thousand and
one thousand and one hundred|one thousandfive hundred|one thousand thousand
one million one|two million|One|one |and one||the|the zeroth|the oneth|the eightth
the twentyth|the twenty|the twenty-ten|the hundredth|the first first|first
the one hundred thousandth|the thirtieth of February|the thirty-first of April
the third of Mai|the thirty-second of May|the three of May|Mon, the third of May
Monday the third of May|the third of May nineteen eighty-four
the twenty-ninth of February, nineteen hundred|the third of May, ten sixty-six
the third of May, twenty oh seven|the third of May, twenty hundred
the third of May, nineteen five|the third of May, two thousand and fourteen
thirteen o'clock|zero o'clock|half to two|fifteen past two|seven past two
thirty past two|quarter past|past two|half past two o'clock|two o'clock in the evening
twelve o'clock in the afternoon|half past twelve in the afternoon|one o'clock nachts
twenty-four ten|fourteen sixty|fourteen five|fourteen oh eleven
fourteen oh oh|oh five|fourteen oh""".replace("\n", "|")

BAD_GERMAN = """
zwanzigunddrei|einsundzwanzig|einszwanzig|zehnundzwanzig|dreissig|sechszehn|siebenzig
einundzehn|hundert|hunderteins|tausend|eintausendein|einhunderteinstausend|zehnhundert
einhundertundeins|einhundertnull|nullhundert|einhunderteinhundert|eintausendeintausend
eins tausend|Eins|eins |ein|eine Millionen|zwei Millionen|der|der erstste|der einste
der einte|der dreite|der siebente|der achtte|der zwanzigte|der zwölfste|der zwanzig
der nullte|der ste|der einhunderteinste|der einhundertte|der einhunderttausendste
der dritte May|der dreißigste Februar|der einunddreißigste April|die dritte Mai
Montag der dritte Mai|Mo, der dritte Mai|Montag, der dritte|der drei Mai
der neunundzwanzigste Februar neunzehnhundert|der dritte Mai zehnhundert
der dritte Mai zwanzighundert|der dritte Mai eintausendneunhundert
der dritte Mai zweitausendeinhundert|der dritte Mai, zweitausend|eins Uhr|dreizehn Uhr
null Uhr|halb ein|halb dreizehn|halb|viertel nach zwei|fünfzehn nach zwei
zehn vor halb drei|nach zwei|fünf nach|fünf nach ein|halb drei Uhr|zwei Uhr in
zwei Uhr abends|zwölf Uhr mittags|halb eins nachmittags|one o'clock
vierundzwanzig Uhr zehn|vierzehn Uhr null|vierzehn Uhr sechzig|eins Uhr zehn
vierzehn Uhr ein|vierzehn Uhr zehn nachmittags|""".replace("\n", "|")


def round_trip(item):
    assert parse_english(to_english(item)) == item
    assert parse_german(to_german(item)) == item


def items(kind):
    return itertools.chain.from_iterable(
        map(form.item, form.ids) for form in numbers._FORMS if form.kind == kind
    )


@pytest.mark.parametrize(("item", "english", "german"), GOLD)
def test_wording_of_hand_written_examples(item, english, german):
    assert (to_english(item), to_german(item)) == (english, german)
    assert parse_english(english) == parse_german(german) == item


@given(st.integers(0, number_words.MAX_CARDINAL))
def test_cardinals_survive_the_round_trip(value):
    round_trip(("cardinal", value))


def test_dense_and_boundary_cardinals_survive_the_round_trip():
    values = set(range(0, 1_000_001, 97)) | set(range(2_200)) | {1_000_000}
    values |= {base + step for base in range(0, 10**6, 1_000) for step in (0, 1, 99)}
    for value in values:
        round_trip(("cardinal", value))


@pytest.mark.parametrize("kind", ["ordinal", "time"])
def test_all_ordinals_and_times_survive_the_round_trip(kind):
    for item in items(kind):
        round_trip(item)


def test_dates_survive_the_round_trip():
    sample = list(itertools.islice(items("date"), 0, None, 61))
    sample += [("date", None, 29, 2, year) for year in range(1104, 2100, 100)]
    sample += [("date", 6, 31, 12, year) for year in range(1100, 2100)]
    sample += [("date", 3, day, 2, None) for day in range(1, 30)]
    for item in sample:
        round_trip(item)


@pytest.mark.slow
def test_the_whole_corpus_survives_the_round_trip():
    for item in itertools.chain.from_iterable(map(items, KINDS)):
        round_trip(item)


@pytest.mark.parametrize("text", BAD_ENGLISH.split("|"))
def test_english_parser_names_what_it_cannot_read(text):
    with pytest.raises(ValueError, match="Cannot read") as error:
        parse_english(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize("text", BAD_GERMAN.split("|"))
def test_german_parser_names_what_it_cannot_read(text):
    with pytest.raises(ValueError, match="Cannot read") as error:
        parse_german(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("parse", "write", "pieces"),
    [
        (
            parse_english,
            to_english,
            "one|three|twelve|twenty|-|-four|third|fiftieth|th| hundred| thousand|"
            " and | oh | |the | of May|, |Monday, the |nineteen| past | to |quarter|"
            "half| o'clock| in the morning| at night",
        ),
        (
            parse_german,
            to_german,
            "ein|s|eins|drei|sieben|zwölf|zwanzig|ßig|und|hundert|tausend|erste|dritte|"
            "te|ste|der | Mai|, |Montag, der | |neunzehn| nach | vor |Viertel|halb |"
            " Uhr| nachts| morgens",
        ),
    ],
)
def test_parsers_read_nothing_but_the_canonical_wording(parse, write, pieces):
    rng = random.Random(0)
    read = 0
    for _ in range(10_000):
        text = "".join(rng.choices(pieces.split("|"), k=rng.randint(1, 6)))
        try:
            item = parse(text)
        except ValueError:
            continue
        assert write(item) == text
        read += 1
    assert read > 250


def test_every_english_sentence_has_one_german_sentence():
    german = {}
    # Strides coprime to weeks, hours and tens, so that they meet every combination.
    for kind, stride in (("cardinal", 37), ("ordinal", 1), ("date", 41), ("time", 1)):
        for item in itertools.islice(items(kind), 0, None, stride):
            english = to_english(item)
            assert english not in german
            german[english] = to_german(item)
    assert len(set(german.values())) == len(german)


@pytest.mark.parametrize(
    "item",
    [
        ("cardinal", -1),
        ("cardinal", 1_000_001),
        ("cardinal", "one"),
        ("ordinal", 0),
        ("ordinal", 100_000),
        ("date", None, 29, 2, 1900),
        ("date", None, 31, 4, None),
        ("date", 7, 3, 5, None),
        ("date", None, 3, 5, 1099),
        ("date", None, 3, 13, 1984),
        ("time", 0, 0, "clock"),
        ("time", 2, 7, "clock"),
        ("time", 12, 0, "daypart"),
        ("time", 14, 0, "24h"),
        ("time", 14, 5, "12h"),
        ("number", 3),
        23,
    ],
)
def test_items_without_a_wording_are_refused(item):
    for write in (to_english, to_german):
        with pytest.raises(ValueError, match="is not an item. Pass a tuple such as"):
            write(item)
