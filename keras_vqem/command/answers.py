"""Translates texts sentence by sentence, and warns of probable mistakes."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vqem.models.string_methods import MAX_TOKENS
from keras_vqem.models.translator import Translator
from keras_vqem.text import SplitText
from keras_vqem.text.copied import lost_numbers

# Number of sentences between two calls of `progress`.
BLOCK = 512


class Answer(NamedTuple):
    """Translation of one text, with its score and warnings.

    Attributes:
        translation: Translation of the text, as `SplitText` joins its sentences.
        score: Mean log probability of the words, the lowest of all sentences.
        warnings: Reasons why the translation may be wrong, a list of strings.
        choices: List of pairs of a translation and its score, best first. The first
            is the translation above; there are more with `num_return_sequences`.
        notes: What was copied or left as it is, a list of strings.
    """

    translation: str
    score: float
    warnings: list[str]
    choices: list[tuple[str, float]]
    notes: list[str]


def answer_texts(
    model: Translator,
    texts: Sequence[str],
    batch_size: int = 64,
    progress: Callable[[float], object] | None = None,
    **options: Any,
) -> list[Answer]:
    """Translates texts of any length.

    Texts are translated sentence by sentence, and put together again with
    `keras_vqem.text.SplitText`. A sentence whose numbers are lost is translated once
    more, in parts around these, and they are copied.

    Args:
        model: A translator.
        texts: List of strings.
        batch_size: Number of sentences per batch.
        progress: Function that is told which share of the sentences is translated, a
            number from 0 to 1. None tells nobody.
        **options: Options of `model.translate`. A `target_prefix` begins each text.

    Returns:
        A list with one `Answer` per text.
    """
    unknown = model.tokenizer.unknown_characters("".join(texts))
    split = [SplitText(text, unknown) for text in texts]
    sentences, prefixes, places = [], [], []
    for text in split:
        places.append(slice(len(sentences), len(sentences) + len(text.sentences)))
        sentences += text.sentences
        # It begins the text, not each of its sentences.
        rest = len(text.sentences) - 1
        prefixes += [options.get("target_prefix") or "", *[""] * rest][: rest + 1]
    if options.get("target_prefix"):
        options = {**options, "target_prefix": prefixes}
    found = _translated(model, sentences, batch_size, progress, options)
    lost = [
        [] if prefix else lost_numbers(sentence, choices[0][0])
        for sentence, prefix, choices in zip(sentences, prefixes, found, strict=True)
    ]
    options.pop("target_prefix", None)
    _repair(model, sentences, lost, found, unknown, batch_size, options)
    too_long = _too_long(model, sentences)
    answers = []
    for text, here in zip(split, places, strict=True):
        # The first choice joins the first choices of all sentences, and so on.
        number = options.get("num_return_sequences") or 1
        choices = [
            (
                text.join([own[place][0] for own in found[here]]),
                lowest([own[place][1] for own in found[here]]),
            )
            for place in range(number)
        ]
        translation, score = choices[0]
        words = [own[0][0] for own in found[here]]
        doubts = warnings_of(model, text, words, score)
        if too_long[here].any():
            doubts.insert(
                0,
                f"a sentence has more than {MAX_TOKENS} tokens, the rest of it was not "
                f"translated",
            )
        notes = notes_of(text, [number for row in lost[here] for number in row])
        answers.append(Answer(translation, score, doubts, choices, notes))
    return answers


def _translated(model, sentences, batch_size, progress, options):
    """Lists of pairs of a translation and its score, one list per sentence."""
    found = []
    with warnings.catch_warnings():  # Which texts were cut is told by `answer_texts`.
        warnings.filterwarnings("ignore", message=".* texts have more than")
        for start in range(0, len(sentences), BLOCK):
            own = dict(options)
            if "target_prefix" in own:
                own["target_prefix"] = own["target_prefix"][start : start + BLOCK]
            texts, scores = model.translate(
                sentences[start : start + BLOCK], batch_size, return_scores=True, **own
            )
            if options.get("num_return_sequences") is None:
                texts, scores = [[text] for text in texts], [[x] for x in scores]
            found += [
                list(zip(*pair, strict=True))
                for pair in zip(texts, scores, strict=True)
            ]
            if progress:
                progress(len(found) / len(sentences))
    return found


def _repair(model, sentences, lost, found, unknown, batch_size, options):
    """Replaces translations that lost numbers, in `found`."""
    again = {
        place: SplitText(sentences[place], unknown, numbers)
        for place, numbers in enumerate(lost)
        if numbers
    }
    parts = [part for text in again.values() for part in text.sentences]
    parts = iter(_translated(model, parts, batch_size, None, options))
    for place, text in again.items():
        own = [next(parts) for _ in text.sentences]
        found[place] = [
            (
                text.join([choices[k][0] for choices in own]),
                lowest([choices[k][1] for choices in own]),
            )
            for k in range(len(found[place]))
        ]


def _too_long(model, sentences):
    if not sentences:
        return np.zeros(0, bool)
    return model.tokenizer.encode(sentences).row_lengths().numpy() > MAX_TOKENS


def lowest(scores: Sequence[float]) -> float:
    """Returns the lowest score that is not NaN, or NaN if there is none."""
    known = [score for score in scores if not math.isnan(score)]
    return min(known, default=math.nan)


def warnings_of(
    model: Translator, text: SplitText, translations: Sequence[str], score: float
) -> list[str]:
    """Finds reasons to doubt a translation.

    Args:
        model: Translator that wrote it.
        text: Source text.
        translations: Translations of the sentences of `text`.
        score: Lowest score of the sentences.

    Returns:
        A list of strings, empty if there is no reason.
    """
    doubts = []
    if "\ufffd" in text.text:
        doubts.append(
            "it holds bytes that are not UTF-8, which became \ufffd; convert it, for "
            "example with iconv -f LATIN1 -t UTF-8"
        )
    if text.is_broken:
        doubts.append("a sentence is very long and was translated in parts")
    empty = [not words.strip() for words in translations]
    if any(empty):
        what = "the translation" if all(empty) else "that of a sentence"
        doubts.append(f"{what} is empty")
    elif model.low_score is not None and score < model.low_score:
        doubts.append(
            f"the translation is probably wrong: its score {score:.2f} is below "
            f"{model.low_score:.2f}, which is low for text that the model knows"
        )
    return doubts


def notes_of(text: SplitText, numbers: Sequence[str] = ()) -> list[str]:
    """Tells what stays as it is in the translation of a text.

    Args:
        text: Source text.
        numbers: Numbers that the model lost, and that were copied.

    Returns:
        A list of strings, empty if everything was translated.
    """
    notes = []
    for what, copied in (
        ("copied as it is: {}", text.copied),
        ("copied, as the model lost it: {}", numbers),
    ):
        if copied:
            listed = " ".join(copied[:8]) + (" ..." if copied[8:] else "")
            notes.append(what.format(listed))
    return notes
