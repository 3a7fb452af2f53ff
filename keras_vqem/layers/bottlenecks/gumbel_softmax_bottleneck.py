"""GumbelSoftmaxBottleneck: a relaxed categorical choice of codes."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule
from numpy.typing import ArrayLike

from keras_vqem.layers.bottlenecks import groupings, notices, segments
from keras_vqem.layers.bottlenecks.bottleneck import DiscreteBottleneck, kept_only
from keras_vqem.layers.bottlenecks.scheduled import Scheduled
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class GumbelSoftmaxBottleneck(DiscreteBottleneck):
    """A discrete bottleneck that chooses codes by Gumbel-Softmax.

    A linear map gives logits over the codes. In training, Gumbel noise is added to the
    logits. The decoder gets a mixture of the code vectors, whose weights are the
    softmax of the noisy logits divided by the temperature. The code with the largest
    noisy logit is an exact draw from the softmax of the logits. Outside training, the
    code with the largest logit is used, without noise.

    The auxiliary loss is `kl_weight` times the KL divergence from the uniform
    distribution over codes, averaged over vectors. Unlike the nearest-neighbour
    bottlenecks, this layer keeps a row of `num_codes` numbers in memory for every
    vector, because its gradient needs them.

    The metrics are those of `VQEMBottleneck`.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        temperature: Temperature of the softmax in training, a number or a
            `keras.optimizers.schedules` schedule over training steps. None stands for
            the schedule of the authors' code, which falls from 1.2 to 0.2 over 150,000
            steps. Short runs need a shorter schedule.
        straight_through: Whether the decoder gets the vector of the drawn code, with
            the gradient of the mixture, instead of the mixture.
        kl_weight: Weight of the KL divergence in the auxiliary loss.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`.
        seed: Integer seed of the noise. None draws one at random.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[..., D]`.
        mask: Booleans `[...]`, False for vectors to leave out of loss and metrics.
        training: True adds noise and updates metrics. False uses the most probable
            codes and updates metrics. None uses the most probable codes and updates
            nothing.

    Returns:
        A dict with the same keys, shapes and dtypes in training and inference:

        - `quantized`: Vectors `[..., D]` in the compute dtype, for the decoder.
        - `codes`: Most probable codes, int32 `[...]`, or `[..., G]` with `G` groups.
        - `samples`: Codes drawn in training, int32 `[..., 1]`, or `[..., G, 1]` with
          `G` groups. Outside training they are equal to `codes`.

    Example:

    >>> layer = keras_vqem.layers.GumbelSoftmaxBottleneck(
    ...     8, temperature=keras.optimizers.schedules.ExponentialDecay(1.0, 1000, 0.5))
    >>> outputs = layer(np.ones((2, 3, 4), "float32"), training=True)
    >>> outputs["quantized"].shape, outputs["samples"].shape
    (TensorShape([2, 3, 4]), TensorShape([2, 3, 1]))

    References:
        - Jang, Gu, Poole, 2016. Categorical Reparameterization with Gumbel-Softmax.
          arXiv:1611.01144.
        - Maddison, Mnih, Teh, 2016. The Concrete Distribution. arXiv:1611.00712.
    """

    def __init__(
        self,
        num_codes: int,
        temperature: float | LearningRateSchedule | None = None,
        straight_through: bool = False,
        kl_weight: float = 0.001,
        groups: int | groupings.Whole | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(num_codes, groups=groups, **kwargs)
        if temperature is None:
            temperature = keras.optimizers.schedules.PolynomialDecay(1.2, 150_000, 0.2)
        self.temperature = Scheduled(temperature, "temperature", above=0.0)
        self.straight_through = straight_through
        self.kl_weight = kl_weight
        self.seed = seed
        self.seed_generator = ReplicaSeedGenerator(seed)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        dim, books = self.groups.build(self, self._dim), self.groups.num_codebooks

        def add_weight(name, shape, initializer):
            return self.add_weight(
                name=name,
                shape=(books, *shape),
                initializer=initializer,
                dtype="float32",
                autocast=False,
            )

        scale = keras.initializers.RandomNormal(stddev=dim**-0.5, seed=self.seed)
        self.kernel = add_weight("kernel", (dim, self.num_codes), scale)
        self.bias = add_weight("bias", (1, self.num_codes), "zeros")
        self.codebook = add_weight("codebook", (self.num_codes, dim), "random_normal")
        self.temperature.build(self)

    def _logits(self, pieces):
        return ops.matmul(pieces, self.kernel) + self.bias

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        notices.look_at_call(self, inputs, training)
        rows, keep, nonfinite = self._rows(inputs, mask)
        keep = self.groups.split_rows(keep)
        logits = self._logits(self.groups.split(rows))
        codes = ops.argmax(logits, axis=-1)
        if training:
            uniform = keras.random.uniform(
                ops.shape(logits), 1e-20, dtype="float32", seed=self.seed_generator
            )
            noisy = logits - ops.log(-ops.log(uniform))
            samples = ops.argmax(noisy, axis=-1)
            quantized = self._mix(noisy / self.temperature.value(), samples)
            if self.trainable:
                self.temperature.step()
        else:
            samples = codes
            quantized = self._look_up(codes)
        self.add_loss(self.kl_weight * self._mean_over_rows(self._kl(logits), keep))
        if training is not None:
            kept = kept_only(samples[..., None], keep)
            self._update_metrics(self._count(kept), nonfinite)
        quantized = self._like(self.groups.merge(quantized), inputs, self._dim)
        return {
            "quantized": ops.cast(quantized, self.compute_dtype),
            "codes": self._codes_like(codes, inputs),
            "samples": self._codes_like(samples[..., None], inputs, 1),
        }

    def _mix(self, noisy, samples):
        """Returns mixed code vectors [C, M, d], or drawn ones with that gradient."""
        weights = ops.softmax(noisy)
        if not self.straight_through:
            return ops.matmul(weights, self.codebook)
        mixed = ops.matmul(weights, ops.stop_gradient(self.codebook))
        return self._look_up(samples) + (mixed - ops.stop_gradient(mixed))

    def _look_up(self, codes):
        return segments.per_codebook(
            lambda table, codes: ops.take(table, codes, axis=0),
            ops.convert_to_tensor(self.codebook),
            codes,
        )

    def _kl(self, logits):
        """Returns the KL divergence [C, M] of the codes from uniform, in nats."""
        logp = ops.log_softmax(logits)
        return ops.sum(ops.exp(logp) * logp, axis=-1) + ops.log(float(self.num_codes))

    def encode(self, inputs: ArrayLike) -> tf.Tensor:
        """Returns the most probable code of each vector.

        Args:
            inputs: Vectors `[..., D]`.

        Returns:
            Codes, int32 `[...]`, or `[..., G]` for a layer with `G` groups.
        """
        inputs = self._prepare(inputs)
        logits = self._logits(self.groups.split(self._rows(inputs)[0]))
        return self._codes_like(ops.argmax(logits, axis=-1), inputs)

    def decode(self, codes: ArrayLike) -> tf.Tensor:
        """Returns the vectors of codes.

        For codes from `encode`, the result is exactly the `quantized` that the layer
        returns outside training.

        Args:
            codes: Integers `[...]`, or `[..., G]` for a layer with `G` groups.

        Returns:
            Vectors `[..., D]` in the compute dtype of the layer.
        """
        pieces = self.groups.split_codes(self._check_codes(codes))
        return self._decoded(self.groups.merge(self._look_up(pieces)), codes)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "groups": groupings.serialize(self.groups),
            "temperature": self.temperature.serialize(),
            "straight_through": self.straight_through,
            "kl_weight": self.kl_weight,
            "seed": self.seed,
        }
