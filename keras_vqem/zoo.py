"""The trained models that come with the package."""

import dataclasses
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

    Example:

    >>> models = {entry.name: entry.model for entry in keras_vqem.zoo.entries()}
    >>> models["cifar10_em"]
    'ImageVQVAE'
    """
    return [_entry(name) for name in preset.shipped()]


def _entry(name):
    folder = preset.preset_folder(name)
    record = preset.read_config(folder)
    about = record["about"]
    return Entry(
        name,
        record["model"]["class_name"],
        about.get("task", ""),
        about.get("data", ""),
        about.get("terms", ""),
        record["model"]["config"].get("generation_config", {}),
        sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        about.get("metrics", {}),
    )


def load(name: str | os.PathLike) -> preset.Presets:
    """Loads the model of a preset, of any class, as `from_preset` does."""
    return preset.Presets.from_preset(name)


def table() -> str:
    """Returns the entries as text, a few lines per preset."""
    return "\n\n".join(map(_text, entries())) or "This installation has no presets."


def _text(entry):
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
