"""A generated English-German corpus of numbers, dates and clock times.

Nothing is downloaded or stored: a grammar writes sentence pairs on demand. Each
English sentence has exactly one German translation, so exact match is a meaningful
score. The order of the words differs as in real text ("twenty-three" is
"dreiundzwanzig", "half past two" is "halb drei").

`keras_vqem.text.number_words` describes the items and their wordings. The corpus has
all of them with one exception: a full date has its true weekday or none, by the
Gregorian calendar, extended back before 1582. Without a year, any weekday goes with
any day.
"""

import datetime
import operator
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from keras_vqem.text import number_words
from keras_vqem.text.number_parsers import parse_english, parse_german
from keras_vqem.text.number_words import to_english, to_german

__all__ = [
    "KINDS",
    "SPLITS",
    "capacity",
    "pairs",
    "parse_english",
    "parse_german",
    "to_english",
    "to_german",
]

KINDS = ("cardinal", "ordinal", "date", "time")
SPLITS = ("train", "validation", "test")


def pairs(
    count: int,
    seed: int = 0,
    kinds: str | Iterable[str] = KINDS,
    split: str = "train",
) -> list[tuple[str, str]]:
    """Samples distinct sentence pairs of the corpus.

    All kinds have equal shares, and so do all forms within a kind: numbers of one to
    two, three, four, five and six digits; dates with and without weekday and year;
    the styles of clock times. A kind or form with too few sentences gives all it has,
    and the others make up for it.

    The splits have 90, 5 and 5 percent of the corpus. They are disjoint for any
    seeds. Sentences that are nearly the same are in the same split: a number as
    cardinal and as ordinal, a date with and without its weekday, and all times at
    which the hands of a clock are in the same position.

    The sample is the same on every machine and with every version of Python and
    NumPy, because it is computed with 64-bit integers and no random generator.

    Args:
        count: Number of pairs, from 1 to `capacity(kinds, split)`.
        seed: Integer that selects the sample and its order.
        kinds: Kinds of sentences, some of `"cardinal"`, `"ordinal"`, `"date"` and
            `"time"`, in any order.
        split: Name of the split, `"train"`, `"validation"` or `"test"`.

    Returns:
        A list of `count` tuples `(english, german)`, whose English sentences are
        distinct.

    Raises:
        ValueError: If a kind or the split is unknown, or `count` is out of range.

    Example:

    >>> for english, german in pairs(3, kinds=("time",), split="test"):
    ...     print(english, "->", german)
    half past nine in the morning -> halb zehn morgens
    eleven o'clock -> elf Uhr
    fourteen eleven -> vierzehn Uhr elf
    """
    members = _members(kinds, split)
    sizes = [sum(len(ids) for _, ids in forms) for forms in members]
    available = sum(sizes)
    count = operator.index(count)
    if not 1 <= count <= available:
        raise ValueError(
            f"count must be from 1 to {available}, the number of pairs of these kinds "
            f"in the {split} split, not {count}. Ask for fewer pairs or more kinds."
        )
    # A seed may be negative or longer than 64 bits.
    key = _mix(np.array([operator.index(seed) % 2**64], np.uint64))
    items = []
    for forms, share in zip(members, _shares(count, sizes), strict=True):
        sizes = [len(ids) for _, ids in forms]
        for (form, ids), number in zip(forms, _shares(share, sizes), strict=True):
            # Each form has its own key; with one key, all would draw the same numbers.
            form_key = _mix(key + np.uint64(_FORMS.index(form) + 1))
            items += map(form.item, ids[_order(ids, form_key)[:number]].tolist())
    order = _order(np.arange(count, dtype=np.uint64), key)
    return [(to_english(items[i]), to_german(items[i])) for i in order.tolist()]


def capacity(kinds: str | Iterable[str] = KINDS, split: str = "train") -> int:
    """Counts the distinct sentence pairs of the corpus.

    Args:
        kinds: Kinds of sentences, some of `"cardinal"`, `"ordinal"`, `"date"` and
            `"time"`.
        split: Name of the split, `"train"`, `"validation"` or `"test"`.

    Returns:
        The number of pairs of these kinds in the split.

    Raises:
        ValueError: If a kind or the split is unknown.

    Example:

    >>> capacity()
    1651705
    """
    return sum(len(ids) for forms in _members(kinds, split) for _, ids in forms)


