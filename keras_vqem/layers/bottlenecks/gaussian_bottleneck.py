"""GaussianBottleneck: the continuous latent of a VAE."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks import notices
from keras_vqem.layers.bottlenecks.bottleneck import Bottleneck, metric_name
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class GaussianBottleneck(Bottleneck):
    """The continuous latent of a VAE, for comparison with discrete bottlenecks.

    A linear map gives the mean and the log variance of a diagonal Gaussian. In
    training, the decoder gets a draw from the Gaussian; otherwise it gets the mean. The
    auxiliary loss is `kl_weight` times the KL divergence from the standard normal
    distribution, summed over the latent dimensions and averaged over vectors.

    The metrics are `kl`, the mean KL divergence per vector in nats, and `nonfinite`,
    the number of vectors left out because of NaN or infinity.

    Args:
        latent_dim: Size of the latent vectors. None for the size of the inputs.
        kl_weight: Weight of the KL divergence in the auxiliary loss.
        seed: Integer seed of the draws. None draws one at random.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[..., D]`.
        mask: Booleans `[...]`, False for vectors to leave out of loss and metrics.
        training: True draws from the Gaussian and updates metrics. False returns the
            mean and updates metrics. None returns the mean and updates nothing.

    Returns:
        A dict with the same keys in training and inference. There are no codes.

        - `quantized`: `[..., latent_dim]` in the compute dtype, for the decoder.
        - `mean` and `log_variance`: Float32 `[..., latent_dim]`.
        - `kl`: Float32 `[...]`, the KL divergence per vector in nats; 0 where masked.

    Example:

    >>> layer = keras_vqem.layers.GaussianBottleneck(latent_dim=3)
    >>> outputs = layer(np.ones((2, 5, 4), "float32"), training=True)
    >>> outputs["quantized"].shape, outputs["kl"].shape
    (TensorShape([2, 5, 3]), TensorShape([2, 5]))

    References:
        - Kingma, Welling, 2013. Auto-Encoding Variational Bayes. arXiv:1312.6114.
    """

    _output_keys = ("quantized", "mean", "log_variance", "kl")

    def __init__(
        self,
        latent_dim: int | None = None,
        kl_weight: float = 1.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if latent_dim is not None:
            remedy = "Use None for the size of the inputs."
            latent_dim = whole_number("latent_dim", latent_dim, 1, remedy)
        self.latent_dim = latent_dim
        self.kl_weight = kl_weight
        self.seed = seed
        self.seed_generator = ReplicaSeedGenerator(seed)
        self.kl = keras.metrics.Mean(name=metric_name(self, "kl"), dtype="float32")

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        self._size = self.latent_dim or self._dim
        settings = {"dtype": "float32", "autocast": False}
        self.kernel = self.add_weight(
            name="kernel", shape=(self._dim, 2 * self._size), **settings
        )
        self.bias = self.add_weight(
            name="bias", shape=(2 * self._size,), initializer="zeros", **settings
        )

    def _moments(self, rows):
        mean, log_variance = ops.split(
            ops.matmul(rows, self.kernel) + self.bias, 2, axis=-1
        )
        # Limits far beyond any useful precision that still prevent overflow.
        return mean, ops.clip(log_variance, -30.0, 30.0)

    def call(
        self,
        inputs: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, tf.Tensor]:
        notices.look_at_call(self, inputs, training)
        rows, keep, nonfinite = self._rows(inputs, mask)
        mean, log_variance = self._moments(rows)
        latent = mean
        if training:
            noise = keras.random.normal(
                ops.shape(mean), dtype="float32", seed=self.seed_generator
            )
            latent = mean + ops.exp(0.5 * log_variance) * noise
        kl = 0.5 * ops.sum(
            ops.square(mean) + ops.exp(log_variance) - 1.0 - log_variance, axis=-1
        )
        self.add_loss(self.kl_weight * self._mean_over_rows(kl, keep))
        if training is not None:
            self.kl.update_state(kl, sample_weight=keep)
            self.nonfinite.update_state(nonfinite)
        return {
            "quantized": ops.cast(
                self._like(latent, inputs, self._size), self.compute_dtype
            ),
            "mean": self._like(mean, inputs, self._size),
            "log_variance": self._like(log_variance, inputs, self._size),
            "kl": self._like(kl * keep, inputs),
        }

    def encode(self, inputs: ArrayLike) -> tf.Tensor:
        """Returns the mean of the latent of each vector.

        Args:
            inputs: Vectors `[..., D]`.

        Returns:
            Float32 `[..., latent_dim]`.
        """
        inputs = self._prepare(inputs)
        mean, _ = self._moments(self._rows(inputs)[0])
        return self._like(mean, inputs, self._size)

    def decode(self, latents: ArrayLike) -> tf.Tensor:
        """Returns latents as the decoder gets them.

        Args:
            latents: Latent vectors `[..., latent_dim]`.

        Returns:
            The same values in the compute dtype of the layer.
        """
        return ops.cast(latents, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "latent_dim": self.latent_dim,
            "kl_weight": self.kl_weight,
            "seed": self.seed,
        }
