"""Scores of translations by sacreBLEU, with the signatures that make them comparable.

Texts are plain: detokenised and cased, one reference per sentence. sacrebleu is
imported when a score is computed, not with this module.
"""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class TranslationScores:
    """Corpus BLEU and chrF, with the signatures of sacrebleu.

    Attributes:
        bleu: BLEU, from 0 to 100.
        bleu_signature: sacrebleu's signature of BLEU.
        chrf: chrF, from 0 to 100.
        chrf_signature: sacrebleu's signature of chrF.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str

    def __str__(self):
        return (
            f"BLEU {self.bleu:6.2f}  {self.bleu_signature}\n"
            f"chrF {self.chrf:6.2f}  {self.chrf_signature}"
        )


def score(hypotheses: Sequence[str], references: Sequence[str]) -> TranslationScores:
    """Scores translations with BLEU and chrF.

    Args:
        hypotheses: List of strings, the translations.
        references: List of strings, one true translation per hypothesis.

    Returns:
        A `TranslationScores`. Print it for a table with the signatures.

    Raises:
        ValueError: If there is nothing to score, or the lengths differ.

    Example:

    >>> from keras_vqem.evaluation import translation_scores
    >>> scores = translation_scores.score(
    ...     ["Am dritten Mai um halb vier.", "Zwölf."],
    ...     ["Am dritten Mai um halb drei.", "Zwölf."],
    ... )
    >>> round(scores.bleu, 2)
    66.06
    """
    from sacrebleu.metrics import BLEU, CHRF

    _check(hypotheses, references)
    bleu_metric, chrf_metric = BLEU(), CHRF()
    bleu_score = bleu_metric.corpus_score(list(hypotheses), [list(references)])
    chrf_score = chrf_metric.corpus_score(list(hypotheses), [list(references)])
    return TranslationScores(
        bleu=bleu_score.score,
        bleu_signature=str(bleu_metric.get_signature()),
        chrf=chrf_score.score,
        chrf_signature=str(chrf_metric.get_signature()),
    )


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Computes corpus BLEU alone.

    Args:
        hypotheses: List of strings, the translations.
        references: List of strings, one true translation per hypothesis.

    Returns:
        BLEU as in `score`, from 0 to 100.
    """
    from sacrebleu.metrics import BLEU

    _check(hypotheses, references)
    return BLEU().corpus_score(list(hypotheses), [list(references)]).score


def _check(hypotheses, references):
    for name, texts in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(texts, str):
            raise ValueError(
                f"`{name}` must be a list of str, received one str: {texts[:40]!r}. "
                f"Put it into a list."
            )
    if len(hypotheses) != len(references):
        raise ValueError(
            f"There must be one reference per hypothesis, received "
            f"{len(hypotheses)} hypotheses and {len(references)} references."
        )
    if not hypotheses:
        raise ValueError(
            "There is nothing to score: `hypotheses` is empty. Pass at least one "
            "translation and its reference."
        )
