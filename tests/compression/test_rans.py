"""Symbols come back exactly, at the size of their entropy."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from keras_vqem.compression import rans
from keras_vqem.compression.frequencies import cumulative, frequencies

TOTAL = 2**rans.BITS


def draw(rows, rng):
    """A symbol of each distribution, drawn from it."""
    slots = rng.integers(TOTAL, size=len(rows))
    return (rows <= slots[:, None]).sum(-1) - 1


def encode(rows, symbols):
    starts, ends = (rows[np.arange(len(rows)), symbols + i] for i in (0, 1))
    return rans.encode(starts, ends - starts), np.log2(TOTAL / (ends - starts)).sum()


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(
    number=st.integers(0, 300),
    size=st.integers(1, 300),
    spread=st.floats(0, 40),
    seed=st.integers(0, 2**32 - 1),
    likely=st.booleans(),
)
def test_any_symbols_come_back_at_the_size_of_their_entropy(
    number, size, spread, seed, likely
):
    rng = np.random.default_rng(seed)
    rows = cumulative(frequencies(spread * rng.normal(size=(number, size)), 0))
    # Symbols that are not likely at all come back too.
    symbols = draw(rows, rng) if likely else rng.integers(size, size=number)
    code, bits = encode(rows, symbols)
    assert bits - 1 <= 8 * len(code) <= 1.001 * bits + 48
    decoder = rans.Decoder(code)
    parts = np.split(rows, [number // 3])  # in as many calls as one likes
    found = np.concatenate([decoder.decode(part) for part in parts])
    decoder.finish()
    np.testing.assert_array_equal(found, symbols)


def test_a_certain_symbol_costs_nothing():
    rows = np.tile([0, TOTAL], (10_000, 1))
    assert len(encode(rows, np.zeros(10_000, int))[0]) == 5


def test_damaged_codes_are_refused_or_other_symbols(rng):
    rows = cumulative(frequencies(rng.normal(size=(200, 16)), 0))
    symbols = draw(rows, rng)
    code, _ = encode(rows, symbols)

    def decoded(code):
        decoder = rans.Decoder(code)
        found = decoder.decode(rows)
        decoder.finish()
        return found

    for length in range(len(code)):
        with pytest.raises(ValueError, match="The codes are damaged"):
            decoded(code[:length])
    with pytest.raises(ValueError, match="something is left"):
        decoded(code + b"\0")
    for place in range(len(code)):
        other = bytearray(code)
        other[place] ^= 1 << rng.integers(8)
        try:
            assert (decoded(bytes(other)) != symbols).any()
        except ValueError as error:
            assert "damaged" in str(error)
