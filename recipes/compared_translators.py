"""Trained translators that a recipe compares, and the sentences they translate.

Only recipes import this module. It imports the library inside functions, so that
--help is fast.
"""

from pathlib import Path

from arguments import positive


def add_arguments(parser, split):
    """Adds the flags of several trained translators and a split, with its default."""
    add = parser.add_argument
    add(
        "--model",
        type=Path,
        action="append",
        required=True,
        metavar="RUN",
        help="folder of a finished run, .keras file or preset; may be repeated",
    )
    data_help = "folder made by prepare_translation.py"
    add("--data", type=Path, required=True, metavar="DIR", help=data_help)
    add("--split", default=split, help="split to translate (default: %(default)s)")
    lines_help = "number of lines of the split (default: all)"
    add("--lines", type=positive, metavar="N", help=lines_help)
    add("--json", type=Path, metavar="FILE", help="file for all numbers, as JSON")


def load(parser, arguments):
    """Returns dicts from short names to files and to translators, and the corpus."""
    from keras_vqem.models import loading
    from keras_vqem.text import ParallelCorpus, TranslationData

    paths = [loading.model_file(path) for path in arguments.model]
    if len(set(paths)) < len(paths):
        parser.error("a model is given twice")
    corpus = TranslationData(arguments.data).corpus(arguments.split)
    paths = dict(zip(loading.short_names(paths), paths, strict=True))
    models = {name: loading.load_translator(path) for name, path in paths.items()}
    sides = corpus.sources, corpus.targets
    return paths, models, ParallelCorpus(*(side[: arguments.lines] for side in sides))
