"""Parsers of the English and German wordings of `keras_vqem.text.number_words`.

The parsers follow the grammar and share only the vocabulary with the writers, so
a round trip checks both.
"""

import re

from keras_vqem.text import number_words as words

__all__ = ["parse_english", "parse_german"]


def parse_english(text: str) -> tuple:
    """Parses an English wording of a number, date or time.

    Args:
        text: English wording, in the style described in
            `keras_vqem.text.number_words`.

    Returns:
        The item, a tuple such that `to_english(parse_english(text)) == text`.

    Raises:
        ValueError: If `text` is not in this style.

    Example:

    >>> parse_english("the third of May, nineteen eighty-four")
    ('date', None, 3, 5, 1984)
    """
    try:
        return words.checked(_read_english(text))
    except (KeyError, ValueError):
        raise ValueError(
            f"Cannot read {text!r} as an English number, date or time. See "
            "keras_vqem.text.number_words for the wordings that can be read."
        ) from None


def parse_german(text: str) -> tuple:
    """Parses a German wording of a number, date or time.

    Args:
        text: German wording, in the style described in
            `keras_vqem.text.number_words`.

    Returns:
        The item, a tuple such that `to_german(parse_german(text)) == text`.

    Raises:
        ValueError: If `text` is not in this style.

    Example:

    >>> parse_german("Viertel vor drei nachmittags")
    ('time', 14, 45, 'daypart')
    """
    try:
        return words.checked(_read_german(text))
    except (KeyError, ValueError):
        raise ValueError(
            f"Cannot read {text!r} as a German number, date or time. See "
            "keras_vqem.text.number_words for the wordings that can be read."
        ) from None


def _within(value, low, high):
    if not low <= value <= high:
        raise ValueError
    return value


def _match(pattern, text):
    found = re.fullmatch(pattern, text)
    if not found:
        raise ValueError
    return found.groups()


def _read_english(text):
    if " of " in text:
        weekday, day, month, year = _match(
            r"(?:(\w+), )?the (\S+) of (\w+)(?:, (.+))?", text
        )
        return (
            "date",
            weekday and words.EN_WEEKDAYS.index(weekday),
            _read_en_ordinal(day),
            words.EN_MONTHS.index(month) + 1,
            year and _read_en_year(year),
        )
    if text.startswith("the "):
        return "ordinal", _read_en_ordinal(text.removeprefix("the "))
    if re.search(r" (past|to|o'clock)\b", text):
        minutes, direction, hour, part = _match(
            r"(?:(\S+) (past|to) )?(\w+)(?(1)| o'clock)(?: (in the \w+|at night))?",
            text,
        )
        offset = 0
        if minutes:
            offset = {"quarter": 15, "half": 30}.get(minutes)
            offset = offset or _within(_read_en_hundred(minutes), 5, 25)
            if minutes == "fifteen" or (minutes, direction) == ("half", "to"):
                raise ValueError
        offset = -offset if direction == "to" else offset
        return _clock(words.EN_VALUE[hour], offset, part, language=0)
    if re.fullmatch(r"\S+ (?!hundred|thousand|million)(oh )?\S+", text):
        return "time", *_read_en_pair(text), "24h"
    return "cardinal", _read_en_cardinal(text)


def _read_german(text):
    if "der " in text:
        weekday, day, month, year = _match(
            r"(?:(\w+), )?der (\w+)(?: (\w+)(?: (\w+))?)?", text
        )
        if not (weekday or month):
            return "ordinal", _read_de_ordinal(day)
        return (
            "date",
            weekday and words.DE_WEEKDAYS.index(weekday),
            _read_de_ordinal(day),
            words.DE_MONTHS.index(month) + 1,
            year and _read_de_year(year),
        )
    if " Uhr" in text:
        hour, rest = _match(r"(\w+) Uhr(?: (\w+))?", text)
        if rest is None or rest in {german for _, german in words.DAY_PARTS.values()}:
            return _clock(_read_de_hundred(hour, "ein"), 0, rest, language=1)
        hour = 0 if hour == "null" else _read_de_hundred(hour, "ein")
        return "time", hour, _read_de_hundred(rest), "24h"
    if re.search(r"(^halb|nach|vor) ", text):
        minutes, direction, half, hour, part = _match(
            r"(?:(\w+) (nach|vor) )?(halb )?(\w+)(?: (\w+))?", text
        )
        offset = 0
        if minutes:
            offset = {"fünf": 5, "zehn": 10, "Viertel": 15, "zwanzig": 20}[minutes]
            _within(offset, 5, 5 if half else 20)
        offset = -offset if direction == "vor" else offset
        return _clock(
            _read_de_hundred(hour), offset - 30 if half else offset, part, language=1
        )
    return "cardinal", _read_de_cardinal(text)


