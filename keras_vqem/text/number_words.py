"""Numbers, dates and clock times in English and German words.

An item is a plain tuple:

| Item                                  | English               | German           |
| ------------------------------------- | --------------------- | ---------------- |
| `("cardinal", value)`                 | twenty-three          | dreiundzwanzig   |
| `("ordinal", value)`                  | the third             | der dritte       |
| `("date", weekday, day, month, year)` | the third of May      | der dritte Mai   |
| `("time", hour, minute, "clock")`     | half past two         | halb drei        |
| `("time", hour, minute, "daypart")`   | ten to eight in the   | zehn vor acht    |
|                                       | evening               | abends           |
| `("time", hour, minute, "24h")`       | fourteen oh five      | vierzehn Uhr fünf|

Cardinals go from 0 to 1,000,000, ordinals from 1 to 99,999 and years from 1100
to 2099. `weekday` is 0 for Monday; `weekday` and `year` may be `None`. In
"clock" and "daypart" times the minute is a multiple of five. The hour of "clock"
is from 1 to 12, that of "daypart" from 0 to 23 except 12, because noon is
neither morning nor afternoon. "24h" allows every minute except 0: at minute 0,
German "zwei Uhr" would be the same as the "clock" time.

Each language has one fixed style, so every item has exactly one wording:

- English is British: "and" comes before the tens and units of each group of
  three digits ("one thousand and six", "two hundred and three thousand"). There
  are no commas, and it is "one hundred", never "a hundred". Years read "nineteen
  hundred", "nineteen oh five", "two thousand and seven", "twenty fourteen".
- German follows the official orthography with every "ein" spelled out
  ("einhunderteins", "eintausendeinhundert"). Years before 2000 count hundreds
  ("neunzehnhundertfünf"). "Viertel nach" and "Viertel vor" are capitalised, and
  the middle of the hour reads "fünf vor halb drei", "halb drei", "fünf nach halb
  drei".
- Each language divides the day in its own way: "two o'clock in the morning" is
  "zwei Uhr nachts", and "eleven o'clock in the morning" is "elf Uhr vormittags".

`keras_vqem.text.number_parsers` reads these wordings back.
"""

import datetime
import re

__all__ = ["to_english", "to_german"]

MAX_CARDINAL = 1_000_000
MAX_ORDINAL = 99_999
FIRST_YEAR, LAST_YEAR = 1100, 2099
# Dates without a year include 29 February.
LEAP_YEAR = 2000

EN_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
EN_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
EN_VALUE = dict(zip(EN_SMALL[1:], range(1, 20), strict=True))
EN_VALUE |= dict(zip(EN_TENS, range(20, 100, 10), strict=True))
EN_ORDINAL = {word: word + "th" for word in (*EN_SMALL[1:], "hundred", "thousand")}
EN_ORDINAL |= {word: word[:-1] + "ieth" for word in EN_TENS}
EN_ORDINAL |= {"one": "first", "two": "second", "three": "third", "five": "fifth"}
EN_ORDINAL |= {"eight": "eighth", "nine": "ninth", "twelve": "twelfth"}
EN_CARDINAL = {ordinal: cardinal for cardinal, ordinal in EN_ORDINAL.items()}
EN_MONTHS = (
    "January February March April May June July August September October November "
    "December"
).split()
EN_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

DE_SMALL = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn "
    "vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split()
DE_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
DE_VALUE = dict(zip(DE_SMALL[2:], range(2, 20), strict=True))
DE_VALUE |= dict(zip(DE_TENS, range(20, 100, 10), strict=True))
DE_ORDINAL = {value: word + "te" for value, word in enumerate(DE_SMALL) if value}
DE_ORDINAL |= {1: "erste", 3: "dritte", 7: "siebte", 8: "achte"}
DE_ORDINAL_VALUE = {word: value for value, word in DE_ORDINAL.items()}
DE_MONTHS = (
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
).split()
DE_WEEKDAYS = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split()

