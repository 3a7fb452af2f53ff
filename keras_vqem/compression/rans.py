"""Range asymmetric numeral systems: symbols to bytes, at the size of their entropy.

All symbols are in one integer, the state. A symbol with frequency f out of 2 ** BITS
multiplies it by about 2 ** BITS / f. Low bytes move to the output while the state would
grow beyond five bytes, and back from it in decoding, which takes the same steps in the
opposite order (Duda, 2013. arXiv:1311.2540).
"""

import numpy as np

BITS = 20  # The frequencies of a distribution add up to 2 ** BITS.
_MASK = (1 << BITS) - 1
_LOW_BITS = 32  # The state stays within [_LOW, 256 * _LOW) between symbols.
_LOW = 1 << _LOW_BITS
_STATE_BYTES = _LOW_BITS // 8 + 1


def encode(starts: np.ndarray, frequencies: np.ndarray) -> bytes:
    """Encodes symbols, given their frequencies and those of all smaller symbols.

    Args:
        starts: Integers `[N]`: for each symbol the sum of the frequencies of the
            symbols before it in the alphabet.
        frequencies: Integers `[N]`, at least 1: the frequency of each symbol, out of
            `2 ** BITS`.

    Returns:
        The code. Its size is the entropy of the symbols and about four bytes.

    Example:

    >>> from keras_vqem.compression import rans
    >>> cumulative = np.array([0, 2**19, 2**20])  # a coin
    >>> symbols = np.array([0, 1, 1, 0])
    >>> code = rans.encode(cumulative[symbols], np.diff(cumulative)[symbols])
    >>> decoder = rans.Decoder(code)
    >>> decoder.decode(np.stack([cumulative] * 4)).tolist()
    [0, 1, 1, 0]
    >>> decoder.finish()
    """
    state, out = _LOW, bytearray()
    pairs = zip(starts[::-1].tolist(), frequencies[::-1].tolist(), strict=True)
    for start, frequency in pairs:  # the last symbol first: decoding turns it round
        limit = frequency << (_LOW_BITS + 8 - BITS)
        while state >= limit:
            out.append(state & 255)
            state >>= 8
        state = (state // frequency << BITS) + state % frequency + start
    return state.to_bytes(_STATE_BYTES, "big") + bytes(reversed(out))


class Decoder:
    """Decodes what `encode` wrote, symbols in their first order.

    Args:
        data: The code.
    """

    def __init__(self, data: bytes):
        self._data, self._place = data, _STATE_BYTES
        self._state = int.from_bytes(data[:_STATE_BYTES], "big")
        if len(data) < _STATE_BYTES or self._state < _LOW:
            raise ValueError("The codes are damaged: they do not begin as codes do.")

    def decode(self, cumulative: np.ndarray) -> np.ndarray:
        """Decodes the next symbols.

        Args:
            cumulative: Integers `[N, K + 1]`, one distribution per symbol: the sums of
                the frequencies before each of K symbols, and `2 ** BITS`.

        Returns:
            int32 `[N]`.
        """
        state, found = self._state, np.empty(len(cumulative), "int32")
        for number, row in enumerate(cumulative):
            slot = state & _MASK
            symbol = int(row.searchsorted(slot, "right")) - 1
            start = int(row[symbol])
            frequency = int(row[symbol + 1]) - start
            state = frequency * (state >> BITS) + slot - start
            while state < _LOW:
                if self._place == len(self._data):
                    raise ValueError("The codes are damaged: they end too early.")
                state = state << 8 | self._data[self._place]
                self._place += 1
            found[number] = symbol
        self._state = state
        return found

    def finish(self) -> None:
        """Raises a `ValueError` unless exactly the encoded symbols were decoded."""
        if self._state != _LOW or self._place != len(self._data):
            raise ValueError("The codes are damaged: something is left at their end.")
