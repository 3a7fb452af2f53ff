"""Translates texts sentence by sentence, and warns of probable mistakes."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_vqem.models.translator import MAX_TOKENS, Translator
from keras_vqem.text import split_sentences


class Answer(NamedTuple):
    """Translation of one text, with its score and warnings.

    Attributes:
        translation: Translations of the sentences, joined by spaces.
        score: Mean log probability of the words, the lowest of all sentences.
        warnings: Reasons why the translation may be wrong, a list of strings.
        choices: List of pairs of a translation and its score, best first. The first
            is the translation above; there are more with `num_return_sequences`.
    """

    translation: str
    score: float
    warnings: list[str]
    choices: list[tuple[str, float]]


def answer_texts(
    model: Translator, texts: Sequence[str], batch_size: int = 64, **options: Any
) -> list[Answer]:
    """Translates texts of any length.

    Args:
        model: A translator.
        texts: List of strings, each with words.
        batch_size: Number of sentences per batch.
        **options: Options of `model.generate`.

    Returns:
        A list with one `Answer` per text.
    """
    split = [split_sentences(text) for text in texts]
    sentences = [sentence for row in split for sentence in row]
    too_long = model.tokenizer.encode(sentences).row_lengths().numpy() > MAX_TOKENS
    with warnings.catch_warnings():  # Which texts were cut is told below.
        warnings.filterwarnings("ignore", message=".* texts have more than")
        found, scores = model.translate(
            sentences, batch_size, return_scores=True, **options
        )
    unknown = model.tokenizer.unknown_characters("".join(texts))
    number = options.get("num_return_sequences")
    if number is None:
        found, scores = [[text] for text in found], [[score] for score in scores]
    answers, start = [], 0
    for text, row in zip(texts, split, strict=True):
        here = slice(start, start + len(row))
        start += len(row)
        # The first choice joins the first choices of all sentences, and so on.
        choices = [
            (
                joined([own[place] for own in found[here]]),
                lowest([own[place] for own in scores[here]]),
            )
            for place in range(number or 1)
        ]
        translation, score = choices[0]
        own = set(text)
        strange = [character for character in unknown if character in own]
        doubts = warnings_of(model, text, strange, translation, score)
        if too_long[here].any():
            doubts.insert(
                0,
                f"a sentence has more than {MAX_TOKENS} tokens, the rest of it was not "
                f"translated",
            )
        answers.append(Answer(translation, score, doubts, choices))
    return answers


def joined(translations: Sequence[str]) -> str:
    """Joins translations of sentences to one text."""
    return " ".join(filter(None, translations))


def lowest(scores: Sequence[float]) -> float:
    """Returns the lowest score that is not NaN, or NaN if there is none."""
    known = [score for score in scores if not math.isnan(score)]
    return min(known, default=math.nan)


def warnings_of(
    model: Translator,
    text: str,
    unknown: Sequence[str],
    translation: str,
    score: float,
) -> list[str]:
    """Finds reasons to doubt a translation.

    Args:
        model: Translator that wrote it.
        text: Source text.
        unknown: Characters of `text` that the tokenizer does not know.
        translation: Translation of `text`.
        score: Score of the translation.

    Returns:
        A list of strings, empty if there is no reason.
    """
    doubts = []
    if len(split_sentences(text)) > len(split_sentences(text, max_words=len(text) + 1)):
        doubts.append("a sentence is very long and was translated in parts")
    if unknown:
        listed = " ".join(unknown[:8]) + (" ..." if unknown[8:] else "")
        doubts.append(f"the model does not know the characters {listed}")
    if not translation:
        doubts.append("the translation is empty")
    elif model.low_score is not None and score < model.low_score:
        doubts.append(
            f"the translation is probably wrong: its score {score:.2f} is below "
            f"{model.low_score:.2f}, which is low for text that the model knows"
        )
    return doubts