class _Form(NamedTuple):
    """Sentences of one form, numbered by `ids`."""

    kind: str
    ids: range
    item: Callable
    # Function from an array of ids to an array of groups. Ids of the same group belong
    # to the same split.
    group: Callable


def _cardinal(i):
    return "cardinal", i


def _ordinal(i):
    return "ordinal", i


def _date(i):
    date = datetime.date.fromordinal(i)
    return "date", None, date.day, date.month, date.year


def _date_of_week(i):
    date = datetime.date.fromordinal(i)
    return "date", date.weekday(), date.day, date.month, date.year


def _day(i):
    date = datetime.date.fromordinal(i)
    return "date", None, date.day, date.month, None


def _day_of_week(i):
    date = datetime.date.fromordinal(i // 7)
    return "date", i % 7, date.day, date.month, None


def _clock(i):
    return "time", i // 12, i % 12 * 5, "clock"


def _daypart(i):
    return "time", i // 12 % 24, i % 12 * 5, "daypart"


def _24h(i):
    return "time", i // 59, i % 59 + 1, "24h"


def _days(first_year, last_year):
    first = datetime.date(first_year, 1, 1)
    last = datetime.date(last_year, 12, 31)
    return range(first.toordinal(), last.toordinal() + 1)


def _itself(ids):
    return ids


def _hands(ids):
    return ids * 5 % 720


_DATES = _days(number_words.FIRST_YEAR, number_words.LAST_YEAR)
_DAYS = _days(number_words.LEAP_YEAR, number_words.LEAP_YEAR)
_FORMS = (
    _Form("cardinal", range(0, 100), _cardinal, _itself),
    _Form("cardinal", range(100, 1_000), _cardinal, _itself),
    _Form("cardinal", range(1_000, 10_000), _cardinal, _itself),
    _Form("cardinal", range(10_000, 100_000), _cardinal, _itself),
    _Form(
        "cardinal", range(100_000, number_words.MAX_CARDINAL + 1), _cardinal, _itself
    ),
    _Form("ordinal", range(1, 100), _ordinal, _itself),
    _Form("ordinal", range(100, 1_000), _ordinal, _itself),
    _Form("ordinal", range(1_000, 10_000), _ordinal, _itself),
    _Form("ordinal", range(10_000, number_words.MAX_ORDINAL + 1), _ordinal, _itself),
    _Form("date", _DATES, _date, _itself),
    _Form("date", _DATES, _date_of_week, _itself),
    _Form("date", _DAYS, _day, _itself),
    _Form(
        "date",
        range(7 * _DAYS.start, 7 * _DAYS.stop),
        _day_of_week,
        lambda ids: ids // 7,
    ),
    _Form("time", range(1 * 12, 13 * 12), _clock, _hands),
    # From one in the afternoon until before noon of the next day.
    _Form("time", range(13 * 12, 36 * 12), _daypart, _hands),
    _Form(
        "time",
        range(24 * 59),
        _24h,
        lambda ids: (ids // 59 * 60 + ids % 59 + 1) % 720,
    ),
)


def _members(kinds, split):
    """Returns, per kind, a list of its forms with their ids in the split."""
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ValueError(f"kinds must be some of {KINDS}, not {kinds}.")
    if split not in SPLITS:
        raise ValueError(f"split must be one of {SPLITS}, not {split!r}.")
    members = {kind: [] for kind in KINDS if kind in kinds}
    for form in _FORMS:
        if form.kind in members:
            ids = np.arange(form.ids.start, form.ids.stop, dtype=np.uint64)
            part = _mix(form.group(ids)) % np.uint64(20)
            of_part = {"train": part >= 2, "validation": part == 1, "test": part == 0}
            members[form.kind].append((form, ids[of_part[split]]))
    return list(members.values())


def _shares(count, sizes):
    """Divides `count` as equally as `sizes` allow."""
    shares = [0] * len(sizes)
    smallest_first = sorted(range(len(sizes)), key=sizes.__getitem__)
    for done, i in enumerate(smallest_first):
        shares[i] = min(sizes[i], count // (len(sizes) - done))
        count -= shares[i]
    return shares


def _order(ids, key):
    """Returns positions that permute `ids` pseudorandomly, depending on `key`."""
    # Distinct ids have distinct hashes, so there are no ties in the sort.
    return np.argsort(_mix(ids ^ key))


def _mix(x):
    """Returns the SplitMix64 hash, a bijection of the 64-bit integers."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
