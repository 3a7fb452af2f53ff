"""The three scales of recipes/reproduce.py: what all models of a recipe have in common.

Flags are those of the recipes, by the names of their values; True is a flag without a
value. Only recipes import this module.
"""

from typing import NamedTuple


class Scale(NamedTuple):
    """Sizes and settings of all models.

    Attributes:
        scaled: Dict from names of flags to dicts from the paper's values to those here.
        flags: Dict from recipes to dicts of flags that all of its models have.
        images: Dict of flags of image data.
        starts: Whether models start from the teacher.
        teacher: Preset that is the teacher, or None to train one.
        minutes: Dict from recipes to the estimated minutes of one run; those of
            `"train_"` are for all other trainers.
        source: Where these estimates come from.
    """

    scaled: dict
    flags: dict
    images: dict
    starts: bool
    teacher: str | None
    minutes: dict
    source: str


# Smoke: everything runs, and nothing is learned.
_tiny = {
    "epochs": 2,
    "average": 1,
    "learning_rate": 0.003,
    "seed": 1,
}
_tiny_text = {
    **_tiny,
    "num_heads": 2,
    "intermediate_dim": 32,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "tokens_per_batch": 1024,
    "max_shapes": 2,
    "validate_every": 2,
}
_tiny_images = {**_tiny, "steps_per_epoch": 4, "batch_size": 16}
_tiny_grid = {
    **_tiny_images,
    "hidden_dim": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 32,
    "block_length": 16,
}
SMOKE = Scale(
    scaled={
        "num_codes": {
            **{64: 4, 256: 16, 512: 32},
            **{2**10: 8, 2**12: 16, 2**14: 32, 2**16: 64},
        },
        "hidden_dim": {256: 8, 384: 12, 512: 16},
    },
    flags={
        "prepare_translation": {"numbers": 400, "vocabulary": 400},
        "train_transformer": _tiny_text,
        "distill": {"num_beams": 2, "batch_size": 64},
        "train_fertility_nat": _tiny_text,
        "train_refinement_nat": _tiny_text,
        "train_latent_nmt": {
            **_tiny_text,
            "num_predictor_layers": 1,
            "bypass_steps": 4,
            "predicted_share": 0.5,
        },
        "evaluate_translation": {
            "lines": 50,
            "rounds": 5,
            "latency_batches": 1,
            "show": 0,
        },
        "train_image_autoencoder": {
            **_tiny_images,
            "network": "paper",
            "likelihood": "categorical",
            "channels": 8,
            "code_dim": 4,
            "num_slots": 10,
            "latent_dim": 8,
        },
        "train_image_prior": {**_tiny_grid, "context": "previous"},
        "train_image_transformer": _tiny_grid,
        "evaluate_images": {"images": 20, "unigram_images": 100, "batch_size": 20},
        "sample_images": {"columns": 4, "rows": 2},
    },
    images={"dataset": "shapes", "size": 16},
    starts=True,
    teacher=None,
    minutes={
        "prepare_translation": 0.2,
        "distill": 0.3,
        "evaluate_translation": 1.0,
        "evaluate_images": 0.3,
        "sample_images": 0.3,
        "train_": 0.5,
    },
    source="runs of a few rows on one core",
)

# Small: Multi30k and CIFAR-10 on two cores, all tables within 15 hours of two jobs side
# by side. So runs have 7 epochs, where docs/results/multi30k.md has 12 and 24.
_small_text = {
    "epochs": 7,
    "average": 2,
    "seed": 1,
    "validate_every": 7,
    "num_heads": 4,
    "intermediate_dim": 256,
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "dropout": 0.1,
    "learning_rate": 0.002,
    "tokens_per_batch": 2048,
    "max_shapes": 6,
    "label_smoothing": 0.1,
    "jit": True,
}
_small_images = {"seed": 1, "epochs": 6, "average": 1}
SMALL = Scale(
    scaled={
        "num_codes": {64: 23, 2**10: 128, 2**12: 512, 2**14: 2048, 2**16: 8192},
        "hidden_dim": {256: 64, 384: 96, 512: 128},
        "learning_rate": {0.0014: 0.002, 0.0028: 0.004},
    },
    flags={
        "prepare_translation": {},
        "train_transformer": {**_small_text, "epochs": 20, "average": 5},
        "distill": {"num_beams": 4, "batch_size": 128},
        "train_fertility_nat": _small_text,
        "train_refinement_nat": _small_text,
        "train_latent_nmt": {
            **_small_text,
            "bypass_steps": 600,
            "predicted_share": 0.5,
            "temperature": 5.0,
            "decay": 0.99,
            "dead_code_threshold": 0.05,
            "commitment_weight": 0.25,
            "num_predictor_layers": 2,
        },
        "evaluate_translation": {"rounds": 100, "latency_batches": 1, "show": 0},
        "train_image_autoencoder": {
            **_small_images,
            "steps_per_epoch": 400,
            "network": "paper",
            "likelihood": "categorical",
            "channels": 64,
            "code_dim": 16,
            "num_slots": 10,
            "temperature": 0.01,
            "learning_rate": 0.001,
        },
        "train_image_prior": {
            **_small_images,
            "steps_per_epoch": 375,
            "context": "previous",
        },
        "train_image_transformer": {**_small_images, "steps_per_epoch": 450},
        "evaluate_images": {},
        "sample_images": {},
    },
    images={"dataset": "cifar10"},
    starts=True,
    teacher="multi30k_en_de_teacher",
    minutes={
        "prepare_translation": 1,
        "distill": 3,
        "evaluate_translation": 8,
        "evaluate_images": 10,
        "sample_images": 2,
        "train_image_autoencoder": 50,
        "train_image_prior": 30,
        "train_image_transformer": 60,
        "train_": 15,
    },
    source="the runs of docs/results/paper/translation.md, which had other work beside "
    "them; images from docs/results/cifar10.md, per step, with the softmax guessed",
)

