"""Measures the time of a translation: ours, beside CTranslate2 with the same weights.

    make .venv-peers/.ready
    python recipes/benchmark_decoding.py --peers .venv-peers/bin/python \\
        --precision float32 bfloat16 float32-xla --json out/decoding.json \\
        --plot out/decoding.png

Random weights at the paper's size by default: 6 + 6 layers, hidden_dim 512,
intermediate_dim 2048, a vocabulary of 32,768. Sources of several lengths, one sentence
at a time, and batches; as many tokens are written as read. Every model of ours is
exported as a SavedModel from ids to ids and loaded again. All take turns, round after
round; one process holds our models of one precision, another one those of CTranslate2.

With --presets, the trained translators instead: BLEU and time of the sentences of a
test set, one at a time, with the lengths that the models choose.

    python recipes/benchmark_decoding.py --peers .venv-peers/bin/python \\
        --presets --data data/multi30k --json out/presets.json --plot out/presets.png

Lengths are forced where weights are random: they do not predict an end. A Transformer
writes as many ids as its source has; LatentNMT predicts the codes that they need, and
then the end of the codes. --page writes the tables into a page between the lines
<!-- decoding --> and <!-- end decoding -->, or presets instead of decoding. Run it on
an idle machine, and compare ratios, not milliseconds.
"""

import importlib.util
import os
import pathlib
import tempfile

from arguments import (
    above_zero,
    add_number,
    add_sizes,
    make_parser,
    positive,
    user_errors,
)


def parse(argv):
    parser = make_parser(__doc__)
    add = parser.add_argument
    add_sizes(
        parser,
        hidden_dim=512,
        intermediate_dim=2048,
        num_heads=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
    )
    peers_help = "Python interpreter that has ctranslate2 (default: it is left out)"
    add("--peers", metavar="PYTHON", help=peers_help)
    help = (
        "precisions of our models; float32-xla is float32 with parts compiled by XLA "
    )
    help += "(default: float32)"
    choices = {"choices": ("float32", "bfloat16", "float32-xla"), "nargs": "+"}
    add("--precision", default=["float32"], **choices, help=help)
    many = {"type": positive, "nargs": "+", "metavar": "N"}
    for flag, default, text in (
        ("--tokens", [8, 16, 27, 50], "lengths of single sentences"),
        ("--batch-sizes", [8, 32, 128], "sizes of batches"),
        ("--num-compress-steps", [3, 4], "numbers of compress steps, n_c, to try"),
        ("--num-predictor-layers", [6, 2, 1], "numbers of predictor layers, P, to try"),
    ):
        help = f"{text} (default: {' '.join(map(str, default))})"
        add(flag, default=default, **many, help=help)
    add_number(parser, "--batch-tokens", 27, "length of the sentences of batches")
    add_number(parser, "--vocabulary", 32_768, "size of the vocabulary")
    add_number(parser, "--num-codes", 4096, "size of the codebook")
    help = "minutes for everything, if there is time for two rounds of each size"
    add_number(parser, "--minutes", 20.0, help, above_zero)
    threads_help = "threads per contestant (default: as many as usable cores)"
    add("--threads", type=positive, metavar="N", help=threads_help)
    group = parser.add_argument_group("trained models")
    help = "time trained models instead: presets, the first one a Transformer "
    help += "(default: those of Multi30k)"
    group.add_argument("--presets", nargs="*", metavar="NAME", help=help)
    help = "folder of prepare_translation.py, or one with the files of the test set, "
    help += "such as test_2016_flickr.en and .de"
    group.add_argument("--data", type=pathlib.Path, metavar="DIR", help=help)
    help = "name of the split or of the files (default: %(default)s)"
    group.add_argument("--split", default="test_2016_flickr", help=help)
    help = "number of lines of the test set (default: all)"
    group.add_argument("--lines", type=positive, metavar="N", help=help)
    for flag, metavar, text in (
        ("--json", "FILE", "file for all numbers, as JSON"),
        ("--plot", "FILE", "picture to write: .png, .pdf or .svg; needs matplotlib"),
        ("--page", "FILE", "Markdown page whose section of tables is replaced"),
    ):
        add(flag, type=pathlib.Path, metavar=metavar, help=text)
    args = parser.parse_args(argv)
    # Mistakes are found before the long computation.
    if args.hidden_dim % args.num_heads:
        parser.error("--hidden-dim must be a multiple of --num-heads")
    if args.presets is not None and not args.data:
        parser.error("--presets translates a test set: add --data")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install '.[recipes]' in a checkout")
    if args.page and not args.page.is_file():
        parser.error(f"--page {args.page} does not exist")
    return args


def header(result):
    """One line about machine and versions, and a warning if it was not idle."""
    machine, versions = result["machine"], result["versions"]
    named = [f"{k} {versions[k]}" for k in ("tensorflow", "keras", "python")]
    named += [f"ctranslate2 {result['peer']}"] if result.get("peer") else []
    line = f"{machine['processor']}, {machine['threads']} threads; {', '.join(named)}."
    others = machine["others_share"]
    if others is not None and others > 0.05:
        line += f" **Other processes used {others:.0%} of the machine meanwhile.**"
    return line


@user_errors
def main(arguments=None):
    args = parse(arguments)

    import decoding_presets
    import decoding_sizes

    from keras_vqem.evaluation import decoding_report, environment
    from keras_vqem.files import write_json

    args.threads = args.threads or environment.usable_cores()
    trained = args.presets is not None
    task = decoding_presets if trained else decoding_sizes
    others = environment.OtherProcesses()
    with tempfile.TemporaryDirectory() as folder:
        result = task.measure(args, pathlib.Path(folder))
    result |= environment.environment()
    result["machine"] |= {"threads": args.threads, "others_share": others.share()}
    rows = result["sizes"][0]["rows"].values()
    found = [row.get("versions", {}).get("ctranslate2") for row in rows]
    result["peer"] = next(filter(None, found), None)
    result["header"] = header(result)
    settings = vars(args).items()
    result["settings"] = {
        k: str(v) if isinstance(v, pathlib.Path) else v for k, v in settings
    }
    text = task.text_of(args, result)
    if args.json:
        write_json(args.json, result)
    print(text)
    if args.page:
        name = "presets" if trained else "decoding"
        if args.plot:
            picture = os.path.relpath(args.plot, args.page.parent)
            text += f"\n\n![The same as a picture]({picture})"
        decoding_report.write_section(args.page, name, text)
    if args.plot:
        task.draw(args, result, args.plot)


if __name__ == "__main__":
    main()
