"""The least time of a translation: counts by hand, and the rates of a machine."""

import itertools

import keras
import numpy as np
import pytest

from keras_vqem import layers, models
from keras_vqem.evaluation import decoding_limit
from keras_vqem.evaluation.decoding_limit import Part, Rates, least_seconds, parts_of
from tests.models.small import LetterTokenizer

D, F, V = 8, 12, 29  # hidden_dim, intermediate_dim, vocabulary
SIZES = {
    "hidden_dim": D,
    "intermediate_dim": F,
    "num_heads": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
}
# Queries, keys, values and output, then the two dense layers: kernels per block.
OWN, CROSS, KEYS_VALUES, DENSE = 4 * D * D, 2 * D * D, 2 * D * D, 2 * D * F
S, T, B = 5, 9, 2


def by_name(parts):
    return {part.name: part for part in parts}


def test_a_transformer_reads_its_decoder_at_every_step():
    model = models.Transformer(LetterTokenizer(), **SIZES)
    model.build()
    parts = parts_of(model, S, T, batch_size=B, num_beams=4)
    assert len(parts) == 2 + T
    found = by_name(parts)
    encoder = 2 * (OWN + DENSE)
    # Scores and weighted values: two products per pair of positions, of size D.
    attention = 2 * B * 2 * S * S * D
    expected = Part("encoder", B * S, encoder, B * S * encoder + attention)
    assert found["encoder"] == expected
    kv = 3 * KEYS_VALUES
    assert found["keys and values"] == Part("keys and values", B * S, kv, B * S * kv)
    step = 3 * (OWN + CROSS + DENSE) + V * D
    for number in (1, T):
        rows = 4 * B
        work = rows * (step + 3 * 2 * (number + S) * D)
        expected = Part(f"decoder step {number}", rows, step, work)
        assert found[expected.name] == expected


def test_all_words_at_once():
    model = models.CTCTranslator(LetterTokenizer(), upsample=3, **SIZES)
    model.build()
    found = by_name(parts_of(model, S, T, batch_size=B))
    assert found["upsampler"] == Part("upsampler", B * S, 3 * D * D, B * S * 3 * D * D)
    positions, weights = 3 * S, 3 * (OWN + CROSS + DENSE)
    attention = B * 3 * 2 * positions * (positions + S) * D
    rows = B * positions
    expected = Part("decoder", rows, weights, rows * weights + attention)
    assert found["decoder"] == expected
    assert found["logits"] == Part("logits", rows, V * D, rows * V * D)
    assert len(found) == 5


@pytest.mark.parametrize("ctc", [False, True])
def test_codes_are_predicted_one_by_one(ctc):
    model = models.LatentNMT(
        LetterTokenizer(),
        layers.VQEMBottleneck(16),
        num_compress_steps=2,
        num_predictor_layers=1,
        word_output=models.CTCOutput(upsample=2) if ctc else None,
        **SIZES,
    )
    model.build()
    parts = parts_of(model, S, T)
    found = by_name(parts)
    codes = 3  # nine tokens, four per code
    steps = [part for part in parts if part.name.startswith("predictor step")]
    weights = OWN + CROSS + DENSE + 17 * D  # with the end of the codes
    assert len(steps) == codes + 1
    assert all(part.rows == 1 and part.weights == weights for part in steps)
    assert steps[1].multiply_adds == weights + 2 * (2 + S) * D
    if ctc:
        assert found["codes"] == Part("codes", codes, D * D, codes * D * D)
        assert found["upsampler"].rows == S and found["decoder"].rows == 2 * S
        assert found["keys and values"].rows == S + codes
        return
    # The convolution and the dense layer that doubles, at 3 and at 6 positions.
    kernel = sum(
        int(np.prod(weight.shape))
        for layer in (model.decompressor.convolutions[0], model.decompressor.doubles[0])
        for weight in layer.weights
        if len(weight.shape) > 1
    )
    for number, rows in ((1, 3), (2, 6)):
        name = f"decompressor {number}"
        assert found[name] == Part(name, rows, kernel, rows * kernel)
    assert found["decoder"].rows == found["logits"].rows == 12
    assert found["keys and values"].rows == S


def test_every_matrix_that_translates_is_counted_once():
    model = models.LatentNMT(
        LetterTokenizer(), layers.VQEMBottleneck(16), num_compress_steps=2, **SIZES
    )
    model.build()
    parts = parts_of(model, S, 1)  # one code
    counted = {part.name: part.weights for part in parts}
    del counted["predictor step 2"]
    used = (model.embedding, model.encoder, model.decoder, model.predictor)
    matrices = [
        weight
        for layer in (*used, model.decompressor)
        for weight in layer.weights
        if len(weight.shape) > 1
    ]
    assert sum(counted.values()) == sum(int(np.prod(x.shape)) for x in matrices)


def test_the_slower_of_arithmetic_and_reading_counts():
    rates = Rates(flops={1: 100.0, 4: 400.0}, bytes=40.0)
    reading = Part("reading", rows=1, weights=100, multiply_adds=100, times=2)
    arithmetic = Part("arithmetic", rows=4, weights=10, multiply_adds=1000)
    assert least_seconds([reading], rates) == 2 * 4 * 100 / 40
    assert least_seconds([arithmetic], rates) == 2 * 1000 / 400
    assert least_seconds([reading, arithmetic], rates) == 20 + 5


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="work of a Sequential is not known. Pass a T"):
        parts_of(keras.Sequential(), 3, 3)


def test_rates_divide_the_work_by_the_fastest_call():
    clock = itertools.count(0, 0.25).__next__  # so each call takes 0.25
    rates = decoding_limit.rates(
        [1, 100], inner=4, outer=3, copied=800, seconds=1.0, clock=clock
    )
    # At least 64 rows are multiplied per call.
    assert rates.flops == {1: 2 * 64 * 4 * 3 / 0.25, 100: 2 * 100 * 4 * 3 / 0.25}
    assert rates.bytes == 2 * 800 / 0.25
