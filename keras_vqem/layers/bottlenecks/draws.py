"""Draws: what becomes of the codes that Monte-Carlo soft EM draws."""

from typing import Any

import keras
import tensorflow as tf

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks.strategies import Strategy


@keras.saving.register_keras_serializable(package="keras_vqem")
class Draws(Strategy):
    """Codes that soft EM draws for each vector, and what of them goes where.

    With `m` draws `z_1`, ..., `z_m` from the posterior, and its mode `z`, which is the
    likeliest code (the nearest one, unless there is a prior), the decoder gets

        (e[z_1] + ... + e[z_m]) / m     decoder="mean", as in the paper
        e[z_1]                          decoder="draw"
        e[z]                            decoder="mode", as in hard EM

    in training, and `e[z]` outside of it. The commitment loss is that of what the
    decoder gets, and the gradient passes as ever. The M step takes all draws in any
    case, each with weight `1 / m`.

    A latent predictor learns from the `samples` that the layer returns. These are soft
    labels, the draws, or a hard one, the mode; `samples` then has `m = 1`.

    Args:
        num_samples: Number of draws per vector, `m`.
        decoder: What the decoder gets: `"mean"`, `"draw"` or `"mode"`.
        labels: What `samples` holds: `"draws"` or `"mode"`.

    Example:

    >>> draws = keras_vqem.layers.Draws(10, decoder="mode", labels="mode")
    >>> layer = keras_vqem.layers.VQEMBottleneck(8, num_samples=draws, seed=0)
    >>> outputs = layer(np.random.default_rng(0).normal(size=(4, 2)), training=True)
    >>> outputs["samples"].shape
    TensorShape([4, 1])

    References:
        - Roy, Vaswani, Neelakantan, Parmar, 2018. Theory and Experiments on Vector
          Quantized Autoencoders. arXiv:1805.11063.
    """

    def __init__(self, num_samples: int, decoder: str = "mean", labels: str = "draws"):
        remedy = "Use None for hard EM, or 'exact' for soft EM without draws."
        self.num_samples = whole_number("num_samples", num_samples, 1, remedy)
        self.decoder = _one_of("decoder", decoder, ("mean", "draw", "mode"))
        self.labels = _one_of("labels", labels, ("draws", "mode"))

    @property
    def num_labels(self) -> int:
        """Number of codes per vector in `samples`."""
        return self.num_samples if self.labels == "draws" else 1

    def for_decoder(self, codes: tf.Tensor, samples: tf.Tensor) -> tf.Tensor:
        """Returns the codes whose mean the decoder gets.

        Args:
            codes: Likeliest codes, int32 `[...]`.
            samples: Draws, int32 `[..., m]`.

        Returns:
            Codes, int32 `[..., m]` or `[..., 1]`.
        """
        if self.decoder == "mean":
            return samples
        return samples[..., :1] if self.decoder == "draw" else codes[..., None]

    def for_predictor(self, codes: tf.Tensor, samples: tf.Tensor) -> tf.Tensor:
        """Returns the labels of a latent predictor; see `for_decoder`."""
        return samples if self.labels == "draws" else codes[..., None]

    def get_config(self) -> dict[str, Any]:
        return {
            "num_samples": self.num_samples,
            "decoder": self.decoder,
            "labels": self.labels,
        }


def _one_of(argument, value, choices):
    if value in choices:
        return value
    raise ValueError(
        f"`{argument}` must be one of {', '.join(map(repr, choices))}, received "
        f"{value!r}."
    )


def get(num_samples: int | str | Draws | dict[str, Any] | None) -> Draws | str | None:
    """Returns what the argument `num_samples` of a layer stands for.

    Args:
        num_samples: A number, draws, serialized draws, `"exact"`, or None.

    Returns:
        Draws; `"exact"` or None, if nothing is drawn.
    """
    if isinstance(num_samples, dict):
        num_samples = keras.saving.deserialize_keras_object(num_samples)
    if isinstance(num_samples, Draws) or num_samples in (None, "exact"):
        return num_samples
    return Draws(num_samples)


def sends_means(draws: Draws | str | None) -> bool:
    """Tells whether the decoder gets means of several vectors of the codebook.

    Args:
        draws: What `get` returned.
    """
    return draws == "exact" or (isinstance(draws, Draws) and draws.decoder == "mean")


def serialize(draws: Draws | str | None) -> int | str | dict[str, Any] | None:
    """Returns a value for `get_config`, which `get` accepts.

    Args:
        draws: What `get` returned.

    Returns:
        The number alone if all else is the default, or the serialized draws.
    """
    if not isinstance(draws, Draws):
        return draws
    plain = type(draws) is Draws and (draws.decoder, draws.labels) == ("mean", "draws")
    return draws.num_samples if plain else keras.saving.serialize_keras_object(draws)
