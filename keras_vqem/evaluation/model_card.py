"""Model cards: how a preset was trained, and what was measured with it."""

import os
import pathlib
from collections.abc import Mapping, Sequence

import keras

from keras_vqem.evaluation.translation_report import way
from keras_vqem.files import read_json, read_json_lines
from keras_vqem.models import preset

# The recipe that trains each class of model.
TRAINERS = {
    "Transformer": "train_transformer.py",
    "LatentNMT": "train_latent_nmt.py",
    "CTCTranslator": "train_ctc_translator.py",
    "FertilityNAT": "train_fertility_nat.py",
    "RefinementNAT": "train_refinement_nat.py",
    "ImageVAE": "train_image_autoencoder.py",
    "ImageVQVAE": "train_image_autoencoder.py",
    "ImageTransformer": "train_image_transformer.py",
    "GridTransformer": "train_image_prior.py",
    "ImageClassifier": "train_feature_classifier.py",
}
# A card shows that these were needed, but not their paths.
PLACES = {
    "run": "RUN",
    "data": "DATA",
    "teacher": "TEACHER",
    "start_from": "TEACHER",
    "autoencoder": "AUTOENCODER",
    "model": "AUTOENCODER",
}


def training_record(
    model: keras.Model,
    run: str | os.PathLike,
    prior: str | os.PathLike | None = None,
) -> dict[str, dict]:
    """Returns how a model was trained, for its preset.

    Args:
        model: The trained model.
        run: Folder of its run, with `config.json` and `metrics.jsonl`.
        prior: Folder of the run of its prior, or None.

    Returns:
        Dict from names of recipes to dicts with `options`, the options of the run,
        and `minutes`, its duration, or None if it has no metrics.
    """
    own = _run_record(pathlib.Path(run))
    # The one trainer that starts from a model of the class that it makes.
    pixels = "model" in own["options"]
    recipe = "train_image_pixels.py" if pixels else TRAINERS[type(model).__name__]
    record = {recipe: own}
    if prior is not None:
        record[TRAINERS["GridTransformer"]] = _run_record(pathlib.Path(prior))
    return record


def codes_record(run: str | os.PathLike) -> dict[str, str]:
    """Returns what is known about the codes of a run, for its preset.

    Args:
        run: Folder of the run.

    Returns:
        Dict with `codes`, the text of `codes.md`, which `recipes/name_codes.py`
        writes. Empty if there is none.
    """
    path = pathlib.Path(run) / "codes.md"
    return {"codes": path.read_text(encoding="utf-8")} if path.is_file() else {}


def training_seconds(run: str | os.PathLike) -> float | None:
    """Returns the duration of a run in seconds, or None if it has no metrics."""
    lines = read_json_lines(pathlib.Path(run) / "metrics.jsonl")
    return lines[-1]["training_seconds"] if lines else None


def _run_record(run):
    record = read_json(run / "config.json")
    if "arguments" not in record:
        raise ValueError(
            f"{run} is not the folder of a run. Pass one that a recipe made."
        )
    options = record["arguments"]
    options.pop("resume", None)
    for name, place in PLACES.items():
        if options.get(name) is not None:
            options[name] = place
    seconds = training_seconds(run)
    return {
        "options": options,
        "minutes": None if seconds is None else round(seconds / 60),
    }


def training_command(recipe: str, options: Mapping) -> str:
    """Returns the command that trained a model.

    Args:
        recipe: Name of the recipe's file.
        options: Dict of its options.

    Example:

    >>> training_command("train_transformer.py", {"num_heads": 2, "jit": True})
    'python recipes/train_transformer.py --num-heads 2 --jit'
    """
    words = ["python", f"recipes/{recipe}"]
    for option, value in options.items():
        if value is not None and value is not False:  # 0 is a value too.
            words.append(f"--{option.replace('_', '-')}")
            if value is not True:
                words.append(str(value))
    return " ".join(words)


def preset_metrics(evaluation: Mapping, folder: pathlib.Path) -> dict[str, float]:
    """Returns the figures of an evaluation that belong to a preset.

    Args:
        evaluation: JSON result of evaluate_translation.py or evaluate_images.py.
        folder: Folder of the preset. Figures of other models are left out.

    Returns:
        Dict from names of figures to numbers, empty if there are none.
    """
    folder = folder.resolve()
    if "rows" in evaluation:
        if pathlib.Path(evaluation["settings"]["model"]).resolve() != folder:
            return {}
        return {
            f"bits/dim, {name}": row["total"]
            for name, row in evaluation["rows"].items()
        }
    return {
        f"{evaluation['split']} BLEU, {_decoding(entry)}": entry["bleu"]
        for entry in evaluation["entries"]
        if pathlib.Path(entry["model"]).resolve().parent == folder
    }