def _clock(hour, offset, part, language):
    """Returns the item `offset` minutes after the `hour` of a twelve-hour clock."""
    hour, minute = divmod(60 * _within(hour, 1, 12) + offset, 60)
    if part is None:
        return "time", hour % 12 or 12, minute, "clock"
    for candidate in (hour % 12, hour % 12 + 12):
        named = words.DAY_PARTS.get(candidate)
        if named and named[language] == part:
            return "time", candidate, minute, "daypart"
    raise ValueError


def _read_en_hundred(text):
    """Reads a number from 1 to 99."""
    tens, dash, unit = text.partition("-")
    if dash:
        return _within(words.EN_VALUE[tens], 20, 90) + _within(
            words.EN_VALUE[unit], 1, 9
        )
    return words.EN_VALUE[text]


def _read_en_thousand(text):
    """Reads a number from 1 to 999."""
    if "hundred" not in text:
        return _read_en_hundred(text)
    hundreds, rest = _match(r"(\w+) hundred(?: and (\S+))?", text)
    value = 100 * _within(words.EN_VALUE[hundreds], 1, 9)
    return value + _read_en_hundred(rest) if rest else value


def _read_en_cardinal(text):
    if text in ("zero", "one million"):
        return 0 if text == "zero" else words.MAX_CARDINAL
    if "thousand" not in text:
        return _read_en_thousand(text)
    thousands, small, large = _match(r"(.+?) thousand(?: and (\S+)| (.+))?", text)
    value = 1000 * _read_en_thousand(thousands)
    if small:
        return value + _read_en_hundred(small)
    return value + _within(_read_en_thousand(large), 100, 999) if large else value


def _read_en_ordinal(text):
    before, last = _match(r"(.*?)(\w+)", text)
    return _read_en_cardinal(before + words.EN_CARDINAL[last])


def _read_en_pair(text):
    first, single, second = _match(r"(\S+) (?:oh (\S+)|(\S+))", text)
    first = 0 if first == "zero" else _read_en_hundred(first)
    if single:
        return first, _within(words.EN_VALUE[single], 1, 9)
    return first, _within(_read_en_hundred(second), 10, 99)


def _read_en_year(text):
    if text.startswith("two thousand"):
        return _within(_read_en_cardinal(text), 2000, 2009)
    if text.endswith(" hundred"):
        return 100 * _within(words.EN_VALUE[text.removesuffix(" hundred")], 11, 19)
    century, rest = _read_en_pair(text)
    return 100 * century + _within(rest, 10 if century == 20 else 1, 99)


def _read_de_hundred(text, one="eins"):
    """Reads a number from 1 to 99, in which a final 1 is written as `one`."""
    unit, und, tens = text.partition("und")
    if und:
        unit = _within(_read_de_hundred(unit, "ein"), 1, 9)
        return unit + _within(words.DE_VALUE[tens], 20, 90)
    return 1 if text == one else words.DE_VALUE[text]


def _read_de_thousand(text, one="eins"):
    """Reads a number from 1 to 999, in which a final 1 is written as `one`."""
    hundreds, hundert, rest = text.partition("hundert")
    if not hundert:
        return _read_de_hundred(text, one)
    value = 100 * _within(_read_de_hundred(hundreds, "ein"), 1, 9)
    return value + _read_de_hundred(rest, one) if rest else value


def _read_de_cardinal(text):
    if text in ("null", "eine Million"):
        return 0 if text == "null" else words.MAX_CARDINAL
    thousands, tausend, rest = text.partition("tausend")
    if not tausend:
        return _read_de_thousand(text)
    value = 1000 * _read_de_thousand(thousands, "ein")
    return value + _read_de_thousand(rest) if rest else value


def _read_de_ordinal(text):
    # Only the part after the last "hundert" or "tausend" is inflected irregularly.
    before, last = _match(r"(.*(?:hundert|tausend))?(\w+)", text)
    value = _read_de_cardinal(before) if before else 0
    if before and last == "ste":
        return value
    if last in words.DE_ORDINAL_VALUE:
        return value + words.DE_ORDINAL_VALUE[last]
    (tens,) = _match(r"(\w+)ste", last)
    return value + _within(_read_de_hundred(tens), 20, 99)


def _read_de_year(text):
    if text.startswith("zweitausend"):
        return _within(_read_de_cardinal(text), 2000, 2099)
    century, rest = _match(r"(\w+?)hundert(\w+)?", text)
    value = 100 * _within(words.DE_VALUE[century], 11, 19)
    return value + _read_de_hundred(rest) if rest else value
