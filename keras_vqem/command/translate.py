"""Translates lines: of arguments, a file, or standard input as they come.

The trained models that come with the package know English captions of photos, and
nothing else. A line may hold several sentences: each is translated by itself. What may
have gone wrong is told on standard error.
"""

import sys

from keras_vqem.command import decoding, problems

DEFAULT = "multi30k_en_de_em"
WARNINGS = 5


def add_arguments(parser):
    add, number = parser.add_argument, {"type": int, "metavar": "N"}
    help = f"preset, finished run or .keras file: {DEFAULT}"
    add("--model", default=DEFAULT, help=help)
    help = "sentences translated at a time: 64"
    add("--batch-size", default=64, **number, help=help)
    add("--chunk", default=1024, **number, help="most lines read before writing: 1024")
    help = "write the score and a tab before each translation: the mean log "
    help += "probability of its words, of several sentences the lowest"
    add("--scores", action="store_true", help=help)
    add("--file", metavar="FILE", help="lines to translate: standard input")
    add("texts", nargs="*", metavar="TEXT", help="text to translate, instead of a file")
    decoding.add_arguments(parser)


def run(parser, options):
    if min(options.batch_size, options.chunk) < 1:
        parser.error("--batch-size and --chunk must be at least 1")
    if options.texts and options.file:
        parser.error("give texts or --file, not both")

    from keras_vqem.command.answers import answer_texts
    from keras_vqem.models.loading import load_translator
    from keras_vqem.text.lines import answer_lines

    with problems.told_by(parser):
        given = decoding.given(options)
        model = load_translator(options.model)
        chosen = decoding.chosen(given, model)
        warnings = Warnings()

        def translate(texts):
            lines = []
            answers = answer_texts(model, texts, options.batch_size, **chosen)
            for text, answer in zip(texts, answers, strict=True):
                warnings.tell(text, answer.warnings)
                score = f"{answer.score:.3f}\t" if options.scores else ""
                lines.append(score + answer.translation)
            return lines

        answer_lines(translate, options.chunk, options.file, options.texts)
        warnings.close()


class Warnings:
    """Writes warnings to standard error: the first ones, and how many there are."""

    def __init__(self):
        self.count = 0

    def tell(self, text, warnings):
        for warning in warnings:
            self.count += 1
            if self.count <= WARNINGS:
                start = text if len(text) <= 40 else text[:37] + "..."
                line = f'warning: "{start}": {warning}\n'
                sys.stderr.write(line.encode("utf-8", "replace").decode())
                sys.stderr.flush()

    def close(self):
        if self.count > WARNINGS:
            sys.stderr.write(f"warning: {self.count - WARNINGS} more like these\n")
