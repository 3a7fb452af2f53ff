"""Variants of EM and of LatentNMT by name, for the flag --variants of the recipes.

Only recipes import this module. What each one does, with its equation, is in
docs/guides/bottlenecks.md, "As in the paper, to the letter".
"""

EM = {
    "paper-averages": "equation 4 of the paper to the letter",
    "reference-averages": "the start of the authors' code: counts of 0, random codes",
    "random-codes": "codes start at random, not at vectors of the data",
    "norm-commitment": "the norm of equation 2 instead of the mean of squares",
    "one-draw": "the decoder gets one of the draws instead of their mean",
    "mode": "the decoder gets the nearest code instead of the mean of the draws",
    "learned-prior": "the mixture learns the weights of its codes",
}
NMT = {
    "hard-labels": "the latent predictor learns the nearest codes instead of the draws",
    "causal-decoder": "words see earlier positions only, as in the paper",
    "causal-encoder": "source positions see earlier ones only, as in the paper",
    "gold-targets": "causal-decoder, whose input has true words at first, as in the "
    "authors' code",
}
# Pairs that set the same thing.
EXCLUSIVE = [
    ("paper-averages", "reference-averages"),
    ("random-codes", "reference-averages"),
    ("one-draw", "mode"),
    ("causal-decoder", "gold-targets"),
]
DRAWN = ("one-draw", "mode", "hard-labels")


def add_variants(group, *tables):
    """Adds the flag, whose names are the keys of the given tables."""
    known = {name: help for table in tables for name, help in table.items()}
    said = "; ".join(f"{name}: {help}" for name, help in known.items())
    group.add_argument(
        "--variants",
        nargs="+",
        choices=list(known),
        metavar="NAME",
        help=f"what to do as the paper or its authors' code does. {said}",
    )


def check(arguments):
    """Raises a `ValueError` if variants exclude each other or the bottleneck."""
    chosen = set(arguments.variants or ())
    for pair in EXCLUSIVE:
        if chosen.issuperset(pair):
            raise ValueError(f"--variants {' '.join(pair)}: choose one of them.")
    of_em = sorted(chosen & {*EM, *DRAWN})
    if of_em and arguments.bottleneck != "em":
        raise ValueError(
            f"--variants {' '.join(of_em)}: variants of --bottleneck em, not of "
            f"{arguments.bottleneck}. Leave out one of them."
        )
    drawn = sorted(chosen & set(DRAWN))
    if drawn and not arguments.num_samples:
        raise ValueError(
            f"--variants {' '.join(drawn)}: variants of soft EM, but --num-samples 0 "
            f"is hard EM. Leave out one of them."
        )
    causal = sorted(chosen & {"causal-decoder", "gold-targets"})
    if causal and getattr(arguments, "word_output", None) == "ctc":
        raise ValueError(
            f"--variants {causal[0]}: a variant of --word-output positionwise, not of "
            f"ctc. Leave out one of them."
        )


def em_bottleneck(variants, num_codes, **settings):
    """Returns a `VQEMBottleneck` with variants.

    Args:
        variants: Names from `EM` and `NMT`; those of the network are ignored.
        num_codes: Number of codes.
        **settings: Arguments of `VQEMBottleneck` without variants.
    """
    from keras_vqem import layers

    variants = variants or ()
    if "paper-averages" in variants:
        settings["decay"] = layers.PaperAverages(settings["decay"])
    if "reference-averages" in variants:
        settings["decay"] = layers.ReferenceAverages(settings["decay"])
    if {"random-codes", "reference-averages"} & set(variants):
        settings["initializer"] = "lecun_uniform"
    if "norm-commitment" in variants:
        weight = settings["commitment_weight"]
        settings["commitment_weight"] = layers.NormCommitment(weight)
    if any(name in DRAWN for name in variants):
        sent = [name for name in ("one-draw", "mode") if name in variants]
        settings["num_samples"] = layers.Draws(
            settings["num_samples"],
            decoder={"one-draw": "draw", "mode": "mode"}[sent[0]] if sent else "mean",
            labels="mode" if "hard-labels" in variants else "draws",
        )
    kind = layers.VQEMBottleneck
    if "learned-prior" in variants:
        kind = layers.LearnedPriorVQEMBottleneck
    return kind(num_codes, **settings)


def word_output(variants, steps):
    """Returns the `word_output` of a `LatentNMT` with variants, or None.

    The authors' code has true words for 50,000 steps; this is a third of the run, if
    that is less.

    Args:
        variants: Names from `EM` and `NMT`; those of the bottleneck are ignored.
        steps: Number of steps of the run.
    """
    from keras_vqem.models import CausalOutput

    variants = variants or ()
    if "gold-targets" in variants:
        return CausalOutput(gold_steps=max(min(50_000, steps // 3), 1))
    return CausalOutput() if "causal-decoder" in variants else None
