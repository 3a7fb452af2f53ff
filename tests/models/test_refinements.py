"""Refinements: what the decoder reads in training, and what it is asked for."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.models import Denoising, MaskPredict, refinements
from tests.models import small
from tests.models.test_ctc_translator import strip


def test_the_source_is_stretched_evenly(rng):
    source_ids = small.sentences(rng, 9, 7)
    lengths = np.array([1, 2, 3, 5, 7, 12, 4, 9, 6])
    mask = np.arange(14) < lengths[:, None]
    found = refinements.stretched(source_ids, mask).numpy()
    for row, length in enumerate(lengths):
        words = strip(source_ids[row])
        for t in range(14):
            place = int(t * (len(words) - 1) / max(length - 1, 1) + 0.5)
            assert found[row, t] == (words[place] if t < length else 0)
        if length > 1:
            assert (found[row, 0], found[row, length - 1]) == (words[0], 1)


def corrupted_in_turn(words, kinds, others):
    """One word after the other, as the paper says it."""
    words = list(words)
    for t in range(len(words)):
        if kinds[t] == refinements.REPLACE:
            words[t] = others[t]
        elif t + 1 < len(words) and kinds[t] == refinements.REPEAT:
            words[t + 1] = words[t]
        elif t + 1 < len(words) and kinds[t] == refinements.SWAP:
            words[t], words[t + 1] = words[t + 1], words[t]
    return words


def test_mistakes_are_made_from_left_to_right(rng):
    ids = small.sentences(rng, 200, 9)
    kinds = rng.integers(0, 4, ids.shape).astype("int32")
    others = rng.integers(3, 29, ids.shape).astype("int32")
    found = refinements.corrupted(ids, kinds, others).numpy()
    for row, sentence in enumerate(ids):
        *words, end = strip(sentence)
        expected = [*corrupted_in_turn(words, kinds[row], others[row]), end]
        assert strip(found[row]) == expected
        assert not found[row, len(expected) :].any()
    np.testing.assert_array_equal(refinements.corrupted(ids, 0 * kinds, others), ids)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_second_pass_reads_own_words_or_mistakes(rng, share):
    refinement = Denoising(corruption=0.4, denoising_share=share)
    model = small.sharpen(small.refinement_nat(refinement), rng, 1.5)
    inputs = {
        "source_ids": np.repeat(small.sentences(rng, 1, 6), 600, axis=0),
        "target_ids": np.repeat(small.sentences(rng, 1, 9), 600, axis=0),
    }
    read = []

    def decode(x):
        distance = tf.norm(x[:, :, None] - model.embedding(np.arange(29)), axis=-1)
        read.append(np.argmin(distance, axis=-1))
        return tf.one_hot((read[-1] + 5) % 29, 29)  # What it writes.

    refinement.teach(model, inputs, decode, training=True)
    target, (first, second) = inputs["target_ids"], read
    np.testing.assert_array_equal(
        first, refinements.stretched(inputs["source_ids"], target > 0)
    )
    own, _ = refinements.most_probable(tf.one_hot((first + 5) % 29, 29), target > 0)
    own = own.numpy()
    is_own = (second == own).all(axis=1)
    np.testing.assert_allclose(is_own.mean(), 1 - share, atol=0.07)
    # Of those that changed, most of the words are still there.
    noisy = second[~is_own][:, :-1]
    assert (second[:, -1] == 1).all() and (second >= 1).all() and (noisy > 2).all()
    if share:
        same = (noisy == target[0, :-1]).mean()
        assert 0.4 < same < 0.75
    # Without training nothing is drawn.
    refinement.teach(model, inputs, decode, training=False)
    np.testing.assert_array_equal(read[-1], own)


def test_training_masks_a_uniform_number_of_tokens(rng):
    model = small.sharpen(small.refinement_nat(MaskPredict()), rng, 1.5)
    target_ids = np.repeat(small.sentences(rng, 1, 8), 4000, axis=0)
    target_ids[2000:, 4:] = 0
    target_ids[2000:, 3] = 1
    inputs, read = {"target_ids": target_ids}, []
    hidden = np.array(model.mask_embedding(np.zeros(1, "int32"))[0])

    def decode(x):
        read.append(np.array(x))
        return tf.zeros((4000, 8, 29))

    weights = model.refinement.teach(model, inputs, decode, True)["token_weights"]
    weights, is_hidden = np.array(weights), (read[0] == hidden).all(-1)
    np.testing.assert_array_equal(
        read[0], np.where(is_hidden[..., None], hidden, model.embedding(target_ids))
    )
    for rows, length in ((slice(2000), 8), (slice(2000, 4000), 4)):
        masked = is_hidden[rows]
        assert not masked[:, length:].any()
        counts = np.bincount(masked.sum(1), minlength=length + 1)[1:] / 2000
        np.testing.assert_allclose(counts, 1 / length, atol=0.03)
        places = masked[:, :length].mean(0)
        np.testing.assert_allclose(places, (length + 1) / 2 / length, atol=0.04)
        expected = np.where(masked, 2 * length / (length + 1), 0.0)
        np.testing.assert_allclose(weights[rows], expected, rtol=1e-6)
        # As many as there are tokens, in the mean.
        np.testing.assert_allclose(weights[rows].sum(1).mean(), length, rtol=0.05)
    weights = model.refinement.teach(model, inputs, decode, False)["token_weights"]
    np.testing.assert_array_equal(weights, target_ids > 0)
    assert ((read[-1] == hidden).all(-1) == (target_ids > 0)).all()


def test_lowest_values_are_found(rng):
    values = rng.normal(size=(50, 7)).round(1)  # Some are equal.
    mask = np.arange(7) < rng.integers(0, 8, (50, 1))
    numbers = rng.integers(0, 8, 50).astype("int32")
    found = refinements.lowest(values.astype("float32"), mask, numbers).numpy()
    for row in range(50):
        there = np.flatnonzero(mask[row])
        order = there[np.argsort(values[row, there], kind="stable")]
        assert set(np.flatnonzero(found[row])) == set(order[: numbers[row]])
