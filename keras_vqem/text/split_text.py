"""SplitText: running text in sentences to translate, and all that is between them."""

import re
from collections.abc import Sequence

from keras_vqem.text.lines import one_line
from keras_vqem.text.sentences import WORD, sentence_spans

# Lines are translated one by one, and so are the cells of a table.
LINE = re.compile(r"[^\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Signs of a list or a quoted message, at the start of a line.
LIST = re.compile(r"\s*(?:(?:[-–—*•·>#]+|\(?\d{1,3}[.)])\s+)+")
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
# Signs of good typography, and what a model may know in their place.
PLAIN = {
    **dict.fromkeys("‘’ʼ‚`´", "'"),
    **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("–—‐‑−", "-"),
    "…": "...",
    **dict.fromkeys("\u00a0\u202f\u2009", " "),
}
MARKS = ".!?…"
BROKEN = "\ufffd"
# What stays with an address before it.
AFTER = ".,;:!?…)]"


class SplitText:
    """A text as sentences to translate, and the rest that stays as it is.

    `join` puts translations in the places of the sentences. White space and empty lines
    between sentences stay, and so do the signs of lists. Copied as they are, and cut
    out of the sentences around them: addresses (URLs, e-mail, @names and #tags), and
    words and signs with characters that the model does not know, such as emoji. Quotes,
    dashes and spaces of good typography that it does not know are replaced by plain
    ones. A line break ends a sentence.

    Args:
        text: A string.
        unknown: Characters that the model does not know, such as
            `tokenizer.unknown_characters(text)`.
        copy_numbers: Whether numbers of two or more digits are copied too, for models
            that do not write them correctly.

    Attributes:
        sentences: List of strings to translate, each with letters or digits.
        copied: List of the addresses, words and signs that are copied, in their order.
        is_broken: Whether a sentence was so long that it was broken into parts.

    Example:

    >>> from keras_vqem.text import SplitText
    >>> text = SplitText("A dog runs.\\n\\n- Two men wait at www.dogs.org 🐕", "🐕")
    >>> text.sentences
    ['A dog runs.', 'Two men wait at']
    >>> text.copied
    ['www.dogs.org', '🐕']
    >>> text.join(["Ein Hund rennt.", "Zwei Männer warten auf"])
    'Ein Hund rennt.\\n\\n- Zwei Männer warten auf www.dogs.org 🐕'
    """

    def __init__(self, text: str, unknown: str = "", copy_numbers: bool = False):
        self.text = text
        unknown = set(unknown)
        plain = {ord(c): PLAIN[c] for c in unknown & PLAIN.keys()}
        self._strange = unknown - PLAIN.keys()
        self._copied = [ADDRESS, *([NUMBER] if copy_numbers else [])]
        self.sentences, self.copied, self.is_broken = [], [], False
        # Where the sentences are, and whether something was cut off behind each.
        self._spans, self._is_cut = [], []
        for line in LINE.finditer(text):
            self._add_line(*line.span(), plain)

    def _add_line(self, start, stop, plain):
        sign = LIST.match(self.text, start, stop)
        start = sign.end() if sign else start
        line = self.text[start:stop]
        # A mark in an address ends no sentence.
        holes = sorted(self._holes(line))
        masked = _masked(line, holes)
        spans = sentence_spans(masked)
        whole = sentence_spans(masked, len(line) + 1)
        self.is_broken |= len(spans) > len(whole)
        left = iter([*holes, (len(line), len(line))])
        first, last = next(left)
        for place, end in spans:
            while first < end:
                self._add(start + place, start + first, plain, cut=True)
                place, (first, last) = last, next(left)
                place = min(place, end)
            self._add(start + place, start + end, plain, cut=False)
        self.copied += [line[first:last] for first, last in holes]

    def _add(self, start, stop, plain, cut):
        behind = start and not self.text[start - 1].isspace()
        while start < stop and (
            self.text[start].isspace() or (behind and self.text[start] in AFTER)
        ):
            start += 1
        while start < stop and self.text[stop - 1].isspace():
            stop -= 1
        if any(map(str.isalnum, self.text[start:stop])):
            sentence = " ".join(self.text[start:stop].split())
            self.sentences.append(sentence.translate(plain))
            self._spans.append((start, stop))
            self._is_cut.append(cut)

    def _holes(self, line):
        """Spans of what is copied, which do not overlap."""
        taken = 0
        found = sorted(m.span() for p in self._copied for m in p.finditer(line))
        for first, last in [*found, (len(line), len(line))]:
            if first < taken:
                continue
            yield from self._strange_words(line, taken, first)
            if first < last:
                yield first, last
            taken = last

    def _strange_words(self, line, start, stop):
        """Spans of words with unknown characters, or of signs around a known word."""
        if not self._strange:
            return
        for word in WORD.finditer(line, start, stop):
            first, last = word.span()
            places = [i for i in range(first, last) if line[i] in self._strange]
            if not places:
                continue
            # U+FFFD stands for a byte of a letter that could not be read.
            letters = [
                i for i in range(first, last) if line[i].isalnum() or line[i] == BROKEN
            ]
            if not letters or any(letters[0] <= i <= letters[-1] for i in places):
                # The whole word, without the marks around it.
                inner = [*places, *letters]
                yield min(inner), max(inner) + 1
                continue
            for side in (
                [i for i in places if i < letters[0]],
                [i for i in places if i > letters[-1]],
            ):
                if side:
                    yield side[0], side[-1] + 1

    def join(self, translations: Sequence[str]) -> str:
        """Returns the text with its sentences replaced.

        Args:
            translations: List of strings, one per sentence. An empty one leaves no
                double space behind. Line breaks in them become spaces.

        Returns:
            A string.
        """
        return "".join(self.parts(translations))

    def parts(self, translations: Sequence[str]) -> list[str]:
        """Returns what `join` joins.

        Args:
            translations: List of strings, one per sentence.

        Returns:
            A list of strings: what stands before the first sentence, its translation,
            what stands before the second, and so on, and what stands after the last.
        """
        parts, end = [], 0
        for translation, (start, stop), sentence, cut in zip(
            translations, self._spans, self.sentences, self._is_cut, strict=True
        ):
            # Some languages write no space between sentences.
            gap = self.text[end:start] or (" " if end else "")
            words = one_line(translation).strip(" ")
            if cut and sentence[-1] not in MARKS:
                words = words.rstrip(".")
            if not words:
                gap = gap.removesuffix(" ")
            parts += [gap, words]
            end = stop
        return [*parts, self.text[end:]]


def _masked(line, holes):
    """The line with letters in the place of what is copied."""
    parts, end = [], 0
    for first, last in holes:
        parts += [line[end:first], "X" * (last - first)]
        end = last
    return "".join([*parts, line[end:]])


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

    >>> from keras_vqem.text.split_text import lost_numbers
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
