"""clean: removes sentence pairs that are not worth training on."""

import dataclasses
import hashlib

import numpy as np

from keras_vqem.text.lines import is_utf8
from keras_vqem.text.parallel_corpus import ParallelCorpus
from keras_vqem.text.sentencepiece_tokenizer import SentencePieceTokenizer

REASONS = ("not UTF-8", "empty", "too long", "length ratio", "duplicate")


@dataclasses.dataclass(frozen=True)
class CleaningSummary:
    """Report of what `clean` removed; `print` shows it as a table.

    Attributes:
        total: Number of pairs before cleaning.
        removed: Dict from each reason to the line numbers (from 1) of the pairs that
            were removed for it.
    """

    total: int
    removed: dict[str, list[int]]

    @property
    def kept(self) -> int:
        """Number of pairs after cleaning."""
        return self.total - sum(map(len, self.removed.values()))

    def __str__(self) -> str:
        rows = [f"{'pairs':<14}{self.total:>10}"]
        for reason, lines in self.removed.items():
            first = ", ".join(map(str, lines[:5])) + (", ..." if lines[5:] else "")
            rows.append(
                f"{reason:<14}{len(lines):>10}{'  lines ' if lines else ''}{first}"
            )
        return "\n".join([*rows, f"{'kept':<14}{self.kept:>10}"])


def clean(
    corpus: ParallelCorpus,
    tokenizer: SentencePieceTokenizer | None = None,
    max_tokens: int | None = None,
    max_characters: int | None = None,
    max_ratio: float | None = 9.0,
    remove_duplicates: bool = True,
) -> tuple[ParallelCorpus, CleaningSummary]:
    """Removes broken, empty, over-long, ill-matched and repeated pairs.

    Pairs are kept or removed as a whole: sentences and their order do not change.
    Clean only training data. Scores on a cleaned validation or test set cannot be
    compared with scores on the published one.

    A pair is removed for the first of these reasons that holds:

    - not UTF-8: a side contains bytes that are not UTF-8;
    - empty: a side contains only white space;
    - too long: a side has more than `max_characters` or `max_tokens`;
    - length ratio: one side has more than `max_ratio` times the characters of the
      other;
    - duplicate: an earlier pair with the same two sides was kept.

    Args:
        corpus: `ParallelCorpus` to clean.
        tokenizer: `SentencePieceTokenizer` that counts tokens; needed only for
            `max_tokens`.
        max_tokens: Maximum number of tokens per side, end of sentence included. None
            sets no limit.
        max_characters: Maximum number of characters per side. None sets no limit.
        max_ratio: Maximum ratio between the numbers of characters of the two sides.
            None sets no limit.
        remove_duplicates: Whether to remove repeated pairs.

    Returns:
        A tuple of the new `ParallelCorpus` and a `CleaningSummary`.

    Raises:
        ValueError: If `max_tokens` is given without a tokenizer.

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
            f"max_tokens={max_tokens} needs a tokenizer to count tokens. Pass "
            "tokenizer=..., or set max_characters instead."
        )
    removed = {reason: [] for reason in REASONS}
    kept = np.ones(len(corpus), bool)
    too_many = _more_tokens(corpus, tokenizer, max_tokens)
    hashes = bytearray()  # A set of millions of pairs would take a hundred times more.
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
        else:
            hashes += _hash(*pair)
            continue
        removed[reason].append(index + 1)
        kept[index] = False
    if remove_duplicates:
        repeats = np.flatnonzero(kept)[_repeats(hashes)]
        removed["duplicate"] = (repeats + 1).tolist()
        kept[repeats] = False
    cleaned = corpus.take(np.flatnonzero(kept))
    return cleaned, CleaningSummary(len(corpus), removed)


def _hash(source, target):
    # The length says where the source ends.
    text = f"{len(source)} {source}{target}"
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _repeats(hashes):
    """Returns the places of hashes that have occurred before, sorted."""
    hashes = np.frombuffer(hashes, np.uint64).reshape(-1, 2)
    order = np.lexsort(hashes.T)  # Keeps the order of equal ones.
    equal = (hashes[order[1:]] == hashes[order[:-1]]).all(axis=1)
    return np.sort(order[1:][equal])


def _more_tokens(corpus, tokenizer, max_tokens):
    """Returns the indices of pairs with more than `max_tokens` tokens on a side."""
    if max_tokens is None:
        return set()
    found = set()
    for side in (corpus.sources, corpus.targets):
        start = 0
        for ids in tokenizer.encode_chunks(side):
            lengths = ids.row_lengths().numpy()
            found.update((np.flatnonzero(lengths > max_tokens) + start).tolist())
            start += len(lengths)
    return found
