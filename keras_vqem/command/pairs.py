"""A user's own files of sentences and translations, checked before any work."""

import os

from keras_vqem.text import ParallelCorpus
from keras_vqem.text.lines import check_text, is_utf8


def read_pairs(
    sources: str | os.PathLike, targets: str | os.PathLike
) -> ParallelCorpus:
    """Reads two files in which line n of one translates line n of the other.

    Args:
        sources: Path of the source sentences, UTF-8, one per line, plain or `.gz`.
        targets: Path of their translations.

    Returns:
        A `ParallelCorpus`.

    Raises:
        ValueError: If a file is no text in UTF-8 or has no lines, or the files have
            different numbers of lines.
    """
    for path in (sources, targets):
        if not str(path).endswith(".gz"):
            check_text(path)
    corpus = ParallelCorpus.from_files(sources, targets)
    if not len(corpus):
        raise ValueError(f"{sources} has no lines. Pass a file with one text per line.")
    for path, side in ((sources, corpus.sources), (targets, corpus.targets)):
        for number, line in enumerate(side, start=1):
            if not is_utf8(line):
                raise ValueError(
                    f"{path}, line {number}, holds bytes that are not UTF-8. Convert "
                    f"the file, for example: iconv -f LATIN1 -t UTF-8 {path} > "
                    f"CONVERTED."
                )
    return corpus
