"""position_signal: sines and cosines that tell positions apart."""

import numpy as np
import tensorflow as tf
from keras import ops


def position_signal(
    length: int | tf.Tensor,
    hidden_dim: int,
    start: int | tf.Tensor = 0,
    dtype: str = "float32",
) -> tf.Tensor:
    """Returns the position signal of the Transformer, to be added to embeddings.

    Each vector holds sines, then cosines, of the position, with wavelengths from 2 pi
    to 20,000 pi.

    Args:
        length: Number of positions, an integer or a scalar tensor.
        hidden_dim: Size of the vectors. It must be even.
        start: Number of the first position.
        dtype: Dtype of the result.

    Returns:
        Tensor `[1, length, hidden_dim]`.
    """
    if hidden_dim % 2:
        raise ValueError(
            f"`hidden_dim` must be even, because one half of the position signal is "
            f"sines and the other half cosines; received {hidden_dim}. Use "
            f"{hidden_dim + 1}."
        )
    half = hidden_dim // 2
    rates = 10_000.0 ** (-np.arange(half) / max(half - 1, 1))
    places = ops.cast(ops.arange(length) + start, "float32")
    angles = places[:, None] * rates.astype("float32")
    signal = ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.cast(signal[None], dtype)
