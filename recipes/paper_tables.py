"""The tables of the paper as data: models, and rows with the paper's numbers.

Models have the paper's sizes. paper_scales.py says what becomes of them at a smaller
scale, and what all models of a recipe have in common. Only recipes import this module.
"""

from typing import NamedTuple

import variants


class Model(NamedTuple):
    """A model to train.

    Attributes:
        recipe: Name of the recipe that trains it.
        flags: Dict of the flags by which it differs from others of the recipe, by the
            names of their values. True is a flag without a value.
        data: `"gold"` or `"distilled"`, the sentence pairs it is trained on, or
            `"images"`.
        start: Whether it starts from the teacher, at scales where models do.
        autoencoder: Name of the model over whose codes it is a prior, or None.
    """

    recipe: str
    flags: dict
    data: str = "distilled"
    start: bool = False
    autoencoder: str | None = None


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        label: Name of the row, the paper's if it has it.
        model: Name of the model.
        paper: Dict of the paper's numbers: `bleu`, `ms`, `speedup` or `bits`.
        decoding: Dict of the decoding options to vary: their names in the results of
            evaluate_translation.py, whose flags are made of them.
        prior: Name of the row of evaluate_images.py.
    """

    label: str
    model: str
    paper: dict = {}
    decoding: dict = {"num_beams": 1}
    prior: str = ""


class Table(NamedTuple):
    """A table or figure of the paper.

    Attributes:
        title: Title of the page.
        kind: `"translation"`, `"stability"`, `"images"` or `"pictures"`.
        rows: List of `Row`.
        varies: Names of the flags that get a column.
        note: What to say below the table.
    """

    title: str
    kind: str
    rows: list
    varies: tuple = ()
    note: str = ""


# Models.


def latent(data="distilled", start=True, **flags):
    usual = {"num_codes": 4096, "num_samples": 10, "num_compress_steps": 3}
    return Model("train_latent_nmt", {**usual, "hidden_dim": 512, **flags}, data, start)


def arms(name, samples, **flags):
    """Returns models that differ in the number of draws; 0 is hard EM."""
    names = {m: f"em{m}" if m else "hard" for m in samples}
    return {f"{names[m]}{name}": latent(num_samples=m, **flags) for m in samples}


def image(recipe, **flags):
    return Model(recipe, flags, data="images")


VARIANTS = {**variants.EM, **variants.NMT}
SAMPLES = (0, 5, 10, 25, 50)
# None of what keeps codes alive here, and the paper's temperature and decay.
PLAIN = {
    "variants": ["random-codes"],
    "bypass_steps": 0,
    "dead_code_threshold": 0.0,
    "temperature": 1.0,
    "decay": 0.999,
    "predicted_share": 0.0,
}
STABILITY = {"num_codes": 2**14, "data": "gold", "start": False, "validate_every": 1}
RATES = {"": 0.0014, "_fast": 0.0028}

MODELS = {
    "teacher": Model("train_transformer", {"hidden_dim": 512}, data="gold"),
    "fertility": Model("train_fertility_nat", {"hidden_dim": 512}, start=True),
    "refinement": Model(
        "train_refinement_nat",
        {"hidden_dim": 512, "refinement": "denoising"},
        start=True,
    ),
    "mask_predict": Model(
        "train_refinement_nat",
        {"hidden_dim": 512, "refinement": "mask-predict"},
        start=True,
    ),
    # The authors of the Latent Transformer used 2^16 codes.
    "lt_semhash": latent(
        "gold", bottleneck="semhash", num_codes=2**16, attend_source=True
    ),
    **arms("_gold", (0, 5), data="gold"),
    **arms("", SAMPLES),
    **arms("_nc4", SAMPLES, num_compress_steps=4),
    **{
        f"hard_gold_k{bits}": latent("gold", num_samples=0, num_codes=2**bits)
        for bits in (10, 14, 16)
    },
    # A teacher has one width, so that none of these starts from it.
    **arms("_w256", (0, 10, 25), hidden_dim=256, start=False),
    **arms("_w384", (0, 10, 25), hidden_dim=384, start=False),
    **arms("_w512", (0, 10, 25), hidden_dim=512, start=False),
    "gumbel": latent(bottleneck="gumbel"),
    "semhash": latent(bottleneck="semhash"),
    "vq": latent(bottleneck="vq"),
    "product": latent(num_samples=0, groups=2, num_codes=2**6),
    **{f"em10_{name.replace('-', '_')}": latent(variants=[name]) for name in VARIANTS},
    "em10_attend": latent(attend_source=True),
    "em10_k14": latent(num_codes=2**14),
    "em10_k14_attend": latent(num_codes=2**14, attend_source=True),
    **{
        name: model
        for rate, value in RATES.items()
        for attends in (True, False)
        for name, model in arms(
            f"_stability{'' if attends else '_noattend'}{rate}",
            (0, 5, 25),
            learning_rate=value,
            attend_source=attends,
            **PLAIN,
            **STABILITY,
        ).items()
    },
    "hard_stabilised": latent(
        num_samples=0,
        learning_rate=RATES[""],
        attend_source=True,
        **{**STABILITY, "start": True},
    ),
    "pixels": image("train_image_transformer"),
    "vae": image("train_image_autoencoder", bottleneck="gaussian"),
    "vq512": image("train_image_autoencoder", bottleneck="vq", num_codes=512),
    "image_hard": image("train_image_autoencoder", num_samples=0, num_codes=256),
    "image_em5": image("train_image_autoencoder", num_samples=5, num_codes=256),
    "image_hard_prior": Model(
        "train_image_prior", {}, "images", autoencoder="image_hard"
    ),
    "image_em5_prior": Model(
        "train_image_prior", {"soft_labels": True}, "images", autoencoder="image_em5"
    ),
}

# Rows, with the paper's numbers.

HARD, EM = "VQ-VAE + distillation", "VQ-VAE with EM + distillation"
AT_3, AT_4 = {"ms": 81, "speedup": 4.08}, {"ms": 58, "speedup": 5.71}
BLEU_AT_3 = {0: 26.4, 5: 26.4, 10: 26.7, 25: 26.6, 50: 26.5}
BLEU_AT_4 = {0: 22.4, 5: 22.3, 10: 25.4, 25: 25.1, 50: 23.6}


def sample_row(m, name, bleu, **speed):
    model = f"em{m}{name}" if m else f"hard{name}"
    return Row(EM if m else HARD, model, {"bleu": bleu, **speed})


# The paper marks these speedups as relative to the 408 ms of Gu's own Transformer.
NAT = "NAT + distillation"
BY_NAT = {"not_over_beam_4": True}
AUTOREGRESSIVE = [
    Row(
        "Autoregressive Model (beam size=4)",
        "teacher",
        {"bleu": 28.1, "ms": 331, "speedup": 1.0},
        {"num_beams": 4},
    ),
    Row(
        "Autoregressive Baseline (no beam-search)",
        "teacher",
        {"bleu": 27.0, "ms": 265, "speedup": 1.25},
    ),
]
# The two recipes below may be missing; their rows are then left out. Names in the last
# dicts are those of flags and results of evaluate_translation.py.
NON_AUTOREGRESSIVE = [
    Row(
        NAT,
        "fertility",
        {"bleu": 17.7, "ms": 39, "speedup": 15.6, **BY_NAT},
        {"num_samples": 1},
    ),
    Row(
        f"{NAT} + NPD=10",
        "fertility",
        {"bleu": 18.7, "ms": 79, "speedup": 7.68, **BY_NAT},
        {"num_samples": 10},
    ),
    Row(
        f"{NAT} + NPD=100",
        "fertility",
        {"bleu": 19.2, "ms": 257, "speedup": 2.36, **BY_NAT},
        {"num_samples": 100},
    ),
    *(
        Row(
            f"Iterative refinement + distillation, {n} pass{'es' if n > 1 else ''}",
            "refinement",
            decoding={"num_beams": 1, "num_iterations": n},
        )
        for n in (1, 2, 5, 10)
    ),
    *(
        Row(
            f"Mask-predict + distillation, {n} passes"
            f"{f', best of {lengths} lengths' if lengths > 1 else ''}",
            "mask_predict",
            decoding={"num_beams": lengths, "num_iterations": n},
        )
        for n, lengths in ((5, 1), (10, 1), (10, 4))
    ),
]

TABLES = {
    "translation": Table(
        "Translation (Table 1)",
        "translation",
        [
            *AUTOREGRESSIVE,
            *NON_AUTOREGRESSIVE,
            Row(
                "LT + Semhash", "lt_semhash", {"bleu": 19.8, "ms": 105, "speedup": 3.15}
            ),
            Row("VQ-VAE", "hard_gold", {"bleu": 21.4, **AT_3}),
            Row("VQ-VAE with EM", "em5_gold", {"bleu": 22.4, **AT_3}),
            sample_row(0, "", 26.4, **AT_3),
            sample_row(10, "", 26.7, **AT_3),
            sample_row(0, "_nc4", 22.4, **AT_4),
            sample_row(10, "_nc4", 25.4, **AT_4),
        ],
        ("num_compress_steps", "num_samples"),
        "The row of hard EM at n_c = 4 is from the paper's table of samples. The paper "
        "has no numbers for iterative refinement (Lee 2018) and mask-predict "
        "(Ghazvininejad 2019). Among translations of several lengths, as in noisy "
        "parallel decoding (NPD), the teacher chooses.",
    ),
    "codebook-size": Table(
        "Size of the codebook",
        "translation",
        [
            *AUTOREGRESSIVE,
            Row("VQ-VAE", "hard_gold_k10", {"bleu": 20.8}),
            Row("VQ-VAE", "hard_gold", {"bleu": 21.6}),
            Row("VQ-VAE", "hard_gold_k14", {"bleu": 21.0}),
            Row("VQ-VAE", "hard_gold_k16", {"bleu": 21.8}),
        ],
        ("num_codes",),
        "The paper's text calls 2^12 codes the best, its table has 2^16 ahead of them "
        "(21.8 and 21.6), and its Table 1 has 21.4 for 2^12.",
    ),
    "samples": Table(
        "Number of samples",
        "translation",
        [
            *AUTOREGRESSIVE,
            *(sample_row(m, "", BLEU_AT_3[m], **AT_3) for m in SAMPLES),
            *(sample_row(m, "_nc4", BLEU_AT_4[m], **AT_4) for m in SAMPLES),
        ],
        ("num_compress_steps", "num_samples"),
    ),
    "width": Table(
        "Width of the model",
        "translation",
        [
            *AUTOREGRESSIVE,
            *(
                sample_row(m, f"_w{width}", bleu, **speed)
                for width, speed, scores in (
                    (256, {"ms": 76, "speedup": 4.36}, (24.5, 21.9, 25.8)),
                    (384, {"ms": 80, "speedup": 4.14}, (25.6, 22.2, 26.2)),
                    (512, AT_3, (26.4, 26.7, 26.6)),
                )
                for m, bleu in zip((0, 10, 25), scores, strict=True)
            ),
        ],
        ("hidden_dim", "num_samples"),
        "The teacher has one width, so none of these models starts from it, not even "
        "those of its width.",
    ),
    "discretisation": Table(
        "Ways to make codes",
        "translation",
        [
            *AUTOREGRESSIVE,
            Row("Gumbel-Softmax + distillation", "gumbel", {"bleu": 23.2}),
            Row("Improved semantic hashing + distillation", "semhash", {"bleu": 24.1}),
            Row("VQ by gradient + distillation", "vq"),
            sample_row(0, "", 26.4),
            sample_row(10, "", 26.7),
            Row("Product quantization, hard EM + distillation", "product"),
        ],
        ("bottleneck", "groups", "num_codes", "num_samples"),
        "The paper has no distilled numbers for VQ by gradient and for product "
        "quantization.",
    ),
    "attend-source": Table(
        "A compressor that attends to the source",
        "translation",
        [
            *AUTOREGRESSIVE,
            sample_row(10, "", 26.7),
            Row(f"{EM}, attention", "em10_attend"),
            Row(EM, "em10_k14"),
            Row(f"{EM}, attention", "em10_k14_attend"),
        ],
        ("num_codes", "attend_source"),
        "The paper found the same BLEU with and without attention at 2^12 codes, and "
        "gives no numbers.",
    ),
    "switches": Table(
        "As in the paper, to the letter",
        "translation",
        [
            *AUTOREGRESSIVE,
            sample_row(10, "", 26.7),
            *(
                Row(f"{EM}: {help}", f"em10_{name.replace('-', '_')}")
                for name, help in VARIANTS.items()
            ),
        ],
        note="Each row changes one thing of the first one with EM into what the paper "
        "or its authors' code does (`--variants`). The paper has no numbers for these.",
    ),
    "stability": Table(
        "Stability (Figure 3)",
        "stability",
        [
            *(
                Row(f"{'soft' if m else 'hard'} EM", f"{name}_stability{rest}{rate}")
                for rate in RATES
                for rest in ("", "_noattend")
                for m, name in ((0, "hard"), (5, "em5"), (25, "em25"))
            ),
            Row("hard EM, with what keeps codes alive", "hard_stabilised"),
        ],
        ("attend_source", "learning_rate", "num_samples"),
        "BLEU of translations from the codes of the references, on the validation set "
        "(the paper: test set), not distilled. In the paper's figure (2^14 codes, "
        "attention) hard EM collapses and soft EM with two numbers of samples, which "
        "it does not name, does not. Except for the last row there is no bypass, start "
        "from the teacher, revival of codes or predicted codes in training; the "
        "temperature is 1 and the decay 0.999. Codes start at random.",
    ),
    "cifar": Table(
        "CIFAR-10",
        "images",
        [
            Row("ImageTransformer", "pixels", {"bits": 2.92}, prior="exact"),
            Row("VAE", "vae", {"bits": 4.51}, prior="ELBO"),
            Row(
                "VQ-VAE (van den Oord)",
                "vq512",
                {"bits": 4.67},
                prior="unigram prior per cell",
            ),
            Row("VQ-VAE (Ours)", "image_hard", {"bits": 4.83}, prior="predictor"),
            Row("EM", "image_em5", {"bits": 4.80}, prior="predictor"),
        ],
        ("num_codes", "num_samples"),
        "Bits per dimension. Ours are bounds; the paper's accounting, which charges "
        "soft labels and decodes the mean of the draws, is below the table where there "
        "are draws.",
    ),
    "reconstructions": Table(
        "Reconstructions (Figure 4)",
        "pictures",
        [Row("EM", "image_em5")],
        ("num_codes", "num_samples"),
        "Test images, and below each row what is rebuilt from their codes.",
    ),
}
