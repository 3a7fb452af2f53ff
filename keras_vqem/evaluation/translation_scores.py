"""Scores of translations by sacreBLEU, with the signatures that make them comparable.

Texts are plain: detokenised and cased, one reference per sentence. Some publications
have BLEU of lower-cased text, which is higher; it can be computed beside the cased one.
sacrebleu is imported when a score is computed, not with this module.
"""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class TranslationScores:
    """Corpus BLEU and chrF, with the signatures of sacrebleu.

    Attributes:
        bleu: BLEU, from 0 to 100.
        bleu_signature: sacrebleu's signature of BLEU.
        brevity_penalty: Factor of BLEU for translations that are shorter than the
            references, from 0 to 1.
        chrf: chrF, from 0 to 100.
        chrf_signature: sacrebleu's signature of chrF.
        bleu_lowercase: BLEU of lower-cased text, or None if it was not asked for.
        bleu_lowercase_signature: sacrebleu's signature of it, or None.
    """

    bleu: float
    bleu_signature: str
    brevity_penalty: float
    chrf: float
    chrf_signature: str
    bleu_lowercase: float | None = None
    bleu_lowercase_signature: str | None = None

    def __str__(self):
        lines = [
            f"BLEU {self.bleu:6.2f}  {self.bleu_signature}",
            f"chrF {self.chrf:6.2f}  {self.chrf_signature}",
        ]
        if self.bleu_lowercase is not None:
            line = f"BLEU {self.bleu_lowercase:6.2f}  {self.bleu_lowercase_signature}"
            lines.insert(1, line)
        return "\n".join(lines)


def score(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> TranslationScores:
    """Scores translations with BLEU and chrF.

    Args:
        hypotheses: List of strings, the translations.
        references: List of strings, one true translation per hypothesis.
        lowercase: Whether to compute BLEU of lower-cased text as well.

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
    metrics = {"bleu": BLEU(), "chrf": CHRF()}
    if lowercase:
        metrics["bleu_lowercase"] = BLEU(lowercase=True)
    found = {}
    for name, metric in metrics.items():
        result = metric.corpus_score(list(hypotheses), [list(references)])
        found[name] = result.score
        found[f"{name}_signature"] = str(metric.get_signature())
        if name == "bleu":
            found["brevity_penalty"] = result.bp
    return TranslationScores(**found)


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


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """Computes chrF of each translation by itself.

    Args:
        hypotheses: List of strings, the translations.
        references: List of strings, one true translation per hypothesis.

    Returns:
        List of chrF, from 0 to 100.

    Example:

    >>> from keras_vqem.evaluation import translation_scores
    >>> texts = ["Zwölf.", "Elf."]
    >>> found = translation_scores.sentence_chrf(texts, ["Zwölf.", "Um elf."])
    >>> found[0] > found[1]
    True
    """
    from sacrebleu.metrics import CHRF

    _check(hypotheses, references)
    metric = CHRF()
    return [
        metric.sentence_score(hypothesis, [reference]).score
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


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
