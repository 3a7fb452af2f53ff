"""Texts translated sentence by sentence, with warnings where that may go wrong."""

import math
import typing

from keras_vqem.text import split_sentences


class Answer(typing.NamedTuple):
    """What is to be said about one text.

    Attributes:
        translation: Translations of the sentences, joined by spaces.
        score: Mean log probability of the words; the lowest of several sentences.
        warnings: Strings that say why the translation may be wrong.
    """

    translation: str
    score: float
    warnings: list


def answer_texts(model, texts, batch_size=64, **options):
    """Translates texts of any length.

    Args:
        model: A translator.
        texts: A list of strings, each with words.
        batch_size: Number of sentences translated at a time.
        **options: Options of `model.generate`.

    Returns:
        A list of `Answer`.
    """
    split = [split_sentences(text) for text in texts]
    sentences = [sentence for row in split for sentence in row]
    found, scores = model.translate(
        sentences, batch_size, return_scores=True, **options
    )
    unknown = model.tokenizer.unknown_characters("".join(texts))
    answers, start = [], 0
    for text, row in zip(texts, split, strict=True):
        here = slice(start, start + len(row))
        start += len(row)
        score = lowest(scores[here])
        translation = joined(found[here])
        strange = [character for character in unknown if character in text]
        warnings = warnings_of(model, text, strange, translation, score)
        answers.append(Answer(translation, score, warnings))
    return answers


def joined(translations):
    """Translations of sentences as one text."""
    return " ".join(filter(None, translations))


def lowest(scores):
    """The lowest score of some sentences; NaN if none of them has words."""
    known = [score for score in scores if not math.isnan(score)]
    return min(known, default=math.nan)


def warnings_of(model, text, unknown, translation, score):
    """Reasons to doubt a translation.

    Args:
        model: The translator.
        text: What was translated.
        unknown: Its characters that the tokenizer does not know.
        translation: The translation of `text`.
        score: Its score.

    Returns:
        A list of strings.
    """
    warnings = []
    if len(split_sentences(text)) > len(split_sentences(text, max_words=len(text) + 1)):
        warnings.append("a sentence is very long and was translated in parts")
    if unknown:
        listed = " ".join(unknown[:8]) + (" ..." if unknown[8:] else "")
        warnings.append(f"the model does not know the characters {listed}")
    if not translation:
        warnings.append("the translation is empty")
    elif model.low_score is not None and score < model.low_score:
        warnings.append(
            f"the translation is probably wrong: its score {score:.2f} is below "
            f"{model.low_score:.2f}, which is low for text that the model knows"
        )
    return warnings
