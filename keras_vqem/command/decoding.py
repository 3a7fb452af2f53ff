"""Options of decoding, which `translate` and `export` share."""

import argparse

STORED = "as stored in the model"


def add_arguments(parser):
    group = parser.add_argument_group(
        "decoding", f"What is not given is {STORED}; `keras-vqem zoo` shows it."
    )
    add = group.add_argument
    number = {"type": int, "metavar": "N"}
    add("--num-beams", **number, help="1: greedy search; more: slower, usually better")
    help = "leave out words that follow themselves (LatentNMT)"
    add("--drop-repeats", action=argparse.BooleanOptionalAction, help=help)
    help = "exponent of the length by which beams are compared"
    add("--length-penalty", type=float, metavar="X", help=help)
    add("--min-codes", **number, help="smallest number of codes (LatentNMT)")
    add("--max-codes", **number, help="largest number of codes (LatentNMT)")
    help = "add to the logit of the blank; below 0: longer (CTCTranslator)"
    add("--blank-bias", type=float, metavar="X", help=help)
    help = "add to the log probability of beams per token (CTCTranslator)"
    add("--length-bonus", type=float, metavar="X", help=help)
    help = "number of ids per position by which beams grow (CTCTranslator)"
    add("--top-k", **number, help=help)
    help = "Transformer that chooses among the beams of another model"
    add("--rescorer", metavar="MODEL", help=help)
    add("--min-length", **number, help="fewest tokens, end included (Transformer)")
    add("--max-length", **number, help="most tokens, end included (Transformer)")


SMALLEST = {
    "num_beams": 1,
    "min_codes": 0,
    "max_codes": 1,
    "min_length": 0,
    "max_length": 1,
    "top_k": 1,
}
NAMES = (
    *SMALLEST,
    "blank_bias",
    "drop_repeats",
    "length_bonus",
    "length_penalty",
    "rescorer",
)


def given(arguments):
    """The options that a command line gives: a dict for `chosen`.

    Raises:
        ValueError: If a number is too small.
    """
    found = {name: getattr(arguments, name) for name in NAMES}
    found = {name: value for name, value in found.items() if value is not None}
    for name, smallest in SMALLEST.items():
        if found.get(name, smallest) < smallest:
            raise ValueError(
                f"{_flag(name)} must be at least {smallest}, received {found[name]}."
            )
    return found


def chosen(options, model):
    """Options of `model.generate` for the options that a command line gives.

    Args:
        options: Dict from `given`.
        model: The model that is to translate.

    Returns:
        A dict, its rescorer loaded.

    Raises:
        ValueError: If the model has no such option.
    """
    known = getattr(model, "generation_options", [])
    for name in options:
        if name not in known:
            theirs = ", ".join(map(_flag, known)) or "none"
            raise ValueError(
                f"{_flag(name)} is no option of a {type(model).__name__}. Its options "
                f"of decoding: {theirs}."
            )
    if "rescorer" in options:
        from keras_vqem.models import Transformer, loading

        rescorer = loading.load_model(options["rescorer"], Transformer)
        options = {**options, "rescorer": rescorer}
    return options


def _flag(name):
    return "--" + name.replace("_", "-")
