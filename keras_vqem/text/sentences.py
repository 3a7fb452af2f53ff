"""Running text in sentences, one of which is what a translator expects."""

import re

# A point after these ends no sentence. Single letters, as in "J. Smith", end none.
ABBREVIATIONS = frozenset(
    "approx ca capt col dept dr etc fig gen gov jr lt mr mrs ms mt no nr pp prof rev "
    "sen sgt sr st vol vs bzw evtl hr inkl str usw".split()
)
# The end of a sentence: marks, quotes or brackets that close, then a space. A match
# starts with the first of several marks and never goes back, so that a million marks in
# a line take no longer than other text.
END = re.compile(r"""(?<![.!?…])([.!?…]++)["'”“’»)\]]*+\s++|[。！？]++\s*+""")
WORD = re.compile(r"\S+")
# What a sentence may begin with, after quotes and brackets that open.
START = re.compile(r"""["'“‘„«(\[¿¡]*[^\W_a-zß-öø-ÿ]""")


def split_sentences(text: str, max_words: int = 50) -> list[str]:
    """Splits text into its sentences.

    A sentence ends with a full stop, an exclamation or question mark or an ellipsis,
    if what follows may begin another one. Abbreviations and initials do not end one.
    Rules this simple err at times: they suit text that is translated sentence by
    sentence and joined again.

    Args:
        text: A string.
        max_words: Number of words after which a sentence is broken in two, behind its
            last comma, semicolon or colon before that, if there is one in the second
            half.

    Returns:
        A list of strings that hold all words of the text in their order; empty for a
        text without words.

    Example:

    >>> from keras_vqem.text import split_sentences
    >>> split_sentences("Mr. Smith waits. Two dogs play in the snow! One is brown.")
    ['Mr. Smith waits.', 'Two dogs play in the snow!', 'One is brown.']
    """
    spans = sentence_spans(text, max_words)
    return [" ".join(text[start:stop].split()) for start, stop in spans]


def sentence_spans(text: str, max_words: int = 50) -> list[tuple[int, int]]:
    """Finds the places of the sentences in a text.

    Args:
        text: A string.
        max_words: Number of words after which a sentence is broken in two, as in
            `split_sentences`.

    Returns:
        A list of pairs of the first place of a sentence and the place behind it. No
        sentence begins or ends with a space.

    Example:

    >>> from keras_vqem.text.sentences import sentence_spans
    >>> sentence_spans(" It rains.  Why? ")
    [(1, 10), (12, 16)]
    """
    if max_words < 1:
        raise ValueError(f"`max_words` must be at least 1, received {max_words}.")
    spans, start = [], 0
    for end in END.finditer(text):
        if _ends(text, start, end):
            spans.append((start, end.end()))
            start = end.end()
    spans.append((start, len(text)))
    return [part for span in spans for part in _broken(text, *span, max_words)]


def _ends(text, start, end):
    """Whether a match of `END` ends the sentence that begins at `start`."""
    if end[1] is None:  # Chinese and Japanese marks have no other use.
        return True
    if not START.match(text, end.end()):
        return False
    if end[1] != ".":
        return True
    # The word before the mark; to split the whole sentence each time would take long.
    stop = end.start()
    while stop > start and text[stop - 1].isspace():
        stop -= 1
    first = stop
    while first > start and not text[first - 1].isspace():
        first -= 1
    last = text[first:stop].lstrip("\"'“‘„«([")
    return len(last) != 1 and last.lower() not in ABBREVIATIONS and "." not in last


def _broken(text, start, stop, max_words):
    """Spans of at most `max_words` words within a span."""
    words = [word.span() for word in WORD.finditer(text, start, stop)]
    first = 0
    while len(words) - first > max_words:
        half, last = first + max_words // 2, first + max_words
        places = [i for i in range(half, last) if text[words[i][1] - 1] in ",;:"]
        cut = places[-1] + 1 if places else last
        yield words[first][0], words[cut - 1][1]
        first = cut
    if first < len(words):
        yield words[first][0], words[-1][1]
