"""Writes how probable translations are.

For each pair of a text and its translation, one line has the natural logarithm of the
probability of the whole translation, a tab, and the same per token. For a LatentNMT it
is a lower bound. Each text should be one sentence.
"""

import argparse
import sys
import warnings
from typing import TYPE_CHECKING

from keras_vqem.command import problems

if TYPE_CHECKING:
    from keras_vqem.models.string_methods import Score

DEFAULT = "multi30k_en_de_teacher"
CHUNK = 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `keras-vqem score`."""
    add = parser.add_argument
    help = "name of a preset, folder of a preset or a finished run, or .keras file "
    help += f"(default: {DEFAULT})"
    add("--model", default=DEFAULT, help=help)
    help = "number of pairs per batch (default: 64)"
    add("--batch-size", type=int, default=64, metavar="N", help=help)
    help = "add each token and its log probability, if the model has them (Transformer)"
    add("--tokens", action="store_true", help=help)
    help = "two files, of texts and of their translations, line by line"
    add("--files", nargs=2, metavar=("SOURCES", "TARGETS"), help=help)
    help = "a text and its translation, then perhaps more such pairs"
    add("texts", nargs="*", metavar="TEXT", help=help)


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Runs `keras-vqem score`."""
    if options.batch_size < 1:
        parser.error("--batch-size must be at least 1")
    if bool(options.texts) == bool(options.files):
        parser.error("pass pairs of texts or --files, one of them")
    if len(options.texts) % 2:
        parser.error(
            f"there are {len(options.texts)} texts; pass each text and its translation"
        )

    from keras_vqem.command.pairs import read_pairs
    from keras_vqem.models.loading import load_translator
    from keras_vqem.text import ParallelCorpus
    from keras_vqem.text.lines import standard_output

    with problems.told_by(parser, options.verbose):
        if options.files:
            corpus = read_pairs(*options.files)
        else:
            corpus = ParallelCorpus(options.texts[::2], options.texts[1::2])
        model = load_translator(options.model)
        pieces = model.tokenizer.pieces() if options.tokens else None
        with standard_output() as write:
            for start in range(0, len(corpus), CHUNK):
                here = slice(start, start + CHUNK)
                with warnings.catch_warnings(record=True) as told:
                    scores = model.score(
                        corpus.sources[here], corpus.targets[here], options.batch_size
                    )
                write([line_of(score, pieces) for score in scores])
                for warning in told:
                    sys.stderr.write(f"warning: {warning.message}\n")


def line_of(score: "Score", pieces: list[str] | None = None) -> str:
    """Returns what is written for a pair.

    Args:
        score: Score of the pair.
        pieces: Strings that the ids stand for, or None to write no tokens.
    """
    fields = [f"{score.log_prob:.3f}", f"{score.per_token:.3f}"]
    if pieces is not None and score.token_log_probs is not None:
        fields += [
            f"{pieces[i]} {log_prob:.3f}"
            for i, log_prob in zip(score.ids, score.token_log_probs, strict=True)
        ]
    return "\t".join(fields)
