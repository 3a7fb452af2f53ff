"""Scores of translations by sacreBLEU, with the signatures that make them comparable.

Texts are plain: detokenised and cased, one reference per sentence. Some publications
have BLEU of lower-cased text, which is higher, or of text that is divided into words by
the rules of mteval-v14, as Tensor2Tensor's own tool had it; both can be computed beside
that of sacreBLEU's usual rules.
sacrebleu is imported when a score is computed, not with this module.
"""

import dataclasses
from collections.abc import Sequence

# Names of further BLEUs, as columns have them, and how sacreBLEU computes them.
FURTHER = {
    "lowercase": ("lower case", {"lowercase": True}),
    "international": ("international tokens", {"tokenize": "intl"}),
}


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
        bleu_international: BLEU of text divided at every sign of Unicode's punctuation
            and symbols (mteval-v14), or None if it was not asked for.
        bleu_international_signature: sacrebleu's signature of it, or None.
    """

    bleu: float
    bleu_signature: str
    brevity_penalty: float
    chrf: float
    chrf_signature: str
    bleu_lowercase: float | None = None
    bleu_lowercase_signature: str | None = None
    bleu_international: float | None = None
    bleu_international_signature: str | None = None

    def __str__(self):
        lines = []
        for name in ("bleu", *(f"bleu_{further}" for further in FURTHER), "chrf"):
            value = getattr(self, name)
            if value is not None:
                kind = "chrF" if name == "chrf" else "BLEU"
                signature = getattr(self, f"{name}_signature")
                lines.append(f"{kind} {value:6.2f}  {signature}")
        return "\n".join(lines)


def score(
    hypotheses: Sequence[str], references: Sequence[str], also: Sequence[str] = ()
) -> TranslationScores:
    """Scores translations with BLEU and chrF.

    Args:
        hypotheses: List of strings, the translations.
        references: List of strings, one true translation per hypothesis.
        also: Names of further BLEUs to compute: `"lowercase"`, `"international"`.

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
    for name in also:
        if name not in FURTHER:
            raise ValueError(
                f"`also` has names of further BLEUs, received {name!r}. Choose from "
                f"{', '.join(map(repr, FURTHER))}."
            )
        metrics[f"bleu_{name}"] = BLEU(**FURTHER[name][1])
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
