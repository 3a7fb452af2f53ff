"""What a translation takes over as it is: addresses, numbers and unknown words."""

import re
from collections.abc import Collection, Iterator

from keras_vqem.text.sentences import WORD

# Addresses, without the marks that end the sentence around them.
ADDRESS = re.compile(
    r"""(?:https?://|ftp://|www\.)[^\s<>"“”]*[\w/=&#+~-]"""
    r"""|(?<![\w.@-])[\w-]++(?:\.[\w-]++)*\.(?:com|org|net|edu|gov|io|de|eu|uk)\b"""
    r"""(?:/\S*[\w/])?"""
    r"""|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+|(?<!\w)[@#]\w+"""
)
# At least two digits, so that "2 dogs" may become "zwei Hunde". The limit of the length
# keeps the time in proportion to that of a line.
NUMBER = re.compile(r"(?<!\w)[-+]?[$€£]?\d(?:[\d.,:/'’-]{0,40}\d)(?!\w)[%€]?")
# It stands for bytes of a letter that could not be read.
BROKEN = "\ufffd"


def copied_spans(
    line: str, unknown: set[str], numbers: Collection[str] = ()
) -> Iterator[tuple[int, int]]:
    """Finds what a model cannot say, and what is therefore copied.

    Args:
        line: A string.
        unknown: Characters that the model does not know. A word that has one is copied
            as a whole; signs before and after a word are copied alone.
        numbers: Numbers of two or more digits that are copied, too, such as
            "1,200".

    Yields:
        Pairs of the first place of an address, a word, signs or a number, and the place
        behind it, in order and without overlaps.

    Example:

    >>> from keras_vqem.text.copied import copied_spans
    >>> line = "Ask me@x.org, Zoë 🐕!"
    >>> [line[start:stop] for start, stop in copied_spans(line, {"ë", "🐕"})]
    ['me@x.org', 'Zoë', '🐕']
    """
    found = [match.span() for match in ADDRESS.finditer(line)]
    if numbers:
        found += [m.span() for m in NUMBER.finditer(line) if m[0] in numbers]
        found.sort()
    end = 0
    for start, stop in [*found, (len(line), len(line))]:
        if start < end:  # A number in an address.
            continue
        yield from _unknown_spans(line, end, start, unknown)
        if start < stop:
            yield start, stop
        end = stop


def _unknown_spans(line, start, stop, unknown):
    if not unknown:
        return
    for word in WORD.finditer(line, start, stop):
        places = [i for i in range(*word.span()) if line[i] in unknown]
        if not places:
            continue
        letters = [
            i for i in range(*word.span()) if line[i].isalnum() or line[i] == BROKEN
        ]
        if not letters:
            yield places[0], places[-1] + 1
        elif any(letters[0] <= place <= letters[-1] for place in places):
            # The whole word, without the marks around it.
            yield min(places[0], letters[0]), max(places[-1], letters[-1]) + 1
        else:
            for side in (
                [place for place in places if place < letters[0]],
                [place for place in places if place > letters[-1]],
            ):
                if side:
                    yield side[0], side[-1] + 1


def lost_numbers(text: str, translation: str) -> list[str]:
    """Finds the numbers of a text that its translation does not have.

    Points, commas and colons within numbers may differ, as languages do. Numbers of one
    digit do not count, as they may well be written as words.

    Args:
        text: A string.
        translation: Its translation.

    Returns:
        A list of strings, empty if no number is lost.

    Example:

    >>> from keras_vqem.text.copied import lost_numbers
    >>> lost_numbers("It cost 1,200.50 in 1984.", "Es kostete 1.200,50 im Jahr 1948.")
    ['1984']
    """
    written = [_digits(m[0]) for m in NUMBER.finditer(translation)]
    lost = []
    for match in NUMBER.finditer(text):
        digits = _digits(match[0])
        if digits in written:
            written.remove(digits)
        else:
            lost.append(match[0])
    return lost


def _digits(number):
    return "".join(filter(str.isdigit, number))