# Paper: WMT14 and CIFAR-10 as the paper says, and as the authors' code where it does
# not say. Every flag of a network, of codes and of learning is here.
_paper_run = {
    "seed": 1,
    "strategy": "auto",
    "precision": "float32",
    "accumulation_steps": 1,
    "final": 0.05,
}
_paper_text = {
    **_paper_run,
    "validate_every": 1,
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "dropout": 0.1,
    "max_shapes": 64,
}
# transformer_base of the authors' code, 8 x 4,096 tokens, 300,000 steps.
_base = {
    **_paper_text,
    "epochs": 62,
    "average": 5,
    "num_heads": 8,
    "intermediate_dim": 2048,
    "learning_rate": 0.00099,
    "warmup_steps": 8000,
    "schedule": "inverse-square-root",
    "tokens_per_batch": 32768,
    "label_smoothing": 0.1,
}
_paper_images = {
    **_paper_run,
    "average": 1,
    "learning_rate": 0.0005,
    "warmup_steps": 4000,
    "schedule": "exponential",
}
_paper_grid = {
    **_paper_images,
    "hidden_dim": 512,
    "num_heads": 4,
    "intermediate_dim": 2048,
    "block_length": 256,
}
PAPER = Scale(
    scaled={},
    flags={
        "prepare_translation": {
            "tfds": "wmt14_translate/de-en",
            "vocabulary": 32000,
            "vocabulary_lines": 2_000_000,
            "character_coverage": 1.0,
            "max_tokens": 256,
            "tokens_per_batch": 16384,
            "max_shapes": 64,
            "length_multiple": 8,
        },
        "train_transformer": {**_base, "consistency_weight": 0.0},
        "distill": {"num_beams": 4, "batch_size": 128, "strategy": "auto"},
        "train_fertility_nat": {
            **_base,
            "max_fertility": 50,
            "tension": 4.0,
            "aligner_steps": 5,
        },
        "train_refinement_nat": {
            **_base,
            "corruption": 0.3,
            "denoising_share": 0.5,
            "num_iterations": 10,
        },
        # transformer_nat_base, 8 x 2,048 tokens, 250,000 steps; the decay of the
        # learning rate is the paper's.
        "train_latent_nmt": {
            **_paper_text,
            "epochs": 26,
            "average": 1,
            "num_heads": 4,
            "intermediate_dim": 4096,
            "learning_rate": 0.0014,
            "warmup_steps": 4000,
            "schedule": "exponential",
            "tokens_per_batch": 16384,
            "label_smoothing": 0.0,
            "bottleneck": "em",
            "groups": 1,
            "temperature": 1.0,
            "decay": 0.999,
            "dead_code_threshold": 0.0,
            "commitment_weight": 0.25,
            "num_predictor_layers": 6,
            "word_output": "positionwise",
            "bypass_steps": 0,
            "predicted_share": 0.0,
            "prior_weight": 0.0,
        },
        "evaluate_translation": {
            "rounds": 1000,
            "latency_batches": 1,
            "batch_size": 64,
            "show": 0,
            "international": True,
        },
        # The paper gives neither steps, batches nor learning rate; these are ours.
        "train_image_autoencoder": {
            **_paper_images,
            "epochs": 100,
            "batch_size": 128,
            "network": "paper",
            "likelihood": "categorical",
            "channels": 512,
            "code_dim": 512,
            "latent_dim": 512,
            "num_slots": 10,
            "bottleneck": "em",
            "num_samples": 5,
            "num_codes": 256,
            "temperature": 1.0,
            "decay": 0.999,
            "dead_code_threshold": 0.0,
            "commitment_weight": 0.25,
        },
        "train_image_prior": {
            **_paper_grid,
            "epochs": 100,
            "batch_size": 64,
            "num_layers": 6,
            "dropout": 0.1,
            "context": "previous",
        },
        # imagetransformer_cifar10_base of the authors' code.
        "train_image_transformer": {
            **_paper_grid,
            "epochs": 200,
            "batch_size": 32,
            "num_layers": 12,
            "dropout": 0.3,
        },
        "evaluate_images": {"unigram_images": 48_000, "batch_size": 100},
        "sample_images": {"columns": 10, "rows": 4},
    },
    images={"dataset": "cifar10", "validation": 2000},
    starts=False,
    teacher=None,
    minutes={"prepare_translation": 10, "train_transformer": 44 * 60}
    | {"train_latent_nmt": 30 * 60},
    source="docs/results/data_at_scale.md: preparation as measured, training on 8 P100 "
    "as counted there; nothing is known of the others",
)

SCALES = {"smoke": SMOKE, "small": SMALL, "paper": PAPER}
