"""Frequencies are close to the softmax, whatever the last bits of logits are."""

import math

import hypothesis
import numpy as np
from hypothesis import strategies as st

from keras_vqem.compression import frequencies as module
from keras_vqem.compression.frequencies import (
    MARGIN,
    SHIFTS,
    cumulative,
    frequencies,
    unsafe_shifts,
)
from keras_vqem.compression.rans import BITS


@hypothesis.settings(deadline=None)
@hypothesis.given(
    size=st.integers(1, 2**16),
    spread=st.floats(0, 1e6),
    shift=st.integers(0, SHIFTS - 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_symbol_has_a_frequency_and_all_add_up(size, spread, shift, seed):
    logits = spread * np.random.default_rng(seed).normal(size=(2, size))
    found = frequencies(logits, shift)
    assert found.min() >= 1
    assert (found.sum(-1) == 2**BITS).all()
    sums = cumulative(found)
    assert (sums[:, 0] == 0).all() and (sums[:, -1] == 2**BITS).all()
    np.testing.assert_array_equal(np.diff(sums), found)


def test_levels_cost_less_than_a_thousandth_of_a_bit(rng):
    logits = 2 * rng.normal(size=(500, 256))
    p = np.exp(logits)
    p /= p.sum(-1, keepdims=True)
    found = frequencies(logits, shift=77) / 2**BITS
    loss = (p * np.log2(p / found)).sum(-1)
    assert 0 < loss.mean() < 1e-3 and loss.max() < 3e-3


def test_a_safe_shift_survives_differences_below_the_margin(rng):
    logits = 5 * rng.normal(size=(300, 64))
    # These are on the edge of a level for shifts 0, 64 and 255.
    logits[:3, 0] = [1.25, -3 / 32, 2 + 1 / 2048]
    noise = rng.choice([-0.9, 0.9], size=logits.shape) * MARGIN
    unsafe = unsafe_shifts(logits)
    assert unsafe[[0, 192, 255]].sum() >= 2 and not unsafe.all()
    for shift in range(SHIFTS):
        same = frequencies(logits, shift) == frequencies(logits + noise, shift)
        assert same.all() or unsafe[shift]
    for row, shift in enumerate([0, 192, 255]):
        if unsafe[shift]:
            pair = logits[row, 0] + MARGIN * np.array([-0.5, 0.5])
            levels = np.floor(pair * module.LEVELS_PER_NAT + shift / SHIFTS)
            assert levels[0] < levels[1]


def test_the_table_is_the_exponential_to_the_last_digit():
    expected = [2**24 * math.exp(-i / 8) for i in range(len(module._WEIGHTS))]
    np.testing.assert_array_equal(module._WEIGHTS, np.rint(expected))
    # Part of the format: files that were written stay readable.
    assert module._WEIGHTS[[0, 1, 8, 100, -2, -1]].tolist() == [
        16777216,
        14805841,
        6171993,
        63,
        1,
        0,
    ]
