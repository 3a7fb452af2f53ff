"""Every public model, by one table. A new one is a new row."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from keras_vqem import layers, models
from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer

SIZES = {"hidden_dim": 8, "num_heads": 2, "intermediate_dim": 12}
TRANSLATOR = {
    **SIZES,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "generation_config": {"num_beams": 2},
    "dropout": 0.2,
    "low_score": -2.0,
}
GRID = {**SIZES, "num_layers": 1, "block_length": 5, "dropout": 0.2, "vector_dim": 4}
TEXTS = ["twenty-one", "", "ten past two"]


class Case(NamedTuple):
    """A model of the table.

    `make` gives the model, not built. Its arguments, unless `make` is told others, are
    not the defaults, so that one that is lost on the way is missed. `arguments` gives
    the call arguments by name, from a random generator.
    """

    make: Callable
    arguments: Callable
    # What the default signature of an export is called with, and what it returns.
    serving: Callable | None = None
    # Outputs that are float32 under any policy.
    float32: tuple = ()
    # What `make` is told so that nothing is drawn in training; None if something is.
    without_noise: dict | None = None


def tokenizer():
    corpus = ParallelCorpus.from_numbers(200)
    lines = corpus.sources + corpus.targets
    return SentencePieceTokenizer.train(lines, vocabulary_size=350)


def sentences(rng, rows=8, length=7):
    """Ids [rows, length] of sentences, the first of which is the longest."""
    lengths = np.array([length, *rng.integers(2, length, rows - 1)])[:, None]
    places = np.arange(length)
    ids = rng.integers(3, 350, size=(rows, length))
    ids = np.where(places == lengths - 1, 1, ids)
    return np.where(places < lengths, ids, 0).astype("int32")


def pairs(rng):
    return {"inputs": {"source_ids": sentences(rng), "target_ids": sentences(rng)}}


def pairs_with_fertilities(rng):
    inputs = pairs(rng)["inputs"]
    lengths = [np.count_nonzero(ids, axis=1) for ids in inputs.values()]
    counts = np.zeros_like(inputs["source_ids"])
    for row, words, tokens in zip(counts, *lengths, strict=True):
        np.add.at(row, rng.integers(words, size=tokens), 1)
    return {"inputs": {**inputs, "fertilities": counts}}


def integers(name, most, *shape):
    def arguments(rng):
        dtype = "uint8" if name == "images" else "int32"
        return {"inputs": {name: rng.integers(most, size=(8, *shape)).astype(dtype)}}

    return arguments


def symbols_and_labels(rng):
    inputs = integers("symbols", 6, 2, 2, 3)(rng)["inputs"]
    return {"inputs": {**inputs, "labels": rng.integers(4, size=8).astype("int32")}}


def images_and_labels(rng):
    inputs = integers("images", 256, 8, 12, 3)(rng)["inputs"]
    return {"inputs": {**inputs, "labels": rng.integers(3, size=8).astype("int32")}}


def codes_and_memory(rng):
    return {
        "codes": rng.integers(6, size=(8, 4)).astype("int32"),
        "memory": rng.normal(size=(8, 5, 8)).astype("float32"),
        "memory_mask": np.arange(5) < rng.integers(1, 6, size=(8, 1)),
    }


def translating(model, arguments):
    texts = np.array(TEXTS).astype(bytes)
    return {"texts": texts}, {"translations": model.translate(TEXTS)}


def reconstructing(model, arguments):
    return arguments["inputs"], {"images": model.reconstruct(**arguments["inputs"])}


def predicting(model, arguments):
    return arguments["inputs"], {"logits": model(**arguments)}


def classifying(model, arguments):
    images = arguments["inputs"]["images"]
    features, logits = model.features(images), model(**arguments)
    return {"images": images}, {"features": features, "logits": logits}


def bottleneck():
    # Not from data: which vectors are drawn differs under XLA.
    initializer = keras.initializers.RandomNormal(stddev=1.0, seed=0)
    return layers.VQEMBottleneck(6, groups=2, decay=0.9, initializer=initializer)


def transformer(**settings):
    return models.Transformer(tokenizer(), **{**TRANSLATOR, **settings})


def ctc_translator(**settings):
    sizes = {"upsample": 3, "glancing": 0.3}
    return models.CTCTranslator(tokenizer(), **{**TRANSLATOR, **sizes, **settings})


def fertility_nat(**settings):
    # No samples: exported graphs are asserted not to draw.
    config = {"fertility": "mean", "max_length": 9}
    sizes = {**TRANSLATOR, "max_fertility": 2, "generation_config": config}
    return models.FertilityNAT(tokenizer(), **{**sizes, **settings})


def refinement_nat(refinement, **settings):
    sizes = {"max_length_difference": 5, **TRANSLATOR}
    return models.RefinementNAT(tokenizer(), refinement, **{**sizes, **settings})


def latent_nmt(**settings):
    sizes = {
        "num_compress_steps": 1,
        "attend_source": True,
        "num_predictor_layers": 1,
        "bypass_steps": 3,
        "predicted_share": 0.5,
        "prior_weight": 0.5,
        "styles": {"formal": 3},
    }
    return models.LatentNMT(
        tokenizer(),
        bottleneck(),
        **{**TRANSLATOR, **sizes, **settings},
    )


def as_the_paper_writes(**settings):
    output = models.CausalOutput(gold_steps=5)
    return latent_nmt(**{"word_output": output, "causal_encoder": True, **settings})


def image_vqvae(likelihood=None, **settings):
    return models.ImageVQVAE(
        layers.PatchCompressor(8, channels=4, num_blocks=1),
        bottleneck(),
        layers.PatchDecompressor(channels=4, num_blocks=1, pixel_channels=5),
        likelihood or layers.LogisticMixture(num_mixtures=2),
        image_size=(8, 12),
        prior=models.GridTransformer((2, 3, 2), 6, **GRID),
        **settings,
    )


def grouped_vqvae(**settings):
    pixels = layers.GroupedPixels(
        layers.LogisticMixture(2), features=3, channels=4, num_blocks=1, seed=0
    )
    return image_vqvae(pixels, **settings)


def image_vae(**settings):
    return models.ImageVAE(
        layers.ImageCompressor(6, channels=4, num_blocks=1, kernel_size=3),
        layers.GaussianBottleneck(3, kl_weight=0.01, seed=0),
        layers.ImageDecompressor(4, num_blocks=1, kernel_size=3),
        layers.CategoricalPixels(),
        image_size=(8, 12),
        **settings,
    )


def latent_predictor(**settings):
    return models.LatentPredictor(
        **{"num_codes": 6, **SIZES, "num_layers": 1, "dropout": 0.2, **settings}
    )


# name of the class, and what is special -> the case.
CASES = {
    "CTCTranslator": Case(
        ctc_translator,
        pairs,
        translating,
        without_noise={"dropout": 0.0, "glancing": 0.0},
    ),
    "FertilityNAT": Case(
        fertility_nat,
        pairs_with_fertilities,
        translating,
        without_noise={"dropout": 0.0},
    ),
    "GridTransformer": Case(
        lambda **k: models.GridTransformer((2, 2, 3), 6, **{**GRID, **k}),
        integers("symbols", 6, 2, 2, 3),
        predicting,
        without_noise={"dropout": 0.0},
    ),
    "GridTransformer with classes": Case(
        lambda **k: models.GridTransformer(
            (2, 2, 3), 6, num_classes=4, **{**GRID, **k}
        ),
        symbols_and_labels,
        predicting,
        without_noise={"dropout": 0.0},
    ),
    "ImageClassifier": Case(
        lambda **k: models.ImageClassifier(
            3, channels=4, num_stages=2, num_blocks=2, image_size=(8, 12), **k
        ),
        images_and_labels,
        classifying,
        without_noise={},
    ),
    "ImageTransformer": Case(
        lambda **k: models.ImageTransformer(2, 3, **{**GRID, **k}),
        integers("images", 256, 2, 3, 3),
        predicting,
        without_noise={"dropout": 0.0},
    ),
    "ImageVAE": Case(
        image_vae,
        integers("images", 256, 8, 12, 3),
        reconstructing,
        float32=("outputs", "base", "mean", "log_variance", "kl"),
    ),
    "ImageVQVAE": Case(
        image_vqvae,
        integers("images", 256, 8, 12, 3),
        reconstructing,
        float32=("outputs", "base"),
        without_noise={},
    ),
    # Which groups are learned from is drawn.
    "ImageVQVAE with grouped pixels": Case(
        grouped_vqvae,
        integers("images", 256, 8, 12, 3),
        reconstructing,
        float32=("outputs", "base"),
    ),
    "LatentNMT": Case(
        latent_nmt,
        pairs,
        translating,
        without_noise={"dropout": 0.0, "bypass_steps": 0, "predicted_share": 0.0},
    ),
    "LatentNMT by CTC": Case(
        lambda **k: latent_nmt(word_output=models.CTCOutput(upsample=3), **k),
        pairs,
        translating,
        without_noise={"dropout": 0.0, "bypass_steps": 0, "predicted_share": 0.0},
    ),
    "LatentNMT as the paper writes": Case(
        as_the_paper_writes,
        pairs,
        translating,
        without_noise={
            **{"dropout": 0.0, "bypass_steps": 0, "predicted_share": 0.0},
            "word_output": models.CausalOutput(),
        },
    ),
    # A part of LatentNMT, which trains and exports it.
    "LatentPredictor": Case(latent_predictor, codes_and_memory),
    # Without noise the second pass reads what the first wrote.
    "RefinementNAT": Case(
        lambda share=0.7, **k: refinement_nat(models.Denoising(0.2, share), **k),
        pairs,
        translating,
        without_noise={"dropout": 0.0, "share": 0.0},
    ),
    # Which tokens are masked is always drawn.
    "RefinementNAT by masks": Case(
        lambda **k: refinement_nat(models.MaskPredict(), **k),
        pairs,
        translating,
        float32=("token_weights",),
    ),
    "Transformer": Case(
        transformer, pairs, translating, without_noise={"dropout": 0.0}
    ),
}
TASKS = [name for name in CASES if name != "LatentPredictor"]
EXACT = [name for name, case in CASES.items() if case.without_noise is not None]
# In the quick tests. The rest are variants.
VARIANTS = (
    "GridTransformer with classes",
    "ImageVQVAE with grouped pixels",
    "LatentNMT as the paper writes",
)
KINDS = [name for name in CASES if name not in VARIANTS]
