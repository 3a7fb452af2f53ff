"""Translates arguments, lines of a file, or lines of standard input.

The trained models that come with the package know English captions of photos or short
everyday sentences (tatoeba_en_de_codes), and nothing else. A line may have several
sentences, which are translated one by one; white space, addresses, and words and signs
that the model does not know stay as they are, and --verbose tells which. With
--num-return-sequences the translations of a line are separated by tabs.
With --file FILE --output FILE nothing that was translated is lost if the command is
stopped, and the same command goes on.
Warnings of probable mistakes are written to standard error.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_vqem.command import decoding, problems

if TYPE_CHECKING:
    from keras_vqem.command.answers import Answer

DEFAULT = "multi30k_en_de_ctc"
WARNINGS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `keras-vqem translate`."""
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    help = "name of a preset, folder of a preset or a finished run, or .keras file "
    help += f"(default: {DEFAULT})"
    add("--model", default=DEFAULT, help=help)
    help = "number of sentences per batch (default: 64)"
    add("--batch-size", default=64, **number, help=help)
    help = "maximum number of lines read before translations are written "
    help += "(default: 256)"
    add("--chunk", default=256, **number, help=help)
    help = "write the score and a tab before each translation: the mean log "
    help += "probability of its words, the lowest of all sentences"
    add("--scores", action="store_true", help=help)
    help = "file with one text per line (default: standard input)"
    add("--file", metavar="FILE", help=help)
    help = "file for the translations of --file, which appears when it is complete; "
    help += "before that it is FILE.partial (default: standard output)"
    add("--output", metavar="FILE", help=help)
    add("texts", nargs="*", metavar="TEXT", help="text to translate, instead of a file")
    decoding.add_arguments(parser)


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Runs `keras-vqem translate`."""
    if min(options.batch_size, options.chunk) < 1:
        parser.error("--batch-size and --chunk must be at least 1")
    if options.texts and options.file:
        parser.error("pass texts or --file, not both")
    if options.output and not options.file:
        parser.error("--output is for the translations of --file")

    from keras_vqem.command.answers import answer_texts
    from keras_vqem.command.translated_file import translate_file, translate_to_file
    from keras_vqem.models.fingerprint import fingerprint
    from keras_vqem.models.loading import load_translator
    from keras_vqem.text.lines import answer_lines, check_text

    with problems.told_by(parser, options.verbose):
        given = decoding.given(options)
        if options.file:
            check_text(options.file)  # Before anything is translated in vain.
        model = load_translator(options.model)
        chosen = decoding.chosen(given, model)
        warnings = Warnings()

        def translate(texts, progress=None):
            answers = answer_texts(model, texts, options.batch_size, progress, **chosen)
            for text, answer in zip(texts, answers, strict=True):
                warnings.tell(text, answer.warnings)
                if options.verbose:
                    told(text, answer.notes)
            return [line_of(answer, options) for answer in answers]

        if options.output:
            settings = {
                "sha256 of the model": fingerprint(model),
                "options": {**model.generation_config, **given},
                "scores": options.scores,
            }
            translate_to_file(
                translate, options.file, options.output, options.chunk, settings
            )
        elif options.file:
            translate_file(translate, options.file, options.chunk)
        else:
            answer_lines(translate, options.chunk, texts=options.texts)
        warnings.close()


def line_of(answer: "Answer", options: argparse.Namespace) -> str:
    """Returns what is written for a text."""
    fields = []
    for translation, score in answer.choices:
        fields += [f"{score:.3f}"] if options.scores else []
        fields.append(translation)
    if options.num_return_sequences is not None:
        # A translation with a tab of its own would look like two.
        fields = [field.replace("\t", " ") for field in fields]
    return "\t".join(fields)


def told(text: str, words: Sequence[str], kind: str = "note") -> None:
    """Writes sentences about a text to standard error."""
    start = " ".join(text.split()) if len(text) <= 200 else text[:200]
    start = start if len(start) <= 40 else start[:37] + "..."
    for word in words:
        line = f'{kind}: "{start}": {word}\n'
        sys.stderr.write(line.encode("utf-8", "replace").decode())
        sys.stderr.flush()


class Warnings:
    """Writes the first few warnings to standard error, and the number of the rest."""

    def __init__(self):
        self.count = 0

    def tell(self, text: str, warnings: Sequence[str]) -> None:
        """Writes the warnings about a text."""
        left = max(WARNINGS - self.count, 0)
        self.count += len(warnings)
        told(text, warnings[:left], "warning")

    def close(self) -> None:
        """Writes how many warnings were left out."""
        if self.count > WARNINGS:
            left = self.count - WARNINGS
            sys.stderr.write(f"warning: {left} more like these were left out\n")
