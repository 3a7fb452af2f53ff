"""Measures of several translations, against counting by hand."""

import collections
import itertools
import math

import pytest

from keras_vqem.evaluation import diversity

# Tokens are words and the full stop: 13a splits it off.
CANDIDATES = [
    ["ein Hund läuft im Schnee.", "ein Hund rennt im Schnee.", "ein Hund im Schnee."],
    ["zwei Kinder spielen Ball.", "zwei Kinder spielen Ball.", "Kinder am Ball."],
]
REFERENCES = ["ein Hund rennt durch den Schnee.", "zwei kleine Kinder spielen Ball."]


def words(text):
    return text.replace(".", " .").split()


def ngrams(tokens, n):
    return collections.Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def counts(hypothesis, references):
    """Matches and totals of 1- to 4-grams, and the closest length of a reference."""
    mine, theirs = words(hypothesis), [words(text) for text in references]
    found = []
    for n in range(1, 5):
        most = collections.Counter()
        for other in theirs:
            most |= ngrams(other, n)
        own = ngrams(mine, n)
        found.append(((own & most).total(), own.total()))
    closest = min((abs(len(o) - len(mine)), len(o)) for o in theirs)[1]
    return found, len(mine), closest


def corpus_bleu(hypotheses, references):
    """Papineni's formula; sacreBLEU's exponential smoothing where nothing matches."""
    rows = [counts(h, r) for h, r in zip(hypotheses, references, strict=True)]
    logs, smooth = [], 1.0
    for n in range(4):
        match = sum(row[0][n][0] for row in rows)
        total = sum(row[0][n][1] for row in rows)
        if match == 0:
            smooth *= 2
            match = 1 / smooth
        logs.append(math.log(match / total))
    mine, theirs = sum(row[1] for row in rows), sum(row[2] for row in rows)
    return 100 * math.exp(min(0, 1 - theirs / mine) + sum(logs) / 4)


def test_the_oracle_picks_the_closest_of_each_sentence():
    # By eye: the one with `rennt`, and the first of two that are equal.
    picked = ["ein Hund rennt im Schnee.", "zwei Kinder spielen Ball."]
    expected = corpus_bleu(picked, [[text] for text in REFERENCES])
    found = diversity.oracle_bleu(CANDIDATES, REFERENCES)
    assert found == pytest.approx(expected)
    # No other choice of candidates is better here.
    every = [
        corpus_bleu(choice, [[text] for text in REFERENCES])
        for choice in itertools.product(*CANDIDATES)
    ]
    assert found == pytest.approx(max(every)) and found > min(every)
    swapped = [texts[::-1] for texts in CANDIDATES]
    assert diversity.oracle_bleu(swapped, REFERENCES) == pytest.approx(found)


def test_self_bleu_takes_the_other_candidates_as_references():
    scores = []
    for place in range(3):
        others = [texts[:place] + texts[place + 1 :] for texts in CANDIDATES]
        scores.append(corpus_bleu([texts[place] for texts in CANDIDATES], others))
    found = diversity.self_bleu(CANDIDATES)
    assert found == pytest.approx(sum(scores) / 3)
    same = [[texts[0]] * 3 for texts in CANDIDATES]
    assert found < diversity.self_bleu(same) == pytest.approx(100)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_distinct_ngrams_are_counted_per_sentence(n):
    shares = []
    for texts in CANDIDATES:
        listed = [gram for text in texts for gram in ngrams(words(text), n).elements()]
        shares.append(len(set(listed)) / len(listed))
    assert diversity.distinct_ngrams(CANDIDATES, n) == pytest.approx(sum(shares) / 2)


def test_distinct_ngrams_of_short_and_equal_texts():
    same = [["ein Hund rennt"] * 4]
    assert diversity.distinct_ngrams(same, 1) == pytest.approx(1 / 4)
    # The second sentence has no 2-grams and does not count.
    short = [["ein Hund", "ein Tier"], ["ja", ""]]
    assert diversity.distinct_ngrams(short, 2) == 1.0
    assert diversity.distinct_ngrams([["", ""]], 1) == 0.0


def test_empty_translations_are_measured():
    empty = [["", "ein Hund rennt im Schnee."], ["", ""]]
    assert 0 <= diversity.oracle_bleu(empty, REFERENCES) < 100
    assert 0 <= diversity.self_bleu(empty) < 100


def test_what_cannot_be_measured_is_refused():
    measures = diversity.self_bleu, lambda texts: diversity.distinct_ngrams(texts, 1)
    for wrong, words in [
        (["ein Hund"], "a str in place of a list"),
        ("ein Hund", "a str in place of a list"),
        ([], "no sentences"),
        ([["a", "b"], ["c"]], r"received \[1, 2\]"),
        ([[], []], r"received \[0\]"),
    ]:
        for function in measures:
            with pytest.raises(ValueError, match=words):
                function(wrong)
    with pytest.raises(ValueError, match="num_return_sequences=2 or more"):
        diversity.self_bleu([["a"]])
    with pytest.raises(ValueError, match="2 lists of candidates and 1 references"):
        diversity.oracle_bleu(CANDIDATES, REFERENCES[:1])
    with pytest.raises(ValueError, match="`n` must be a whole number"):
        diversity.distinct_ngrams(CANDIDATES, 0)
