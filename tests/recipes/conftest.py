"""A prepared folder of data and two untrained translators, small, for the recipes."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest

import keras_vqem
from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer, TranslationData

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(scope="session")
def recipe():
    """Function from a name to the module of the recipe."""

    def load(name):
        spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    keras.utils.set_random_seed(1)
    splits = {
        name: ParallelCorpus.from_numbers(count, split=split)
        for name, count, split in [
            ("train", 40, "train"),
            ("val", 8, "validation"),
            ("test", 8, "test"),
        ]
    }
    lines = ParallelCorpus.from_numbers(300)
    tokenizer = SentencePieceTokenizer.train(lines.sources + lines.targets, 400)
    data = TranslationData.create(folder / "data", "en", "de", tokenizer, splits)
    sizes = {
        "hidden_dim": 16,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 2,
    }
    sizes["intermediate_dim"] = 16
    teacher = keras_vqem.models.Transformer(tokenizer, **sizes)
    latent = keras_vqem.models.LatentNMT(
        tokenizer,
        keras_vqem.layers.VQEMBottleneck(num_codes=8, num_samples=2),
        num_predictor_layers=1,
        **sizes,
    )
    (folder / "latent").mkdir()
    for model, path in [(teacher, "teacher.keras"), (latent, "latent/model.keras")]:
        model.build()
        model.save(folder / path)
    return SimpleNamespace(
        data=data, teacher=folder / "teacher.keras", latent=folder / "latent"
    )
