"""Tables in Markdown."""

from collections.abc import Sequence


def markdown_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Writes a table whose columns, except the first, are aligned to the right.

    Args:
        names: List of the names of columns.
        rows: List of rows, each a list of strings.

    Returns:
        The table as text.

    Example:

    >>> print(markdown_table(["", "BLEU"], [["greedy", "31.8"]]))
    |  | BLEU |
    | --- | ---: |
    | greedy | 31.8 |
    """
    lines = [names, ["---"] + ["---:"] * (len(names) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
