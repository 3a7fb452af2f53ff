"""Comparisons of several methods over several seeds, which can be resumed."""

import json
import math
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from keras_vqem.evaluation import codes as code_counts
from keras_vqem.evaluation.image_bits import UnigramPrior
from keras_vqem.evaluation.markdown import markdown_table
from keras_vqem.files import replacing, write_json
from keras_vqem.layers.bottlenecks.code_metrics import perplexity


class Results:
    """Results of a comparison in a JSON file that is complete after each of them.

    A comparison that was interrupted goes on with what is missing. Results that were
    measured with other settings are refused.

    Args:
        path: JSON file. If it exists, its results are read.
        settings: Dict of all settings that the results depend on.

    Raises:
        ValueError: If the file has other settings, or is no such file.

    Example:

    >>> import pathlib, tempfile
    >>> from keras_vqem.evaluation.comparison import Results
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "results.json"
    >>> Results(path, {"steps": 10}).add("vq", 0, {"mse": 0.5})
    >>> Results(path, {"steps": 10}).of("vq", seeds=[0, 1])
    [{'mse': 0.5}]
    """

    def __init__(self, path: str | os.PathLike, settings: Mapping[str, Any]):
        self.path = pathlib.Path(path)
        self.settings = json.loads(json.dumps(dict(settings)))  # As they are stored.
        self.rows = {}
        if self.path.exists():
            self.rows = self._read()

    def _read(self):
        try:
            stored = json.loads(self.path.read_text())
            before, rows = stored["settings"], stored["results"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self.path} has no results of a comparison. Choose another file, or "
                f"remove it."
            ) from error
        names = [
            name
            for name in {**before, **self.settings}
            if before.get(name) != self.settings.get(name)
        ]
        if names:
            changes = ", ".join(
                f"{name} was {before.get(name)}, now {self.settings.get(name)}"
                for name in names
            )
            raise ValueError(
                f"{self.path} has results of other settings: {changes}. Go on with the "
                f"same settings, or choose another file."
            )
        return rows

    def has(self, name: str, seed: int) -> bool:
        """Returns whether there is a result of a method and seed."""
        return str(seed) in self.rows.get(name, {})

    def add(self, name: str, seed: int, result: Mapping[str, Any]) -> None:
        """Adds to the result of a method and seed, and writes the file."""
        self.rows.setdefault(name, {}).setdefault(str(seed), {}).update(result)
        write_json(self.path, {"settings": self.settings, "results": self.rows})

    def of(self, name: str, seeds: Sequence[int]) -> list[dict]:
        """Returns the results of a method for those of the seeds that it has."""
        return [self.rows[name][str(seed)] for seed in seeds if self.has(name, seed)]


def code_measures(
    train_codes: np.ndarray, test_codes: np.ndarray, num_codes: int
) -> dict[str, float]:
    """Measures how images use codes, and what the codes cost.

    Args:
        train_codes: Integer array `[N, rows, columns, slots]`, from which the
            frequencies of codes are estimated.
        test_codes: Integer array of the same form, which is measured.
        num_codes: Number of codes per slot.

    Returns:
        Dict of `perplexity` and `usage`, the means over slots, and `bits_per_image`
        under the frequencies of the codes, one distribution per slot.

    Example:

    >>> from keras_vqem.evaluation.comparison import code_measures
    >>> codes = np.arange(4).reshape(1, 2, 2, 1)
    >>> found = code_measures(codes, codes, num_codes=4)
    >>> {name: round(value, 3) for name, value in found.items()}
    {'perplexity': 4.0, 'usage': 1.0, 'bits_per_image': 8.0}
    """
    counts = code_counts.count(test_codes, num_codes)
    nats = UnigramPrior(train_codes, num_codes).nats(test_codes)
    return {
        "perplexity": float(np.mean(perplexity(counts))),
        "usage": float(np.mean(counts > 0)),
        "bits_per_image": float(np.mean(nats)) / math.log(2),
    }


def mean_and_spread(results: Sequence[Mapping[str, float]], key: str) -> tuple:
    """Returns the mean of a value over results, and its standard deviation."""
    values = [result[key] for result in results]
    return float(np.mean(values)), float(np.std(values))


def comparison_table(
    rows: Mapping[str, Sequence[Mapping[str, float]] | str],
    columns: Mapping[str, tuple[str, str]],
) -> str:
    """Writes a comparison as a table in Markdown: means over seeds, and spreads.

    Args:
        rows: Dict from labels to lists with one result per seed, or to the reason why
            there is none.
        columns: Dict from keys of results to the header and format of a column. A
            cell stays empty if a result of the row lacks the key.

    Returns:
        The table as text.

    Example:

    >>> from keras_vqem.evaluation.comparison import comparison_table
    >>> rows = {"hard EM": [{"psnr": 20.0}, {"psnr": 22.0}], "other": "not installed"}
    >>> print(comparison_table(rows, {"psnr": ("PSNR", "{:.1f}")}))
    |  | PSNR | seeds |
    | --- | ---: | ---: |
    | hard EM | 21.0 ± 1.0 | 2 |
    | other: not installed |  | 0 |
    """
    lines = []
    for label, results in rows.items():
        if isinstance(results, str) or not results:
            reason = f": {results}" if results else ""
            lines.append([f"{label}{reason}", *("" for _ in columns), "0"])
            continue
        cells = []
        for key, (_, form) in columns.items():
            if all(key in result for result in results):
                mean, spread = mean_and_spread(results, key)
                cells.append(f"{form.format(mean)} ± {form.format(spread)}")
            else:
                cells.append("")
        lines.append([label, *cells, str(len(results))])
    headers = [header for header, _ in columns.values()]
    return markdown_table(["", *headers, "seeds"], lines)


def write_plot(
    path: str | os.PathLike,
    rows: Mapping[str, Sequence[Mapping[str, float]]],
    panels: Mapping[str, str],
    others: Collection[str] = (),
) -> None:
    """Draws one panel per measure: a line per method, with its mean and spread.

    Args:
        path: File to write. Its suffix determines the format.
        rows: Dict from labels to lists with one result per seed.
        panels: Dict from keys of results to titles of panels.
        others: Labels of methods that are drawn in grey.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (3 * len(panels) + 3, 0.32 * len(rows) + 1)
    figure, axes = plt.subplots(
        1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for axis, (key, title) in zip(axes[0], panels.items(), strict=True):
        for place, (label, results) in enumerate(rows.items()):
            mean, spread = mean_and_spread(results, key)
            color = "0.5" if label in others else "tab:blue"
            axis.errorbar(mean, place, xerr=spread, fmt="o", color=color, capsize=3)
        axis.set(xlabel=title, yticks=range(len(rows)), yticklabels=list(rows))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].invert_yaxis()
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=100)
    plt.close(figure)
