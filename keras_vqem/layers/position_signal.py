"""Sines and cosines that tell positions apart."""

import numpy as np
from keras import ops


def position_signal(length, hidden_dim, start=0, dtype="float32"):
    """[1, length, width]: sines, then cosines, of wavelengths from 2 pi to 20,000 pi.

    Args:
        length: How many positions, a number or a scalar tensor.
        hidden_dim: Size of the vectors; even.
        start: The first position.
        dtype: Of the result.

    Returns:
        A tensor to add to embeddings.
    """
    if hidden_dim % 2:
        raise ValueError(
            f"The width must be even for positions, received {hidden_dim}."
        )
    half = hidden_dim // 2
    rates = 10_000.0 ** (-np.arange(half) / max(half - 1, 1))
    places = ops.cast(ops.arange(length) + start, "float32")
    angles = places[:, None] * rates.astype("float32")
    signal = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.cast(signal[None], dtype)
