import gc
import weakref

import numpy as np
import pytest

from keras_vqem.evaluation import codes
from keras_vqem.layers import VQEMBottleneck
from keras_vqem.models import LatentNMT
from keras_vqem.text import ParallelCorpus, SentencePieceTokenizer

NUM_CODES = 8


@pytest.fixture(scope="module")
def corpus():
    return ParallelCorpus.from_numbers(300)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return SentencePieceTokenizer.train(corpus.sources + corpus.targets, 400)


def make_model(tokenizer):
    bottleneck = VQEMBottleneck(num_codes=NUM_CODES, initializer="random_normal")
    sizes = {
        "hidden_dim": 8,
        "num_encoder_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 2,
    }
    model = LatentNMT(
        tokenizer, bottleneck, num_predictor_layers=1, intermediate_dim=8, **sizes
    )
    model.build()
    # Large vectors, so that an untrained decoder hears the codes.
    codebook = model.bottleneck.codebook
    codebook.assign(10 * np.random.default_rng(0).normal(size=codebook.shape))
    return model


@pytest.fixture(scope="module")
def model(tokenizer):
    return make_model(tokenizer)


def pair(model, source, target):
    """Ids of one pair, without padding."""
    return [model.tokenizer.encode([text]).to_tensor() for text in (source, target)]


def test_codes_are_those_of_each_sentence_alone(model, corpus):
    sources, targets = corpus.sources[:7], corpus.targets[:7]
    found = codes.encode(model, sources, targets, batch_size=3)
    for row, source, target in zip(found, sources, targets, strict=True):
        alone = np.array(model.encode_ids(*pair(model, source, target)))[0]
        np.testing.assert_array_equal(row, alone)
        assert len(row) == -(-len(model.tokenizer.encode_lines([target])[0]) // 8)


def test_reconstructions_are_written_from_the_codes_and_in_order(model, corpus):
    sources, targets = corpus.sources[:7], corpus.targets[:7]
    own = codes.reconstruct(model, sources, targets, batch_size=3)
    random = codes.reconstruct(model, sources, targets, "random", seed=5, batch_size=3)
    assert own != random
    for place, (source, target) in enumerate(zip(sources, targets, strict=True)):
        source_ids, target_ids = pair(model, source, target)
        row = np.array(model.encode_ids(source_ids, target_ids))
        rng = np.random.default_rng([5, place])
        drawn = rng.integers(NUM_CODES, size=row.shape[1])[None]
        for texts, used in ((own, row), (random, drawn)):
            ids = model.decode_ids(source_ids, used.astype("int32"))
            text = model.tokenizer.decode(ids).numpy()[0].decode("utf-8", "replace")
            assert texts[place] == text


def test_usage_against_a_count_by_hand():
    found = codes.usage([np.array([0, 3, 0, 3]), np.array([0, 1])], 4, groups=2)
    # First group 0, 0, 0; second group 3, 3, 1.
    entropy = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    assert found.perplexity == pytest.approx((1 + np.exp(entropy)) / 2, abs=1e-5)
    assert found.used == (1 / 4 + 2 / 4) / 2
    assert found.codes == 6 and found.per_sentence == 3


def test_graphs_do_not_keep_a_model_alive(tokenizer, corpus):
    model = make_model(tokenizer)
    codes.reconstruct(model, corpus.sources[:1], corpus.targets[:1])
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_wrong_arguments_are_explained(model):
    with pytest.raises(ValueError, match="own"):
        codes.reconstruct(model, ["a"], ["b"], codes="other")
    with pytest.raises(ValueError, match="2 sources but 1"):
        codes.encode(model, ["a", "b"], ["c"])
    with pytest.raises(ValueError, match="no codes"):
        codes.encode(object(), ["a"], ["b"])
    assert codes.encode(model, [], []) == []