EN_MINUTES = {5: "five", 10: "ten", 15: "quarter", 20: "twenty"}
EN_MINUTES |= {25: "twenty-five", 30: "half"}
DE_MINUTES = {
    5: "fünf nach",
    10: "zehn nach",
    15: "Viertel nach",
    20: "zwanzig nach",
    25: "fünf vor halb",
    30: "halb",
    35: "fünf nach halb",
    40: "zwanzig vor",
    45: "Viertel vor",
    50: "zehn vor",
    55: "fünf vor",
}
# From the hour of the day to its part of the day, (English, German).
DAY_PARTS = {0: ("at night", "nachts")}
DAY_PARTS |= dict.fromkeys(range(1, 5), ("in the morning", "nachts"))
DAY_PARTS |= dict.fromkeys(range(5, 10), ("in the morning", "morgens"))
DAY_PARTS |= dict.fromkeys(range(10, 12), ("in the morning", "vormittags"))
DAY_PARTS |= dict.fromkeys(range(13, 18), ("in the afternoon", "nachmittags"))
DAY_PARTS |= dict.fromkeys(range(18, 22), ("in the evening", "abends"))
DAY_PARTS |= {22: ("at night", "abends"), 23: ("at night", "nachts")}


def to_english(item: tuple) -> str:
    """Writes an item in English words.

    Args:
        item: Tuple for a number, date or time, as described at the top of this module.

    Returns:
        The English wording.

    Raises:
        ValueError: If `item` is not such a tuple or is out of range.

    Example:

    >>> to_english(("cardinal", 423_506))
    'four hundred and twenty-three thousand five hundred and six'
    >>> to_english(("date", 0, 3, 5, None))
    'Monday, the third of May'
    """
    match checked(item):
        case ("cardinal", value):
            return _en_cardinal(value)
        case ("ordinal", value):
            return "the " + _en_ordinal(value)
        case ("date", weekday, day, month, year):
            start = "" if weekday is None else EN_WEEKDAYS[weekday] + ", "
            end = "" if year is None else ", " + _en_year(year)
            return f"{start}the {_en_ordinal(day)} of {EN_MONTHS[month - 1]}{end}"
        case ("time", hour, minute, "24h"):
            return _en_pair(hour, minute)
        case ("time", hour, minute, style):
            end = " " + DAY_PARTS[hour][0] if style == "daypart" else ""
            this, following = EN_SMALL[hour % 12 or 12], EN_SMALL[hour % 12 + 1]
            if minute == 0:
                return f"{this} o'clock{end}"
            if minute <= 30:
                return f"{EN_MINUTES[minute]} past {this}{end}"
            return f"{EN_MINUTES[60 - minute]} to {following}{end}"


def to_german(item: tuple) -> str:
    """Writes an item in German words.

    Args:
        item: Tuple for a number, date or time, as described at the top of this module.

    Returns:
        The German wording.

    Raises:
        ValueError: If `item` is not such a tuple or is out of range.

    Example:

    >>> to_german(("cardinal", 423_506))
    'vierhundertdreiundzwanzigtausendfünfhundertsechs'
    >>> to_german(("time", 2, 30, "clock"))
    'halb drei'
    """
    match checked(item):
        case ("cardinal", value):
            return _de_cardinal(value)
        case ("ordinal", value):
            return "der " + _de_ordinal(value)
        case ("date", weekday, day, month, year):
            start = "" if weekday is None else DE_WEEKDAYS[weekday] + ", "
            end = "" if year is None else " " + _de_year(year)
            return f"{start}der {_de_ordinal(day)} {DE_MONTHS[month - 1]}{end}"
        case ("time", hour, minute, "24h"):
            return f"{_de_cardinal(hour, 'ein')} Uhr {_de_cardinal(minute)}"
        case ("time", hour, minute, style):
            end = " " + DAY_PARTS[hour][1] if style == "daypart" else ""
            if minute == 0:
                return f"{_de_cardinal(hour % 12 or 12, 'ein')} Uhr{end}"
            named = DE_SMALL[(hour + (minute >= 25)) % 12 or 12]
            return f"{DE_MINUTES[minute]} {named}{end}"


