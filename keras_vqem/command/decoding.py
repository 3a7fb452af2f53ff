"""Decoding options that `translate` and `export` share."""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import keras


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options to a parser."""
    group = parser.add_argument_group(
        "decoding",
        "Defaults are stored with each model; `keras-vqem zoo` shows them.",
    )
    add = group.add_argument
    number = {"type": int, "metavar": "N"}
    help = "number of hypotheses: 1 is greedy search; more are slower, usually better"
    add("--num-beams", **number, help=help)
    help = "leave out a word that repeats the one before it (LatentNMT)"
    add("--drop-repeats", action=argparse.BooleanOptionalAction, help=help)
    help = "exponent of the length by which scores of beams are divided"
    add("--length-penalty", type=float, metavar="X", help=help)
    help = "factor by which hypotheses may grow before they end: 1 is fastest, and "
    help += "favours short translations (Transformer)"
    add("--patience", type=float, metavar="X", help=help)
    add("--min-codes", **number, help="minimum number of codes (LatentNMT)")
    add("--max-codes", **number, help="maximum number of codes (LatentNMT)")
    help = "style of the translation, a name of its first code (LatentNMT)"
    add("--style", metavar="NAME", help=help)
    help = "code that comes first, instead of a style (LatentNMT)"
    add("--first-code", **number, help=help)
    help = "probability of the end above which codes end (LatentNMT)"
    add("--end-threshold", type=float, metavar="P", help=help)
    help = "add to the logit of the blank; below 0: longer (models that write by CTC)"
    add("--blank-bias", type=float, metavar="X", help=help)
    help = "add to the log probability of beams per token (CTCTranslator)"
    add("--length-bonus", type=float, metavar="X", help=help)
    help = "number of ids per position by which beams grow (CTCTranslator)"
    add("--top-k", **number, help=help)
    help = "number of passes over the words (RefinementNAT)"
    add("--num-iterations", **number, help=help)
    help = "trained Transformer that chooses among candidates (not for Transformer)"
    add("--rescorer", metavar="MODEL", help=help)
    help = "number of candidates, all but the first with drawn fertilities "
    help += "(FertilityNAT)"
    add("--num-samples", **number, help=help)
    help = "how fertilities are chosen: argmax or mean (FertilityNAT)"
    add("--fertility", metavar="NAME", help=help)
    help = "minimum number of tokens before the end (Transformer)"
    add("--min-length", **number, help=help)
    help = "maximum number of tokens, the end included (Transformer, FertilityNAT)"
    add("--max-length", **number, help=help)
    help = "sample words instead of searching, with --num-beams 1: 1 follows the "
    help += "model, lower values stay closer to its first choice (Transformer)"
    add("--temperature", type=float, metavar="X", help=help)
    add("--seed", **number, help="seed of the samples")
    help = "beginning of the translation, from which the model goes on (Transformer)"
    add("--target-prefix", metavar="TEXT", help=help)
    help = "number of translations of each text, best first: beams, or samples"
    add("--num-return-sequences", **number, help=help)


SMALLEST = {
    "num_beams": 1,
    "num_samples": 1,
    "num_iterations": 1,
    "min_codes": 0,
    "max_codes": 1,
    "first_code": 0,
    "min_length": 0,
    "max_length": 1,
    "top_k": 1,
    "seed": 0,
    "num_return_sequences": 1,
}
NAMES = (
    *SMALLEST,
    "blank_bias",
    "drop_repeats",
    "end_threshold",
    "fertility",
    "length_bonus",
    "length_penalty",
    "patience",
    "rescorer",
    "style",
    "target_prefix",
    "temperature",
)


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the decoding options that a command line gives.

    Args:
        arguments: Parsed arguments.

    Returns:
        A dict for `chosen`.

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


def chosen(options: dict[str, Any], model: "keras.Model") -> dict[str, Any]:
    """Checks options and loads the rescorer.

    Args:
        options: Dict from `given`.
        model: Model that the options are for.

    Returns:
        A dict of options of `model.generate`.

    Raises:
        ValueError: If the model does not have an option, or not as many codes.
    """
    from keras_vqem.models.translator import Translator

    known = model.generation_options if isinstance(model, Translator) else []
    for name in options:
        if name not in known:
            theirs = ", ".join(map(_flag, known)) or "none"
            raise ValueError(
                f"{_flag(name)} is not an option of {type(model).__name__}. Its "
                f"decoding options are: {theirs}."
            )
    code = options.get("first_code")
    if code is not None and code >= model.bottleneck.num_codes:
        raise ValueError(
            f"--first-code must be below {model.bottleneck.num_codes}, the number of "
            f"codes of this model, received {code}."
        )
    # The one that is given replaces the other if the model stores that.
    if ("style" in options) != (code is not None):
        options = {"style": None, "first_code": None, **options}
    if "rescorer" in options:
        from keras_vqem.models import Transformer, loading

        rescorer = loading.load_model(options["rescorer"], Transformer)
        options = {**options, "rescorer": rescorer}
    return options


def _flag(name):
    return "--" + name.replace("_", "-")
