"""What the first code of a `LatentNMT` does to a text, and names for such codes.

Each sentence is translated once with every code in the first place; the predictor goes
on from there. What changes with the code is counted: length, first word, word order,
words, and the form of address (`keras_vqem.evaluation.address`).
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from keras_vqem.evaluation import address, codes
from keras_vqem.evaluation.markdown import markdown_table
from keras_vqem.models import LatentNMT
from keras_vqem.text import ParallelCorpus

# A code gets the name of a form if at least this many of its translations have a form,
# and at least this share of them has that form.
MIN_FORMED, MIN_SHARE = 20, 0.6
TYPICAL = 8
_WORD = re.compile(r"\w+(?:['’-]\w+)*")


@dataclasses.dataclass(frozen=True)
class TypicalWord:
    """A word that one code writes more often than the other codes do.

    Attributes:
        word: The word, in upper and lower case as written.
        count: Number of times that the code writes it.
        others: Mean number of times that another code writes it.
        log_odds: Logarithm of the ratio of the odds of the word, with the code and
            with the other codes, each count increased by 0.5.
    """

    word: str
    count: int
    others: float
    log_odds: float


@dataclasses.dataclass(frozen=True)
class CodeEffect:
    """What translations are like that begin with one code.

    Attributes:
        code: The code.
        first: Number of references whose own codes begin with it.
        words: Mean number of words per translation.
        unchanged: Share of translations that are those of the predicted codes.
        first_word: Share of translations whose first word is another one.
        word_order: Share of translations in which words that both translations have
            once stand in another order.
        forms: Dict with the numbers of translations per form of address, of sources
            that address the reader, as `address.count_forms` returns it.
        typical: Words that come up more than with other codes, the surest first.
    """

    code: int
    first: int
    words: float
    unchanged: float
    first_word: float
    word_order: float
    forms: dict[str, int]
    typical: tuple[TypicalWord, ...]

    @property
    def formed(self) -> int:
        """Number of translations that have a form of address, or several."""
        return formed(self.forms)

    def share(self, form: str) -> float:
        """Returns the share of a form among translations that have a form."""
        return self.forms[form] / self.formed if self.formed else 0.0


@dataclasses.dataclass(frozen=True)
class CodeEffects:
    """Effects of the first code on the translations of a corpus.

    Attributes:
        sentences: Number of sentences translated with each code.
        addressed: Number of sentences that address the reader.
        words: Mean number of words per translation, over all codes measured.
        predicted_words: The same for predicted codes.
        predicted_forms: Forms of address of the translations from predicted codes.
        reference_forms: Forms of address of the references.
        codes: A `CodeEffect` per code, the code that most references begin with first.
    """

    sentences: int
    addressed: int
    words: float
    predicted_words: float
    predicted_forms: dict[str, int]
    reference_forms: dict[str, int]
    codes: tuple[CodeEffect, ...]


def measure(
    model: LatentNMT,
    corpus: ParallelCorpus,
    tried: Sequence[int] | None = None,
    min_first: int = 5,
    batch_size: int = 128,
) -> CodeEffects:
    """Measures what each first code does to translations.

    Args:
        model: A `keras_vqem.models.LatentNMT`. It decodes with its stored options.
        corpus: Sentences to translate and their references.
        tried: List of codes. None takes all that at least `min_first` references
            begin with.
        min_first: Number of references that begin with a code, for `tried=None`.
        batch_size: Number of sentences per batch.

    Returns:
        A `CodeEffects`.

    Raises:
        ValueError: If no code is to be tried.
    """
    found = codes.encode(model, corpus.sources, corpus.targets, batch_size)
    first = Counter(int(row[0]) for row in found if len(row))
    if tried is None:
        tried = [code for code, count in first.items() if count >= min_first]
    if not len(tried) or not len(corpus):
        raise ValueError(
            f"There is no code to try: none comes first in {min_first} of the "
            f"{len(corpus)} references. Lower `min_first`, or pass more sentences."
        )
    tried = sorted(map(int, tried), key=lambda code: (-first[code], code))
    number = len(corpus)
    # All in one call, and so in one graph.
    texts = codes.translate(
        model,
        corpus.sources * (1 + len(tried)),
        np.repeat([-1, *tried], number),
        batch_size,
    )
    predicted, texts = texts[:number], texts[number:]
    written = {
        code: texts[k * number : (k + 1) * number] for k, code in enumerate(tried)
    }
    return compare(corpus, predicted, written, first)


def compare(
    corpus: ParallelCorpus,
    predicted: Sequence[str],
    written: dict[int, Sequence[str]],
    first: dict[int, int],
) -> CodeEffects:
    """Compares translations that begin with given codes.

    Args:
        corpus: The sentences and their references.
        predicted: List of translations from predicted codes.
        written: Dict from codes to lists of translations that begin with them.
        first: Dict from codes to the number of references that begin with them.

    Returns:
        A `CodeEffects`.
    """
    you = [i for i, text in enumerate(corpus.sources) if address.addresses_reader(text)]

    def forms(texts):
        return address.count_forms(texts[i] for i in you)

    typical = typical_words(written)
    effects = tuple(
        CodeEffect(
            code=code,
            first=first.get(code, 0),
            words=_mean_words(texts),
            unchanged=_share(lambda a, b: a == b, predicted, texts),
            first_word=_share(_first_word_differs, predicted, texts),
            word_order=_share(word_order_differs, predicted, texts),
            forms=forms(texts),
            typical=typical[code],
        )
        for code, texts in written.items()
    )
    return CodeEffects(
        sentences=len(corpus),
        addressed=len(you),
        words=float(np.mean([effect.words for effect in effects])),
        predicted_words=_mean_words(predicted),
        predicted_forms=forms(predicted),
        reference_forms=forms(corpus.targets),
        codes=effects,
    )


def formed(forms: dict[str, int]) -> int:
    """Returns how many of the texts counted by `address.count_forms` have a form."""
    return sum(forms.values()) - forms["neither"]


def word_order_differs(one: str, other: str) -> bool:
    """Returns whether words that both texts have once stand in another order.

    Example:

    >>> word_order_differs("Heute kommt er.", "Er kommt heute nicht.")
    True
    >>> word_order_differs("Kommst du heute?", "Kommen Sie heute?")
    False
    """
    sides = [[word.lower() for word in _words(text)] for text in (one, other)]
    counts = [Counter(words) for words in sides]
    common = {w for w in counts[0] if counts[0][w] == counts[1][w] == 1}
    first, second = ([word for word in words if word in common] for words in sides)
    return first != second


def typical_words(
    written: dict[int, Sequence[str]], most: int = TYPICAL
) -> dict[int, tuple[TypicalWord, ...]]:
    """Finds the words that each code writes more than the other codes.

    Words are ordered by the log odds ratio divided by its standard error, so that a
    word that came up twice by chance is not the first.

    Args:
        written: Dict from codes to lists of translations of the same sentences.
        most: Maximum number of words per code.

    Returns:
        Dict from codes to tuples of `TypicalWord`. With a single code they are empty.

    Example:

    >>> found = typical_words({0: ["Haben Sie Zeit?"], 1: ["Hast du Zeit?"]})
    >>> [typical.word for typical in found[1]]
    ['Hast', 'du']
    """
    counts = {
        code: Counter(word for text in texts for word in _words(text))
        for code, texts in written.items()
    }
    total = sum(counts.values(), Counter())
    found = {}
    for code, own in counts.items():
        size, others = own.total(), total.total() - own.total()
        scored = []
        for word, count in own.items():
            elsewhere = total[word] - count
            a, b = count + 0.5, elsewhere + 0.5
            odds = math.log(a / (size - count + 0.5))
            odds -= math.log(b / (others - elsewhere + 0.5))
            if odds > 0 and len(counts) > 1:
                mean = elsewhere / (len(counts) - 1)
                typical = TypicalWord(word, count, mean, odds)
                scored.append((odds / math.sqrt(1 / a + 1 / b), typical))
        scored.sort(key=lambda pair: -pair[0])
        found[code] = tuple(typical for _, typical in scored[:most])
    return found


def name_codes(
    effects: CodeEffects, min_formed: int = MIN_FORMED, min_share: float = MIN_SHARE
) -> dict[str, int]:
    """Chooses the codes that deserve the names of forms of address.

    The name of a form goes to the code with the highest share of that form among its
    translations that have a form. A form without a clear code gets no name.

    Args:
        effects: A `CodeEffects`.
        min_formed: Number of a code's translations that must have a form.
        min_share: Share of these that must have the form of the name.

    Returns:
        Dict with some of `"formal"` (Sie), `"informal"` (du) and `"plural"` (ihr), and
        their codes: the `styles` of a `LatentNMT`.
    """
    clear = [effect for effect in effects.codes if effect.formed >= min_formed]
    names = {}
    for style, form in address.STYLES.items():
        # Of equal shares, the code that more references begin with.
        best = max(clear, key=lambda e: (e.share(form), e.first), default=None)
        if best is not None and best.share(form) >= min_share:
            names[style] = best.code
    return names


def table(effects: CodeEffects, names: dict[str, int] | None = None) -> str:
    """Writes effects as a Markdown table.

    Args:
        effects: A `CodeEffects`.
        names: Dict from names to codes, as `name_codes` returns it. None for no names.

    Returns:
        The table as text, with a row per code, and rows for predicted codes and
        references.
    """
    by_code = {code: name for name, code in (names or {}).items()}
    columns = ["code", "name", "first in references", "words", "unchanged"]
    columns += ["other first word", "other order", "du", "Sie", "ihr", "both"]
    columns += ["neither", "typical words"]
    rows = []
    for effect in effects.codes:
        difference = effect.words - effects.words
        row = [str(effect.code), by_code.get(effect.code, "")]
        row += [str(effect.first), f"{effect.words:.1f} ({difference:+.1f})"]
        shares = effect.unchanged, effect.first_word, effect.word_order
        row += [f"{share:.0%}" for share in shares]
        row += [str(effect.forms[form]) for form in columns[7:12]]
        row += [", ".join(_said(typical) for typical in effect.typical)]
        rows.append(row)
    for name, words, forms in (
        ("predicted", f"{effects.predicted_words:.1f}", effects.predicted_forms),
        ("references", "", effects.reference_forms),
    ):
        counts = [str(forms[form]) for form in columns[7:12]]
        rows.append([name, "", "", words, "", "", "", *counts, ""])
    return markdown_table(columns, rows)


def _words(text):
    return _WORD.findall(text)


def _said(typical):
    return f"{typical.word} {typical.count}:{typical.others:.0f}"


def _mean_words(texts):
    return float(np.mean([len(_words(text)) for text in texts]))


def _share(holds, predicted, texts):
    return float(np.mean([holds(*pair) for pair in zip(predicted, texts, strict=True)]))


def _first_word_differs(one, other):
    one, other = (_words(text)[:1] for text in (one, other))
    return one != other
