"""Finds what each first code of a LatentNMT does, and names codes after it.

    python recipes/name_codes.py --model runs/latent --data data/mine --split val \\
        --test test --baseline runs/ctc

Each sentence of --split is translated with every code in the first place that is common
there. A table says what changes with the code: length, first word, word order, typical
words, and the German form of address. The codes that write Sie, du and ihr most
reliably become the styles formal, informal and plural of the model, which is saved
again: translate(texts, style="formal"), keras-vqem translate --style formal. A form
without a clear code gets no name.

With --test, the styles are measured on that split: the share of translations in the
form asked for, and BLEU if the form of the reference is given, beside predicted codes
and the --baseline. The run folder gets all of it as codes.md, which make_preset.py puts
onto the model card, and as codes.json.
"""

import dataclasses
import sys
from pathlib import Path

from arguments import add_number, make_parser, user_errors


@user_errors
def main(arguments=None):
    parser = make_parser(__doc__)
    add, run = parser.add_argument, {"type": Path, "metavar": "RUN"}
    model_help = "folder of a finished run of train_latent_nmt.py"
    add("--model", **run, required=True, help=model_help)
    data_help = "folder made by prepare_translation.py"
    add("--data", type=Path, required=True, metavar="DIR", help=data_help)
    add("--split", default="val", help="split to find effects on (default: val)")
    test_help = "split to measure styles on (default: none)"
    add("--test", metavar="SPLIT", help=test_help)
    add(
        "--baseline",
        **run,
        help="translator to compare with, such as one without codes",
    )
    first_help = "number of references that must begin with a code for it to be tried"
    add_number(parser, "--min-first", 5, first_help)
    formed_help = "number of a code's translations that must have a form of address"
    add_number(parser, "--min-formed", 20, formed_help)
    share_help = "share of these that must have the form that gives the name"
    add_number(parser, "--min-share", 0.6, share_help)
    add_number(parser, "--batch-size", 128, "number of lines per batch")
    options = parser.parse_args(arguments)
    if options.baseline and not options.test:
        parser.error("--baseline is measured on the split of --test: pass both")

    from keras_vqem.evaluation import address, code_effects, control
    from keras_vqem.files import replacing, write_json
    from keras_vqem.models import LatentNMT, loading
    from keras_vqem.text import TranslationData
    from keras_vqem.training import save_model

    file = loading.model_file(options.model)
    if file.name != "model.keras":
        raise ValueError(
            f"{options.model} is not the folder of a run. Name the codes of the run, "
            f"then make the preset of it again."
        )
    model = loading.load_model(file, LatentNMT)
    baseline = None
    if options.baseline:
        baseline = loading.load_translator(options.baseline)
    data = TranslationData(options.data)
    val = data.corpus(options.split)
    test = data.corpus(options.test) if options.test else None

    words = f"translating {len(val)} sentences of {options.split} with each code"
    print(words, file=sys.stderr, flush=True)
    effects = code_effects.measure(
        model,
        val,
        min_first=options.min_first,
        batch_size=options.batch_size,
    )
    names = code_effects.name_codes(effects, options.min_formed, options.min_share)
    measured = None
    if test is not None:
        measured = control.measure(model, test, names, baseline, options.batch_size)
    text = control.report(effects, names, options.split, measured, options.test)
    print(text)
    # Other names, which somebody gave, stay.
    kept = {n: c for n, c in model.styles.items() if n not in address.STYLES}
    model.styles = {**kept, **names}
    save_model(model, file)
    result = {
        "data": str(options.data),
        "split": options.split,
        "styles": names,
        "effects": dataclasses.asdict(effects),
        "test": options.test,
        "control": measured and dataclasses.asdict(measured),
        "baseline": str(options.baseline) if options.baseline else None,
    }
    write_json(file.parent / "codes.json", result)
    with replacing(file.parent / "codes.md") as part:
        part.write_text(text, encoding="utf-8")
    print(f"{file}: {model.styles or 'no styles'}")


if __name__ == "__main__":
    main()
