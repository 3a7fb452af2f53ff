"""FiniteScalarBottleneck: finite scalar quantization, a grid instead of a codebook."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.layers.bottlenecks.scalar_bottleneck import (
    MOST_CODES,
    ScalarBottleneck,
)


@keras.saving.register_keras_serializable(package="keras_vqem")
class FiniteScalarBottleneck(ScalarBottleneck):
    """Finite scalar quantization (FSQ): each number is rounded to one of a few levels.

    Nothing has to be learned, no code can die, and there is no auxiliary loss. Each
    number `z` is bounded to about -1 to 1 and rounded to the nearest of `L` levels,
    which are spread evenly from -1 to 1, both included:

        bounded = tanh(a z) / tanh(a)         a = min(1, 2 / sqrt(L - 1))

    The gradient is that of `bounded`; it passes straight through the rounding. An even
    number of levels has none at 0, so levels are symmetric for any `L`. The slope `a`
    is such that each level is rounded to itself: without linear maps, `encode` returns
    the codes of what `decode` returned, for every code.

    If vectors have another size than `levels`, a linear map leads to the numbers that
    are rounded, and a second one leads back. Both are learned by gradient.

    The metrics are those of `VQEMBottleneck`.

    Args:
        levels: Number of levels of each number, a sequence of integers of at least 2.
            `(8, 5, 5, 5)` gives 1,000 codes of four numbers. The paper recommends at
            least 5 levels per number. At most 2 ** 20 codes.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`. Each
            group has its own linear maps, if there are any.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[..., D]`.
        mask: Booleans `[...]`, False for vectors to leave out of the metrics.
        training: True or False updates metrics; None does not. The output is the same.

    Returns:
        A dict with the same keys, shapes and dtypes in training and inference:

        - `quantized`: Vectors `[..., D]` in the compute dtype, for the decoder.
        - `codes`: Codes, int32 `[...]`, or `[..., G]` with `G` groups. The level of the
          first number is the lowest digit.
        - `samples`: The same codes, int32 `[..., 1]`, or `[..., G, 1]` with `G` groups.

    Example:

    >>> layer = keras_vqem.layers.FiniteScalarBottleneck((8, 5, 5, 5))
    >>> layer(np.zeros((2, 3, 4), "float32"))["codes"].shape, layer.num_codes
    (TensorShape([2, 3]), 1000)
    >>> layer.decode([0, 7, 999]).numpy()[:, 0].tolist()
    [-1.0, 1.0, 1.0]

    References:
        - Mentzer, Minnen, Agustsson, Tschannen, 2023. Finite Scalar Quantization:
          VQ-VAE Made Simple. arXiv:2309.15505.
    """

    def __init__(
        self,
        levels: Sequence[int],
        groups: int | Whole | None = None,
        **kwargs: Any,
    ):
        if isinstance(levels, (str, bytes)) or not isinstance(levels, Sequence):
            raise ValueError(
                f"`levels` must be a sequence of integers, one per number, for example "
                f"(8, 5, 5, 5). Received {levels!r}."
            )
        levels = tuple(whole_number("levels", level, 2) for level in levels)
        if not levels or math.prod(levels) > MOST_CODES:
            raise ValueError(
                f"`levels` must give from 2 to {MOST_CODES} codes, received {levels}, "
                f"which gives {math.prod(levels)}. For more, use `groups`: each group "
                f"of numbers has a code of its own."
            )
        super().__init__(levels, groups=groups, **kwargs)
        self.levels = levels
        self._slopes = tuple(min(1.0, 2 / math.sqrt(n - 1)) for n in levels)
        self._ends = tuple(math.tanh(slope) for slope in self._slopes)

    def _smooth(self, numbers):
        return ops.tanh(numbers * self._slopes) / self._ends

    def _digits(self, numbers):
        steps = ops.cast(self.levels, "float32")
        # A step is 2 / (L - 1) wide; level 0 is at -1.
        nearest = ops.floor(self._smooth(numbers) * (steps - 1) / 2 + steps / 2)
        return ops.cast(ops.clip(nearest, 0.0, steps - 1), "int32")

    def _values(self, digits):
        last = ops.cast(self.levels, "float32") - 1
        return (2 * ops.cast(digits, "float32") - last) / last

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "levels": self.levels}
