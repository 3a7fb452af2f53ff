"""The trained models that come with the package."""

import dataclasses

from keras_vqem.models import preset


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known of a preset.

    Attributes:
        name: For `from_preset`.
        model: Name of its class in `keras_vqem.models`.
        task, data: What it does, and what it was trained on.
        megabytes: On disk.
        metrics: A dict from names to numbers, measured with the preset itself.
    """

    name: str
    model: str
    task: str
    data: str
    megabytes: float
    metrics: dict


def entries():
    """The presets that come with the package, a list of `Entry`.

    Example:

    >>> [entry.name for entry in keras_vqem.zoo.entries()]  # doctest: +ELLIPSIS
    [...]
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
        sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        about.get("metrics", {}),
    )


def load(name):
    """The model of a preset, whatever its class; see `from_preset` of the models."""
    return preset.Presets.from_preset(name)


def table():
    """The entries as text, a few lines each."""
    lines = []
    for entry in entries():
        metrics = ", ".join(f"{k} {v:.2f}" for k, v in entry.metrics.items())
        lines.append(
            f"{entry.name}  ({entry.model}, {entry.megabytes:.1f} MB)\n"
            f"    {entry.task}; {entry.data}\n    {metrics}"
        )
    return "\n".join(lines) or "This installation has no presets."
