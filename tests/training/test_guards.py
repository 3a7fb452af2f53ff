"""What CodebookWatch says, and when it is silent."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from keras_vqem import layers
from keras_vqem.training import CodebookWatch


def watching(**attributes):
    inputs = keras.Input((4,))
    bottleneck = layers.VQEMBottleneck(
        512, dead_code_threshold=0.05, initializer="random_normal"
    )
    model = keras.Model(inputs, bottleneck(inputs)["quantized"])
    for name, value in attributes.items():
        setattr(model, name, value)
    said = []
    watch = CodebookWatch(said.append)
    watch.set_model(model)
    watch.on_train_begin()
    return watch, said


def test_collapse_is_told_once_with_remedies():
    watch, said = watching()
    for epoch, perplexity in enumerate([100.0, 9.0, 5.0, 11.0, 7.0]):
        watch.on_epoch_end(epoch, {"perplexity": perplexity, "usage": 0.5})
    assert len(said) == 2
    assert "a perplexity of 9.0 with 512 codes" in said[0]
    assert "raise dead_code_threshold (now 0.05)" in said[0]
    assert "perplexity of 7.0" in said[1]


def test_a_bypassed_bottleneck_is_left_alone():
    steps = SimpleNamespace(value=5)
    watch, said = watching(bypass_steps=10, steps=steps)
    watch.on_epoch_end(0, {"perplexity": 1.0})
    assert not said
    steps.value = 10
    watch.on_epoch_end(1, {"perplexity": 1.0})
    assert "raise bypass_steps (now 10)" in said[0]


@pytest.mark.parametrize(
    "own, random, told",
    # The first three are of docs/results/multi30k.md.
    [(20.2, 17.8, True), (10.9, 10.2, True), (14.7, 7.4, False)]
    + [(30.0, 20.0, False), (2.0, 2.0, False), (9.0, 12.0, True)],
)
def test_codes_without_worth_are_told(own, random, told):
    watch, said = watching()
    logs = {"val_teacher_forced_bleu": own, "val_random_codes_bleu": random}
    watch.on_epoch_end(0, logs)
    assert bool(said) == told
    if told:
        assert f"BLEU {own} from the true codes, {random} from random" in said[0]
        assert "bypass_steps" in said[0]


@pytest.mark.parametrize("rows, lines", [(40, 2), (100, 1), (300, 0)])
def test_too_few_vectors_for_the_codes_are_told_once(rows, lines):
    inputs = keras.Input((2, 4))
    vectors = keras.layers.Dense(4)(inputs)
    model = keras.Model(inputs, layers.VQEMBottleneck(128)(vectors)["quantized"])
    model.compile("adam", "mse")
    said, x = [], np.random.default_rng(0).normal(size=(rows, 2, 4))
    size = 16 if rows < 300 else 64  # images with two vectors each
    watch = CodebookWatch(said.append)
    model.fit(x, x, batch_size=size, epochs=2, verbose=0, callbacks=[watch])
    assert len(said) == lines
    if lines:
        assert "a batch has 32 vectors for 128 codes" in said[0]
    if lines == 2:
        assert "48 of 128 codes without a vector" in said[1]
