"""Integer frequencies from logits: the same ones wherever the logits are computed.

Two computers do not add up the same floats in the same order. Their logits differ in
the last bits, and a difference in a single frequency would spoil all codes after it.
So logits are rounded down to coarse levels, and everything after that is arithmetic of
integers. What remains is a logit so close to the edge of a level that two computers see
it on two sides. The encoder avoids this: it tries shifts of all logits until every one
of them is further from an edge than any difference in float64, and writes the shift
into the file.
"""

import decimal

import numpy as np

from keras_vqem.compression.rans import BITS

LEVELS_PER_NAT = 8  # This costs less than a thousandth of a bit per symbol.
SHIFTS = 256
# Distance in nats that a logit keeps from the edge of its level. Two ways to compute
# float64 logits of a trained prior differ by about 1e-13.
MARGIN = 1e-9
_WEIGHT_BITS = 24


def _weights():
    """exp(-depth / LEVELS_PER_NAT) as integers, down to the first 0."""
    # Decimals are rounded correctly by definition; exp of floats differs by platform.
    with decimal.localcontext(decimal.Context(prec=50)):
        weights, scale = [], decimal.Decimal(2**_WEIGHT_BITS)
        while not weights or weights[-1]:
            depth = decimal.Decimal(len(weights)) / LEVELS_PER_NAT
            weights.append(int((scale * (-depth).exp()).to_integral_value()))
    return np.array(weights, "int64")


_WEIGHTS = _weights()


def unsafe_shifts(logits: np.ndarray) -> np.ndarray:
    """Finds shifts that would bring a logit too close to the edge of a level.

    Args:
        logits: float64 array of any shape.

    Returns:
        Booleans `[SHIFTS]`, True for shifts that are not safe.
    """
    # A shift adds that many SHIFTS-ths of a level; this one would add up to an edge.
    worst = -logits.ravel() * (LEVELS_PER_NAT * SHIFTS)
    nearest = np.rint(worst)
    close = np.abs(worst - nearest) <= MARGIN * LEVELS_PER_NAT * SHIFTS
    unsafe = np.zeros(SHIFTS, bool)
    unsafe[nearest[close].astype("int64") % SHIFTS] = True
    return unsafe


def frequencies(logits: np.ndarray, shift: int) -> np.ndarray:
    """Turns logits to frequencies, about in proportion to their exponentials.

    Args:
        logits: float64 `[..., K]`.
        shift: Integer from 0 to `SHIFTS - 1`, the same for encoding and decoding.

    Returns:
        int64 `[..., K]`, each at least 1, with a sum of `2 ** BITS`.

    Example:

    >>> from keras_vqem.compression.frequencies import frequencies
    >>> frequencies(np.array([0.0, 0.0, -100.0]), shift=0).tolist()
    [524288, 524287, 1]
    """
    levels = np.floor(logits * LEVELS_PER_NAT + shift / SHIFTS)
    depths = levels.max(axis=-1, keepdims=True) - levels
    depths = np.minimum(depths, len(_WEIGHTS) - 1).astype("int64")
    weights = _WEIGHTS[depths]
    total = weights.sum(axis=-1, keepdims=True)
    # Each symbol gets 1, so that none is impossible, and its share of the rest.
    found = 1 + weights * (2**BITS - logits.shape[-1]) // total
    first = found.argmax(axis=-1)[..., None]
    left = 2**BITS - found.sum(axis=-1, keepdims=True)
    np.put_along_axis(found, first, np.take_along_axis(found, first, -1) + left, -1)
    return found


def cumulative(frequencies: np.ndarray) -> np.ndarray:
    """Returns the sums of the frequencies before each symbol, and of all.

    Args:
        frequencies: Integers `[..., K]`.

    Returns:
        int64 `[..., K + 1]`.
    """
    sums = np.cumsum(frequencies, axis=-1, dtype="int64")
    return np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)
