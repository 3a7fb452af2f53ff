"""Small translators and data for tests."""

import keras
import numpy as np
import pytest

from keras_vqem import layers, models
from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer

SIZES = {
    "hidden_dim": 16,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "intermediate_dim": 32,
    "dropout": 0.0,
}
TEXTS = ["twenty-one", "", "ten past two", "the third of May, nineteen ten"]
# Names of translators to export; but for one they take long.
TRANSLATORS = [
    "CTCTranslator",
    pytest.param("LatentNMT", marks=pytest.mark.slow),
    pytest.param("Transformer", marks=pytest.mark.slow),
    pytest.param("LatentNMT with CTC", marks=pytest.mark.slow),
    pytest.param("FertilityNAT", marks=pytest.mark.slow),
    pytest.param("RefinementNAT", marks=pytest.mark.slow),
]


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class LetterTokenizer:
    """Lower-case letters as ids from 3; enough of a tokenizer for the models."""

    vocabulary_size = 29

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls()

    def encode(self, texts):
        import tensorflow as tf

        rows = [[*(ord(c) - ord("a") + 3 for c in text), 1] for text in texts]
        return tf.ragged.constant(rows, dtype="int32", ragged_rank=1)

    def decode(self, ids):
        import tensorflow as tf

        texts = []
        for row in np.asarray(ids):
            text = ""
            for i in row:
                if i == 1:
                    break
                text += chr(i - 3 + ord("a")) if i >= 3 else ""
            texts.append(text)
        return tf.constant(texts)


def transformer(**options):
    keras.utils.set_random_seed(1)
    model = models.Transformer(LetterTokenizer(), **{**SIZES, **options})
    model.build()
    return model


def ctc_translator(**options):
    keras.utils.set_random_seed(1)
    model = models.CTCTranslator(LetterTokenizer(), **{**SIZES, **options})
    model.build()
    return model


def fertility_nat(**options):
    keras.utils.set_random_seed(1)
    model = models.FertilityNAT(LetterTokenizer(), **{**SIZES, **options})
    model.build()
    return model


def refinement_nat(refinement=None, **options):
    keras.utils.set_random_seed(1)
    model = models.RefinementNAT(LetterTokenizer(), refinement, **{**SIZES, **options})
    model.build()
    return model


def latent_nmt(bottleneck=None, **options):
    keras.utils.set_random_seed(1)
    if bottleneck is None:
        bottleneck = layers.VQEMBottleneck(16, decay=0.9, seed=1)
    sizes = {
        **SIZES,
        "num_compress_steps": 2,
        "num_predictor_layers": 1,
        "bypass_steps": 0,
    }
    model = models.LatentNMT(LetterTokenizer(), bottleneck, **{**sizes, **options})
    model.build()
    return model


def exportable(name):
    """A small translator whose tokenizer is in the graph: by the name of its class.

    "LatentNMT with CTC" is a `LatentNMT` with `CTCOutput`.
    """
    keras.utils.set_random_seed(0)
    corpus = ParallelCorpus.from_numbers(300)
    tokenizer = SentencePieceTokenizer.train(
        corpus.sources + corpus.targets, vocabulary_size=380
    )
    sizes = {**SIZES, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.1}
    if name in ("Transformer", "CTCTranslator", "FertilityNAT", "RefinementNAT"):
        model = getattr(models, name)(tokenizer, **sizes)
    else:
        initializer = keras.initializers.RandomNormal(seed=0)
        bottleneck = layers.VQEMBottleneck(8, initializer=initializer)
        sizes |= {"num_compress_steps": 2, "num_predictor_layers": 1}
        if name == "LatentNMT with CTC":
            sizes["word_output"] = models.CTCOutput()
        model = models.LatentNMT(tokenizer, bottleneck, **sizes)
    model.build()
    rng = np.random.default_rng(0)
    for weight in model.trainable_weights:  # so that words differ
        weight.assign(weight + 0.1 * rng.normal(size=weight.shape))
    return model


def sharpen(model, rng, scale=1.0):
    """Random weights of a size that makes outputs differ; a fresh model is timid."""
    for weight in model.trainable_weights:
        if len(weight.shape) > 1:
            weight.assign(
                rng.normal(size=weight.shape) * scale / weight.shape[0] ** 0.5
            )
    return model


def sentences(rng, rows, longest, low=3):
    """Padded ids [rows, longest], each row ended by 1; the first is the longest."""
    ids = np.zeros((rows, longest), "int32")
    for i in range(rows):
        length = longest if i == 0 else int(rng.integers(2, longest + 1))
        ids[i, : length - 1] = rng.integers(low, 29, length - 1)
        ids[i, length - 1] = 1
    return ids


def batch(rng, rows=6, source=7, target=8):
    return {
        "source_ids": sentences(rng, rows, source),
        "target_ids": sentences(rng, rows, target),
    }


def fertilities(rng, source_ids, target_ids):
    """Random fertilities that sum to the lengths of the targets."""
    found = np.zeros_like(source_ids)
    for row, (source, target) in enumerate(zip(source_ids, target_ids, strict=True)):
        words, tokens = np.count_nonzero(source), np.count_nonzero(target)
        places = rng.integers(words, size=tokens)
        found[row] = np.bincount(places, minlength=len(source))
    return found