def checked(item: tuple) -> tuple:
    """Returns `item`, or raises a `ValueError` if it has no wording.

    Args:
        item: Tuple for a number, date or time, as described at the top of this module.

    Returns:
        The same tuple.

    Raises:
        ValueError: If `item` is not such a tuple or is out of range.
    """
    match item:
        case ("cardinal", int(value)):
            valid = 0 <= value <= MAX_CARDINAL
        case ("ordinal", int(value)):
            valid = 1 <= value <= MAX_ORDINAL
        case ("date", weekday, int(day), int(month), year):
            valid = weekday is None or weekday in range(7)
            valid &= year is None or year in range(FIRST_YEAR, LAST_YEAR + 1)
            valid = valid and _is_date(day, month, year)
        case ("time", int(hour), int(minute), "clock"):
            valid = 1 <= hour <= 12 and minute in range(0, 60, 5)
        case ("time", int(hour), int(minute), "daypart"):
            valid = hour in DAY_PARTS and minute in range(0, 60, 5)
        case ("time", int(hour), int(minute), "24h"):
            valid = 0 <= hour <= 23 and 1 <= minute <= 59
        case _:
            valid = False
    if not valid:
        raise ValueError(
            f"{item!r} is not an item. Pass a tuple such as ('cardinal', 23), "
            "('ordinal', 3), ('date', None, 3, 5, 1984) or ('time', 2, 30, 'clock'), "
            "within the ranges given in keras_vqem.text.number_words."
        )
    return item


def _is_date(day, month, year):
    try:
        datetime.date(LEAP_YEAR if year is None else year, month, day)
    except ValueError:
        return False
    return True


def _en_cardinal(value):
    if value < 20:
        return EN_SMALL[value]
    if value < 100:
        tens, unit = divmod(value, 10)
        return EN_TENS[tens - 2] + (f"-{EN_SMALL[unit]}" if unit else "")
    if value < 1000:
        hundreds, rest = divmod(value, 100)
        words = EN_SMALL[hundreds] + " hundred"
        return f"{words} and {_en_cardinal(rest)}" if rest else words
    if value == MAX_CARDINAL:
        return "one million"
    thousands, rest = divmod(value, 1000)
    words = _en_cardinal(thousands) + " thousand"
    if not rest:
        return words
    return f"{words} {'and ' if rest < 100 else ''}{_en_cardinal(rest)}"


def _en_ordinal(value):
    words = _en_cardinal(value)
    last = re.search(r"\w+$", words)
    return words[: last.start()] + EN_ORDINAL[last[0]]


def _en_pair(first, second):
    between = "oh " if second < 10 else ""
    return f"{_en_cardinal(first)} {between}{_en_cardinal(second)}"


def _en_year(year):
    if 2000 <= year <= 2009:
        return _en_cardinal(year)
    century, rest = divmod(year, 100)
    return _en_pair(century, rest) if rest else _en_cardinal(century) + " hundred"


def _de_cardinal(value, one="eins"):
    if value < 20:
        return one if value == 1 else DE_SMALL[value]
    if value < 100:
        tens, unit = divmod(value, 10)
        return (_de_cardinal(unit, "ein") + "und" if unit else "") + DE_TENS[tens - 2]
    if value == MAX_CARDINAL:
        return "eine Million"
    size, name = (100, "hundert") if value < 1000 else (1000, "tausend")
    count, rest = divmod(value, size)
    words = _de_cardinal(count, "ein") + name
    return words + _de_cardinal(rest, one) if rest else words


def _de_ordinal(value):
    last = value % 100
    if 0 < last < 20:
        return (_de_cardinal(value - last) if value > last else "") + DE_ORDINAL[last]
    return _de_cardinal(value) + "ste"


def _de_year(year):
    if year >= 2000:
        return _de_cardinal(year)
    century, rest = divmod(year, 100)
    return DE_SMALL[century] + "hundert" + (_de_cardinal(rest) if rest else "")
