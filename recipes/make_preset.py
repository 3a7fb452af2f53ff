"""Makes a preset of a finished run, then writes what was measured on its card.

    python recipes/make_preset.py --run runs/latent --half --output saved_models/en_de
    python recipes/evaluate_translation.py --data data/mine --num-beams 1 4 \\
        --model saved_models/en_de --json out/en_de.json
    python recipes/make_preset.py --output saved_models/en_de \\
        --evaluation out/en_de.json --task "translation, English to German" \\
        --trained-on "My corpus" --notes notes.md

The first command writes weights, config and vocabulary; with --half in half precision.
An image autoencoder takes its prior along: --prior RUN. The second measures the preset
itself, rounded weights and all. The third makes the model card: task and data, how it
was trained, the figures of the evaluation, and the notes (terms of the data, limits).
"""

import argparse
import json
from pathlib import Path

TRAINERS = {
    "Transformer": "train_transformer.py",
    "LatentNMT": "train_latent_nmt.py",
    "ImageVAE": "train_image_autoencoder.py",
    "ImageVQVAE": "train_image_autoencoder.py",
    "ImageTransformer": "train_image_transformer.py",
    "GridTransformer": "train_image_prior.py",
}
# Where things lay is no part of how a model was made; that they were needed is.
PLACES = {
    "run": "RUN",
    "data": "DATA",
    "teacher": "TEACHER",
    "autoencoder": "AUTOENCODER",
}


def training_of(run):
    """What a preset remembers of its run: options and time."""
    from keras_vqem.training import RunFolder

    folder = RunFolder(run)
    options = json.loads((run / "config.json").read_text())["arguments"]
    options.pop("resume", None)
    for name, place in PLACES.items():
        if options.get(name) is not None:
            options[name] = place
    lines = folder.metrics()
    return {
        "options": options,
        "minutes": round(lines[-1]["training_seconds"] / 60) if lines else None,
    }


def make(options):
    from keras_vqem.models.loading import load_with_prior

    model = load_with_prior(options.run, options.prior)
    training = {TRAINERS[type(model).__name__]: training_of(options.run)}
    if options.prior:
        training[TRAINERS["GridTransformer"]] = training_of(options.prior)
    about = {"training": training}
    model.save_to_preset(options.output, half=options.half, about=about)
    print(f"{options.output}: {model.count_params():,} parameters")


def metrics_of(evaluation, preset):
    """Figures of the evaluation that are the preset's: a dict from names to numbers."""
    if "rows" in evaluation:
        if Path(evaluation["settings"]["model"]).resolve() != preset:
            return {}
        return {
            f"bits/dim, {name}": row["total"]
            for name, row in evaluation["rows"].items()
        }
    return {
        f"{evaluation['split']} BLEU, "
        + (
            "greedy" if entry["num_beams"] == 1 else f"{entry['num_beams']} beams"
        ): entry["bleu"]
        for entry in evaluation["entries"]
        if Path(entry["model"]).resolve().parent == preset
    }


def command_of(recipe, options):
    """The command that trained it."""
    words = ["python", f"recipes/{recipe}"]
    for option, value in options.items():
        if value is not None and value is not False:  # but 0 is a value
            words.append(f"--{option.replace('_', '-')}")
            if value is not True:
                words.append(str(value))
    return " ".join(words)


def card_of(name, about, evaluation, notes):
    """The text of the model card."""
    lines = [f"# {name}", "", f"{about['task']}. Trained on {about['data']}.", ""]
    for recipe, training in about["training"].items():
        took = f" It took {training['minutes']} minutes." if training["minutes"] else ""
        lines += [f"Made by `{command_of(recipe, training['options'])}`.{took}", ""]
    lines += ["| measured with this preset | |", "| --- | ---: |"]
    lines += [f"| {key} | {value:.2f} |" for key, value in about["metrics"].items()]
    signatures = {e["bleu_signature"] for e in evaluation.get("entries", [])}
    lines += ["", *(f"sacreBLEU: `{signature}`" for signature in signatures)]
    machine = evaluation["machine"]
    lines += [f"Measured on {machine['cores']} cores.", "", notes.strip(), ""]
    return "\n".join(lines)


def describe(parser, options):
    from keras_vqem.models import preset

    folder = preset.preset_folder(options.output).resolve()
    evaluation = json.loads(options.evaluation.read_text())
    metrics = metrics_of(evaluation, folder)
    if not metrics:
        parser.error(
            f"{options.evaluation} holds no figures of {folder}. Evaluate the preset "
            f"itself: pass its folder as --model."
        )
    about = {
        **preset.read_config(folder)["about"],
        "task": options.task,
        "data": options.trained_on,
        "metrics": metrics,
    }
    notes = options.notes.read_text() if options.notes else ""
    preset.describe(folder, card_of(folder.name, about, evaluation, notes), about)
    print((folder / preset.CARD).read_text())


def main(arguments=None):
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add(
        "--output", type=Path, required=True, metavar="DIR", help="folder of the preset"
    )
    add("--run", type=Path, metavar="RUN", help="finished run to make it of")
    add("--prior", type=Path, metavar="RUN", help="of train_image_prior.py")
    add("--half", action="store_true", help="weights in half precision")
    add("--evaluation", type=Path, metavar="FILE", help="JSON of an evaluate recipe")
    add("--task", help="what the model does, in a few words")
    add("--trained-on", help="what it was trained on, in a few words")
    add("--notes", type=Path, metavar="FILE", help="Markdown: terms of data, limits")
    options = parser.parse_args(arguments)
    if bool(options.run) == bool(options.evaluation):
        parser.error("give --run to make a preset, or --evaluation to describe it")
    if options.evaluation and not (options.task and options.trained_on):
        parser.error("--evaluation needs --task and --trained-on")
    try:
        if options.run:
            make(options)
        else:
            describe(parser, options)
    except (OSError, ValueError, KeyError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
