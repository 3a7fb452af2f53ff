"""SemanticHashingBottleneck: improved semantic hashing, whose codes are bits."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from keras_vqem.layers.bottlenecks import notices
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.layers.bottlenecks.scalar_bottleneck import (
    ScalarBottleneck,
    check_bits,
)
from keras_vqem.layers.bottlenecks.scheduled import Scheduled
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class SemanticHashingBottleneck(ScalarBottleneck):
    """A discrete bottleneck that turns a vector into bits: improved semantic hashing.

    A linear map gives one number `v` per bit. In training, Gaussian noise is added, and
    a saturating sigmoid, `clip(1.2 sigmoid(v) - 0.1, 0, 1)`, turns the numbers into
    soft bits that reach 0 and 1. For a random fraction of the examples,
    `discrete_rate`, the decoder gets rounded bits with the gradient of the soft bits.
    For the other examples it gets the soft bits, whose noise teaches the encoder to
    saturate. Outside training, all bits are rounded and there is no noise. A second
    linear map turns bits into vectors. There is no auxiliary loss.

    The metrics are those of `VQEMBottleneck`.

    Args:
        num_bits: Number of bits per vector, from 1 to 20. There are `2 ** num_bits`
            codes.
        noise: Standard deviation of the noise in training.
        discrete_rate: Fraction of the examples with rounded bits in training: a number
            from 0 to 1, or a `keras.optimizers.schedules` schedule over training steps,
            for example `PolynomialDecay(0.0, 20_000, 0.5)` to warm up.
        seed: Integer seed of the noise and of the choice of examples. None draws one at
            random.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`. Each
            group has its own linear maps.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[..., D]`. The first axis is that of the examples.
        mask: Booleans `[...]`, False for vectors to leave out of the metrics.
        training: True adds noise and updates metrics. False rounds all bits and updates
            metrics. None rounds all bits and updates nothing.

    Returns:
        A dict with the same keys, shapes and dtypes in training and inference:

        - `quantized`: Vectors `[..., D]` in the compute dtype, for the decoder.
        - `codes`: Codes of the bits without noise, int32 `[...]`, or `[..., G]` with
          `G` groups. Bit 0 is the lowest.
        - `samples`: Codes of the noisy bits, int32 `[..., 1]`, or `[..., G, 1]` with
          `G` groups. Outside training they are equal to `codes`.

    Example:

    >>> layer = keras_vqem.layers.SemanticHashingBottleneck(num_bits=6)
    >>> outputs = layer(np.ones((2, 3, 4), "float32"), training=True)
    >>> outputs["quantized"].shape, layer.num_codes
    (TensorShape([2, 3, 4]), 64)

    References:
        - Kaiser, Bengio, 2018. Discrete Autoencoders for Sequence Models.
          arXiv:1801.09797.
    """

    _always_projects = True

    def __init__(
        self,
        num_bits: int,
        noise: float = 0.5,
        discrete_rate: float | LearningRateSchedule = 0.5,
        seed: int | None = None,
        groups: int | Whole | None = None,
        **kwargs: Any,
    ):
        num_bits = check_bits(num_bits)
        if noise < 0:
            raise ValueError(
                f"`noise` must not be negative, received {noise!r}. Use 0 for no noise."
            )
        super().__init__((2,) * num_bits, groups=groups, **kwargs)
        self.num_bits = num_bits
        self.noise = noise
        self.discrete_rate = Scheduled(discrete_rate, "discrete_rate", within=(0, 1))
        self.seed = seed
        self.seed_generator = ReplicaSeedGenerator(seed)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        self.discrete_rate.build(self)

    def _digits(self, numbers):
        return numbers > 0

    def _values(self, digits):
        return ops.cast(digits, "float32")

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        notices.look_at_call(self, inputs, training)
        rows, keep, nonfinite = self._rows(inputs, mask)
        keep = self.groups.split_rows(keep)
        v = self._numbers(rows)
        codes = self._pack(v > 0)
        if training:
            v = v + self.noise * keras.random.normal(
                ops.shape(v), dtype="float32", seed=self.seed_generator
            )
            soft = ops.clip(1.2 * ops.sigmoid(v) - 0.1, 0.0, 1.0)
            hard = ops.cast(v > 0, "float32") + (soft - ops.stop_gradient(soft))
            bits = ops.where(self._discrete_pieces(inputs), hard, soft)
            if self.trainable:
                self.discrete_rate.step()
        else:
            bits = self._values(v > 0)
        samples = self._pack(v > 0)
        return self._finish(inputs, bits, codes, samples, keep, nonfinite, training)

    def _discrete_pieces(self, inputs):
        """Draws booleans [C, M, 1] that are equal for all pieces of an example."""
        shape = ops.shape(inputs)
        draws = keras.random.uniform(
            (shape[0], *(1 for _ in shape[1:])),
            dtype="float32",
            seed=self.seed_generator,
        )
        draws = ops.broadcast_to(draws, (*shape[:-1], 1))
        draws = self.groups.split_rows(ops.reshape(draws, (-1,)))
        return draws[..., None] < self.discrete_rate.value()

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_bits": self.num_bits,
            "noise": self.noise,
            "discrete_rate": self.discrete_rate.serialize(),
            "seed": self.seed,
        }