def _decoding(entry):
    option = "num_beams" if "num_beams" in entry else "num_samples"
    words = [way(option, entry[option])]
    words += ["mean fertility"] if entry.get("fertility") == "mean" else []
    words += ["repeats left out"] if entry.get("drop_repeats") else []
    words += [f"blank {bias:+g}"] if (bias := entry.get("blank_bias")) else []
    words += ["rescored"] if entry.get("rescored") else []
    return ", ".join(words)


def card_text(
    name: str,
    about: Mapping,
    evaluations: Sequence[Mapping],
    notes: str = "",
    decoding: str = "",
) -> str:
    """Returns the text of a model card, in Markdown.

    Args:
        name: Name of the preset.
        about: Dict with `task`, `data`, `training` and `metrics`, and `codes`, as
            `codes_record` returns it, if what codes do was measured.
        evaluations: Evaluations that the metrics come from.
        notes: Markdown to append: terms of the data, limits.
        decoding: Sentence about the stored decoding options of a translator.

    Returns:
        The text.
    """
    task = about["task"][:1].upper() + about["task"][1:]
    lines = [f"# {name}", "", f"{task}. Trained on {about['data']}.", ""]
    for recipe, training in about["training"].items():
        took = f" It took {training['minutes']} minutes." if training["minutes"] else ""
        command = training_command(recipe, training["options"])
        lines += [f"Made by `{command}`.{took}", ""]
    lines += ["| measured with this preset | |", "| --- | ---: |"]
    lines += [f"| {key} | {value:.2f} |" for key, value in about["metrics"].items()]
    entries = [entry for e in evaluations for entry in e.get("entries", [])]
    signatures = sorted({entry["bleu_signature"] for entry in entries})
    lines += ["", *(f"sacreBLEU: `{signature}`" for signature in signatures)]
    amounts = dict.fromkeys(
        f"{_amount(e)}, with {e['machine']['cores']} cores" for e in evaluations
    )
    lines += [f"Measured on {'; '.join(amounts)}.", ""]
    lines += ["## Decoding", "", decoding, ""] if decoding else []
    # Its title becomes a heading below that of the card.
    lines += [f"#{about['codes'].strip()}", ""] if about.get("codes") else []
    return "\n".join([*lines, notes.strip(), ""])


def _stored_decoding(model):
    """Returns sentences about decoding options and styles in a translator's config."""
    parts, options = [], model.get("generation_config") or {}
    if options:
        words = ", ".join(f"`{key}={value!r}`" for key, value in options.items())
        parts.append(f"Unless a call passes others, the model decodes with {words}.")
    if options and model.get("low_score") is not None:
        parts.append(
            f"Scores below {model['low_score']} count as low: the command and the "
            f"page warn of them."
        )
    if model.get("styles"):
        words = ", ".join(f"`style={name!r}`" for name in model["styles"])
        parts.append(f"Styles that a call may ask for: {words}.")
    return " ".join(parts)


def _amount(evaluation):
    """Returns the size of the test set, such as "1,000 sentences of test"."""
    if "rows" in evaluation:
        number = next(iter(evaluation["rows"].values()))["images"]
        return f"{number:,} images of {evaluation['settings']['split']}"
    return f"{evaluation['sentences']:,} sentences of {evaluation['split']}"


def describe(
    name: str | os.PathLike,
    evaluations: Sequence[Mapping],
    task: str,
    data: str,
    terms: str,
    notes: str = "",
) -> str:
    """Writes the card of a preset without changing its weights.

    Args:
        name: Name or folder of the preset.
        evaluations: JSON results of evaluations of the preset itself.
        task: Task of the model, in a few words.
        data: Data that it was trained on, in a few words.
        terms: Terms of use, in a few words.
        notes: Markdown to append to the card: terms of the data, limits.

    Returns:
        The text of the card.

    Raises:
        ValueError: If an evaluation has no figures of the preset.
    """
    folder = preset.preset_folder(name).resolve()
    found = [preset_metrics(evaluation, folder) for evaluation in evaluations]
    if not all(found):
        raise ValueError(
            f"An evaluation has no figures of {folder}. Evaluate the preset itself: "
            f"pass its folder as --model to the recipe that evaluates it."
        )
    record = preset.read_config(folder)
    about = {
        **record["about"],
        "task": task,
        "data": data,
        "terms": terms,
        "metrics": {key: value for metrics in found for key, value in metrics.items()},
    }
    decoding = _stored_decoding(record["model"]["config"])
    card = card_text(folder.name, about, evaluations, notes, decoding)
    preset.describe(folder, card, about)
    return card
