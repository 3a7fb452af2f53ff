"""A small translator, and its preset in a folder."""

import keras
import pytest

from keras_vqem import layers, models
from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer

SMALL = {
    "hidden_dim": 8,
    "num_heads": 2,
    "intermediate_dim": 16,
    "num_encoder_layers": 1,
}


@pytest.fixture(scope="module")
def translator():
    keras.utils.set_random_seed(0)
    corpus = ParallelCorpus.from_numbers(200)
    lines = corpus.sources + corpus.targets
    model = models.LatentNMT(
        SentencePieceTokenizer.train(lines, vocabulary_size=350),
        layers.VQEMBottleneck(8, num_samples=2),
        num_decoder_layers=1,
        num_predictor_layers=1,
        **SMALL,
    )
    model.build()
    return model


@pytest.fixture
def folder(translator, tmp_path):
    translator.save_to_preset(tmp_path / "small", card="# A small one\n")
    return tmp_path / "small"
