"""BLEU against the formula, and the errors."""

import math
import subprocess
import sys

import pytest

from keras_vqem.evaluation import translation_scores
from keras_vqem.evaluation.translation_scores import score

HYPOTHESES = ["Am dritten Mai um halb vier.", "Zwölf."]
REFERENCES = ["Am dritten Mai um halb drei.", "Zwölf."]


def test_bleu_by_hand():
    # Tokens: 7 and 2 on both sides, one wrong; so no brevity penalty.
    precisions = [8 / 9, 5 / 7, 3 / 5, 2 / 4]
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu == pytest.approx(100 * math.prod(precisions) ** 0.25)
    assert translation_scores.bleu(HYPOTHESES, REFERENCES) == scores.bleu
    assert 0 < scores.chrf < 100


def test_a_short_translation_pays_the_brevity_penalty():
    # All 5 tokens right of 8.
    found = score(["Am dritten Mai um halb"], ["Am dritten Mai um halb drei früh."])
    assert found.bleu == pytest.approx(100 * math.exp(1 - 8 / 5))
    assert found.brevity_penalty == pytest.approx(math.exp(1 - 8 / 5))
    assert score(HYPOTHESES, REFERENCES).brevity_penalty == 1


def test_right_is_100_and_case_matters():
    assert score(REFERENCES, REFERENCES).bleu == pytest.approx(100)
    assert score(REFERENCES, REFERENCES).chrf == pytest.approx(100)
    lower = [text.lower() for text in REFERENCES]
    assert score(lower, REFERENCES).bleu < 100


def test_numbers_are_shown_with_their_signatures():
    scores = score(HYPOTHESES, REFERENCES)
    first, second = str(scores).splitlines()
    assert first.split() == ["BLEU", f"{scores.bleu:.2f}", scores.bleu_signature]
    assert second.split() == ["chrF", f"{scores.chrf:.2f}", scores.chrf_signature]
    assert scores.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|")
    assert scores.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|")


def test_lower_case_beside_the_cased_score():
    lower = [text.lower() for text in HYPOTHESES]
    plain = score(HYPOTHESES, REFERENCES)
    assert plain.bleu_lowercase is plain.bleu_lowercase_signature is None
    scores = score(lower, REFERENCES, also=["lowercase"])
    # By hand: what cased BLEU says if both sides are lower-cased.
    expected = score(lower, [text.lower() for text in REFERENCES]).bleu
    assert scores.bleu_lowercase == pytest.approx(expected)
    assert scores.bleu == score(lower, REFERENCES).bleu < scores.bleu_lowercase
    assert scores.bleu_lowercase_signature.startswith("nrefs:1|case:lc|eff:no|tok:13a|")
    lines = str(scores).splitlines()
    assert len(lines) == 3 and lines[1].endswith(scores.bleu_lowercase_signature)


def test_tokens_of_mteval_beside_those_of_sacrebleu():
    # A hyphen between letters divides words there, and does not in 13a.
    pair = ["Ein schwarz-weißer Hund läuft."], ["Ein schwarz-weiser Hund läuft."]
    spaced = [[text.replace("-", " - ") for text in side] for side in pair]
    scores = score(*pair, also=["international"])
    assert scores.bleu == score(*pair).bleu != scores.bleu_international
    assert scores.bleu_international == pytest.approx(score(*spaced).bleu)
    assert "|tok:intl|" in scores.bleu_international_signature
    assert scores.bleu_lowercase is None
    with pytest.raises(ValueError, match="Choose from 'lowercase', 'international'"):
        score(*pair, also=["tokenised"])


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="1 hypotheses and 2 references"):
        score(HYPOTHESES[:1], REFERENCES)
    with pytest.raises(ValueError, match="nothing to score"):
        score([], [])
    with pytest.raises(ValueError, match="`hypotheses` must be a list .*Put it into"):
        score("Zwölf.", REFERENCES)
    with pytest.raises(ValueError, match="`references` must be a list"):
        translation_scores.bleu(HYPOTHESES, "Zwölf.")


def test_sacrebleu_is_imported_when_used():
    program = (
        "import sys; from keras_vqem.evaluation import translation_scores; "
        "assert 'sacrebleu' not in sys.modules; "
        "translation_scores.score(['a'], ['a']); assert 'sacrebleu' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
