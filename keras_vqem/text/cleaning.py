"""clean: removes the pairs of a corpus that are not worth training on."""

import dataclasses

from keras_vqem.text.lines import is_utf8
from keras_vqem.text.parallel_corpus import ParallelCorpus

REASONS = ("not UTF-8", "empty", "too long", "length ratio", "duplicate")


@dataclasses.dataclass(frozen=True)
class CleaningSummary:
    """What `clean` removed. Printed, it is a table.

    Attributes:
        total: Number of pairs before.
        removed: Per reason, the line numbers (from 1) of the pairs removed for it.
    """

    total: int
    removed: dict[str, list[int]]

    @property
    def kept(self):
        """Number of pairs after."""
        return self.total - sum(map(len, self.removed.values()))

    def __str__(self):
        rows = [f"{'pairs':<14}{self.total:>10}"]
        for reason, lines in self.removed.items():
            first = ", ".join(map(str, lines[:5])) + (", ..." if lines[5:] else "")
            rows.append(
                f"{reason:<14}{len(lines):>10}{'  lines ' if lines else ''}{first}"
            )
        return "\n".join([*rows, f"{'kept':<14}{self.kept:>10}"])


def clean(
    corpus,
    tokenizer=None,
    max_tokens=None,
    max_characters=None,
    max_ratio=9.0,
    remove_duplicates=True,
):
    """Remove broken, empty, over-long, ill-matched and repeated pairs.

    Sentences stay as they are: pairs are kept or removed, in their order. This is
    for training data. A validation or test set is scored as it is published; clean
    it, and its scores can no longer be compared.

    A pair is removed for the first of these reasons that holds:

    - not UTF-8: a side has bytes that are not UTF-8;
    - empty: a side has nothing but white space;
    - too long: a side has more than `max_characters` or `max_tokens`;
    - length ratio: one side has more than `max_ratio` times the other's characters;
    - duplicate: the same pair, both sides, was kept before.

    Args:
        corpus: A `ParallelCorpus`.
        tokenizer: A `SentencePieceTokenizer`, needed for `max_tokens`.
        max_tokens: Bound on the ids of a side, its end symbol included; None for no
            bound.
        max_characters: Bound on the characters of a side; None for no bound.
        max_ratio: Bound on the ratio of characters; None for no bound.
        remove_duplicates: Whether pairs that are repeated are removed.

    Returns:
        A new `ParallelCorpus`, and a `CleaningSummary`.

    Example:

    >>> from keras_vqem.text import ParallelCorpus, clean
    >>> sources = ["one", "", "two", "one"]
    >>> corpus = ParallelCorpus(sources, ["eins", "x", "zwei", "eins"])
    >>> cleaned, summary = clean(corpus)
    >>> cleaned.targets
    ['eins', 'zwei']
    >>> print(summary)
    pairs                  4
    not UTF-8              0
    empty                  1  lines 2
    too long               0
    length ratio           0
    duplicate              1  lines 4
    kept                   2
    """
    if max_tokens is not None and tokenizer is None:
        raise ValueError(
            "max_tokens counts the ids of a tokenizer. Pass tokenizer=..., or bound "
            "max_characters instead."
        )
    removed = {reason: [] for reason in REASONS}
    kept, seen = [], set()
    too_many = _more_tokens(corpus, tokenizer, max_tokens)
    for index, pair in enumerate(corpus):
        shorter, longer = sorted(map(len, pair))
        if not all(map(is_utf8, pair)):
            reason = "not UTF-8"
        elif not all(map(str.strip, pair)):
            reason = "empty"
        elif (max_characters is not None and longer > max_characters) or (
            index in too_many
        ):
            reason = "too long"
        elif max_ratio is not None and longer > max_ratio * shorter:
            reason = "length ratio"
        elif remove_duplicates and pair in seen:
            reason = "duplicate"
        else:
            kept.append(pair)
            seen.add(pair)
            continue
        removed[reason].append(index + 1)
    sources, targets = zip(*kept, strict=True) if kept else ((), ())
    return ParallelCorpus(sources, targets), CleaningSummary(len(corpus), removed)


def _more_tokens(corpus, tokenizer, max_tokens):
    """Positions of pairs with a side of more than `max_tokens` ids."""
    if max_tokens is None:
        return set()
    return {
        index
        for side in (corpus.sources, corpus.targets)
        for index, ids in enumerate(tokenizer.encode_lines(side))
        if len(ids) > max_tokens
    }
