"""GaussianBottleneck: the continuous latent of a VAE."""

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks.bottleneck import Bottleneck, metric_name
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class GaussianBottleneck(Bottleneck):
    """The continuous latent of a VAE, for comparison with the discrete ones.

    A linear map gives mean and log variance of a diagonal Gaussian. In training a
    draw from it goes to the decoder, otherwise its mean. The auxiliary loss is
    `kl_weight` times the KL divergence from the standard normal, summed over the
    latent dimensions, the mean over vectors.

    Args:
        latent_dim: Size of the latent; None for that of the inputs.
        kl_weight: Weight of the auxiliary loss.
        seed: Seed of the draws.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments: those of `VQEMBottleneck`.

    Returns:
        A dict with the same keys in training and inference. There are no codes.

        - `quantized` [..., latent_dim], in the compute dtype: what the decoder gets;
        - `mean` and `log_variance` [..., latent_dim] float32;
        - `kl` [...] float32, in nats for each vector, 0 where masked.

    Metrics, over the epoch: `kl`, the mean over vectors, and `nonfinite`.

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
        **kwargs,
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

    def build(self, input_shape):
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
        # Far beyond any useful precision, and short of overflow.
        return mean, ops.clip(log_variance, -30.0, 30.0)

    def call(self, inputs, mask=None, training=None):
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
        """The mean of each vector's latent: [..., latent_dim], float32."""
        inputs = self._prepare(inputs)
        mean, _ = self._moments(self._rows(inputs)[0])
        return self._like(mean, inputs, self._size)

    def decode(self, latents: ArrayLike) -> tf.Tensor:
        """Latents in the compute dtype, as the decoder gets them."""
        return ops.cast(latents, self.compute_dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "latent_dim": self.latent_dim,
            "kl_weight": self.kl_weight,
            "seed": self.seed,
        }
