"""Measures of several translations per sentence: how good the best, how different all.

Candidates are lists of equally many plain texts per sentence, best first. Words are
those of sacreBLEU's 13a tokenizer, cased. sacrebleu is imported when a score is
computed, not with this module.
"""

from collections.abc import Sequence

import numpy as np

from keras_vqem.checks import whole_number
from keras_vqem.evaluation import translation_scores

Candidates = Sequence[Sequence[str]]


def oracle_bleu(candidates: Candidates, references: Sequence[str]) -> float:
    """Computes corpus BLEU of the candidates that are closest to their references.

    It is the BLEU of a reader who knows the reference and picks, for each sentence,
    the candidate with the highest sentence BLEU (sacreBLEU's, smoothed, with the
    effective order). Of equals, the earlier one is picked.

    Args:
        candidates: List of lists of strings, the translations of each sentence.
        references: List of strings, one true translation per sentence.

    Returns:
        BLEU, from 0 to 100.

    Example:

    >>> from keras_vqem.evaluation import diversity
    >>> candidates = [["Ein Hund läuft im Schnee.", "Ein Hund rennt im Schnee."]]
    >>> round(diversity.oracle_bleu(candidates, ["Ein Hund rennt im Schnee."]), 2)
    100.0
    """
    from sacrebleu.metrics import BLEU

    _check(candidates)
    if len(candidates) != len(references):
        raise ValueError(
            f"There must be one reference per sentence, received {len(candidates)} "
            f"lists of candidates and {len(references)} references."
        )
    metric = BLEU(effective_order=True)
    picked = []
    for texts, reference in zip(candidates, references, strict=True):
        scores = [metric.sentence_score(text, [reference]).score for text in texts]
        picked.append(texts[int(np.argmax(scores))])
    return translation_scores.bleu(picked, references)


def self_bleu(candidates: Candidates) -> float:
    """Computes how alike the candidates of a sentence are.

    The first candidates of all sentences are scored by corpus BLEU with the other
    candidates as references, then the second candidates, and so on. The result is the
    mean. 100 means that all candidates of a sentence are the same.

    Args:
        candidates: List of lists of at least two strings, the translations of each
            sentence.

    Returns:
        BLEU, from 0 to 100. Lower is more diverse.

    Example:

    >>> from keras_vqem.evaluation import diversity
    >>> round(diversity.self_bleu([["Ein Hund rennt los.", "Ein Hund rennt los."]]), 2)
    100.0
    """
    from sacrebleu.metrics import BLEU

    number = _check(candidates)
    if number < 2:
        raise ValueError(
            "`self_bleu` compares the candidates of a sentence, received one per "
            "sentence. Pass num_return_sequences=2 or more to `translate`."
        )
    places = [list(texts) for texts in zip(*candidates, strict=True)]
    scores = [
        BLEU().corpus_score(texts, places[:place] + places[place + 1 :]).score
        for place, texts in enumerate(places)
    ]
    return float(np.mean(scores))


def distinct_ngrams(candidates: Candidates, n: int) -> float:
    """Computes the share of n-grams that differ among the candidates of a sentence.

    For each sentence, the number of different n-grams in all its candidates is
    divided by the number of n-grams in all its candidates, repeats counted. The
    result is the mean over sentences; those whose candidates are all shorter than n
    words are left out. With k equal candidates without repeated n-grams it is 1/k.

    Args:
        candidates: List of lists of strings, the translations of each sentence.
        n: Number of words per n-gram.

    Returns:
        A share from 0 to 1, or 0 if there is no n-gram at all. Higher is more diverse.

    Example:

    >>> from keras_vqem.evaluation import diversity
    >>> diversity.distinct_ngrams([["Ein Hund", "Ein Tier"]], n=1)
    0.75
    """
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    _check(candidates)
    n = whole_number("n", n, 1)
    tokenize, shares = Tokenizer13a(), []
    for texts in candidates:
        words = [tokenize(text.rstrip()).split() for text in texts]
        ngrams = [
            tuple(own[start : start + n])
            for own in words
            for start in range(len(own) - n + 1)
        ]
        if ngrams:
            shares.append(len(set(ngrams)) / len(ngrams))
    return float(np.mean(shares)) if shares else 0.0


def _check(candidates):
    """Returns the number of candidates per sentence."""
    if any(isinstance(texts, str) for texts in [candidates, *candidates]):
        raise ValueError(
            "`candidates` must be a list of lists of str, received a str in place of a "
            "list. Pass num_return_sequences to `translate`."
        )
    numbers = sorted({len(texts) for texts in candidates})
    if len(numbers) != 1 or not numbers[0]:
        raise ValueError(
            f"Every sentence must have the same number of candidates, at least one; "
            f"received {numbers or 'no sentences'}. Pass what `translate` returns with "
            f"num_return_sequences."
        )
    return numbers[0]
