"""The trained models that come with the package."""

import dataclasses
import numbers
import os
from typing import Any

from keras_vqem.models import preset


@dataclasses.dataclass(frozen=True)
class Entry:
    """Facts about a preset.

    Attributes:
        name: Name for `from_preset`.
        model: Name of the model's class in `keras_vqem.models`.
        task: Task of the model.
        data: Data that the model was trained on.
        terms: Terms of use, which follow from those of the data.
        decoding: Dict of the options of `generate` that are stored in the preset.
        megabytes: Size on disk in megabytes.
        metrics: Dict from names to numbers, measured with the preset itself.
    """

    name: str
    model: str
    task: str
    data: str
    terms: str
    decoding: dict[str, Any]
    megabytes: float
    metrics: dict[str, float]


def entries() -> list[Entry]:
    """Returns facts about the presets that come with the package.

    A preset that cannot be read is left out; `table` says why.

    Example:

    >>> models = {entry.name: entry.model for entry in keras_vqem.zoo.entries()}
    >>> models["cifar10_em"]
    'ImageVQVAE'
    """
    return [found for found in _found() if isinstance(found, Entry)]


def _found():
    """Yields the entries, and instead of those that cannot be read, why."""
    for name in preset.shipped():
        try:
            yield _entry(name)
        except (preset.PresetError, OSError) as error:
            yield f"{name}  (cannot be read)\n    {error}"


def _entry(name):
    folder = preset.preset_folder(name)
    record = preset.read_config(folder)
    about = record["about"]
    facts = [about.get(fact, "") for fact in ("task", "data", "terms")]
    decoding = record["model"]["config"].get("generation_config", {})
    metrics = about.get("metrics", {})
    dicts = isinstance(decoding, dict) and isinstance(metrics, dict)
    if not dicts or not all(isinstance(fact, str) for fact in facts):
        raise preset.PresetError(
            f"{folder / preset.CONFIG}: facts must be texts, and metrics a dict."
        )
    for metric, value in metrics.items():
        if not isinstance(value, numbers.Real) or not -1e300 < value < 1e300:
            raise preset.PresetError(
                f"{folder / preset.CONFIG}: {metric} is {str(value)[:40]!r}, which is "
                f"no number."
            )
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    model = record["model"]["class_name"]
    return Entry(name, model, *facts, decoding, size, metrics)


def load(name: str | os.PathLike) -> preset.Presets:
    """Loads the model of a preset, of any class, as `from_preset` does."""
    return preset.Presets.from_preset(name)


def table() -> str:
    """Returns the entries as text, a few lines per preset."""
    return "\n\n".join(map(_text, _found())) or "This installation has no presets."


def _text(entry):
    if isinstance(entry, str):
        return entry
    metrics = ", ".join(f"{k} {v:.2f}" for k, v in entry.metrics.items())
    decoding = ", ".join(f"{k}={v}" for k, v in entry.decoding.items())
    parts = {
        "data": entry.data,
        "measured": metrics,
        "decoding": decoding,
        "terms": entry.terms,
    }
    lines = [
        f"{entry.name}  ({entry.model}, {entry.megabytes:.1f} MB)",
        f"    {entry.task}",
    ]
    lines += [f"    {name + ':':<10}{text}" for name, text in parts.items() if text]
    return "\n".join(lines)
