"""SplitText: running text in sentences to translate, and all that is between them."""

import re
from collections.abc import Collection, Sequence

from keras_vqem.text.copied import copied_spans
from keras_vqem.text.lines import one_line
from keras_vqem.text.sentences import sentence_spans

# Lines are translated one by one, and so are the cells of a table.
LINE = re.compile(r"[^\n\r\t\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Signs of a list or a quoted message, at the start of a line.
LIST = re.compile(r"\s*(?:(?:[-–—*•·>#]+|\(?\d{1,3}[.)])\s+)+")
# Signs of good typography, and what a model may know in their place.
PLAIN = {
    **dict.fromkeys("‘’ʼ‚`´", "'"),
    **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("–—‐‑−", "-"),
    "…": "...",
    **dict.fromkeys("\u00a0\u202f\u2009", " "),
}
MARKS = ".!?…"
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
        numbers: Numbers of two or more digits that are copied too, because the model
            does not write them correctly.

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

    def __init__(self, text: str, unknown: str = "", numbers: Collection[str] = ()):
        self.text = text
        unknown = set(unknown)
        plain = {ord(c): PLAIN[c] for c in unknown & PLAIN.keys()}
        self._strange = unknown - PLAIN.keys()
        self._numbers = frozenset(numbers)
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
        holes = list(copied_spans(line, self._strange, self._numbers))
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
            words = one_line(translation)
            if cut and sentence[-1] not in MARKS:
                words = words.rstrip(".")
            if not words.strip():
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
