"""Makes a preset from a finished run, then writes its model card.

    python recipes/make_preset.py --run runs/latent --half --output saved_models/en_de
    python recipes/evaluate_translation.py --data data/mine --num-beams 1 4 \\
        --model saved_models/en_de --json out/en_de.json
    python recipes/make_preset.py --output saved_models/en_de \\
        --evaluation out/en_de.json --task "translation, English to German" \\
        --trained-on "My corpus" --terms "any use" --notes notes.md

The first command writes weights, config and vocabulary, with --half in half precision.
A model that was trained in half precision computes in float32 as a preset.
For an image autoencoder, --prior RUN adds its prior. The second command measures the
preset itself, with its rounded weights. The third writes the model card: task and data,
training, the figures of the evaluations, stored decoding options, what name_codes.py
found out about the codes of the run, and notes (terms of the data, limits).
"""

from pathlib import Path

from arguments import make_parser, user_errors


def read_evaluation(path):
    """Reads what an evaluating recipe wrote with --json."""
    from keras_vqem.files import read_json

    evaluation = read_json(path)
    if not isinstance(evaluation, dict) or not {"entries", "rows"} & set(evaluation):
        raise ValueError(
            f"{path} is not a file that evaluate_translation.py or evaluate_images.py "
            f"wrote with --json."
        )
    return evaluation


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add, file = parser.add_argument, {"type": Path, "metavar": "FILE"}
    run, output_help = {"type": Path, "metavar": "RUN"}, "folder of the preset"
    add("--output", type=Path, required=True, metavar="DIR", help=output_help)
    add("--run", **run, help="folder of the finished run")
    prior_help = "folder of a run of train_image_prior.py, for an image autoencoder"
    add("--prior", **run, help=prior_help)
    half_help = "store weights in half precision (default: float32)"
    add("--half", action="store_true", help=half_help)
    evaluation_help = "JSON files of evaluate_translation.py or evaluate_images.py"
    add("--evaluation", **file, nargs="+", help=evaluation_help)
    add("--task", metavar="TEXT", help="task of the model, in a few words")
    trained_on_help = "data that the model was trained on, in a few words"
    add("--trained-on", metavar="TEXT", help=trained_on_help)
    add("--terms", metavar="TEXT", help="terms of use, in a few words")
    notes_help = "Markdown for the card: terms of the data, limits (default: none)"
    add("--notes", **file, help=notes_help)
    options = parser.parse_args(arguments)
    if bool(options.run) == bool(options.evaluation):
        parser.error("pass --run to make a preset, or --evaluation to describe it")
    if options.evaluation and not (
        options.task and options.trained_on and options.terms
    ):
        parser.error("--evaluation needs --task, --trained-on and --terms")

    from keras_vqem.evaluation import model_card
    from keras_vqem.models.loading import load_with_prior

    if options.run:
        model = load_with_prior(options.run, options.prior)
        # Half precision is for fast training. Few processors compute in it.
        for layer in model._flatten_layers():
            layer.dtype_policy = "float32"
        training = model_card.training_record(model, options.run, options.prior)
        about = {"training": training, **model_card.codes_record(options.run)}
        model.save_to_preset(options.output, half=options.half, about=about)
        print(f"{options.output}: {model.count_params():,} parameters")
        return
    evaluations = [read_evaluation(path) for path in options.evaluation]
    notes = options.notes.read_text() if options.notes else ""
    words = options.task, options.trained_on, options.terms, notes
    print(model_card.describe(options.output, evaluations, *words))


if __name__ == "__main__":
    main()
