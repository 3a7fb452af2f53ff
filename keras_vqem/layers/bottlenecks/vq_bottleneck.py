"""VQBottleneck: the original VQ-VAE, whose codebook is learned by gradient."""

from typing import Any

import keras
from keras import ops

from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class VQBottleneck(CodebookBottleneck):
    """Vector quantization with a codebook that is learned by gradient.

    This is the original VQ-VAE. Each vector `x` is replaced by the nearest vector `e`
    of the codebook, and the gradient passes straight through. The auxiliary loss has
    two terms, in which `sg` stops the gradient. The first term draws codebook vectors
    towards the inputs that chose them; the second draws inputs towards their codebook
    vectors.

        mean |sg(x) - e|^2 + commitment_weight * mean |x - sg(e)|^2

    The metrics are those of `VQEMBottleneck`.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        commitment_weight: Weight of the second term of the loss; beta in the paper.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`.
        initializer: Keras initializer of the codebook. None stands for the uniform
            distribution between `-1 / K` and `1 / K` of the original VQ-VAE.
        **kwargs: Other arguments of `keras.layers.Layer`. `trainable=False` freezes the
            codebook.

    Call arguments:
        inputs: Vectors `[..., D]`.
        mask: Booleans `[...]`, False for vectors to leave out of loss and metrics.
        training: True or False updates metrics; None does not. The output is the same.
        prior_logits: Logits `[..., K]`, or `[..., G, K]` with `G` groups, of a prior
            over codes; see `VQEMBottleneck`. The temperature is 1.

    Returns:
        A dict with the same keys, shapes and dtypes in training and inference:

        - `quantized`: Vectors `[..., D]` in the compute dtype, for the decoder.
        - `codes`: Nearest codes, int32 `[...]`, or `[..., G]` with `G` groups. With
          `prior_logits`, the likeliest codes.
        - `samples`: The same codes, int32 `[..., 1]`, or `[..., G, 1]` with `G` groups.

    Example:

    >>> layer = keras_vqem.layers.VQBottleneck(num_codes=8)
    >>> outputs = layer(np.ones((2, 3, 4), "float32"), training=True)
    >>> outputs["codes"].shape, len(layer.losses), len(layer.trainable_weights)
    (TensorShape([2, 3]), 1, 1)

    References:
        - van den Oord, Vinyals, Kavukcuoglu, 2017. Neural Discrete Representation
          Learning. arXiv:1711.00937.
    """

    def __init__(
        self,
        num_codes: int,
        commitment_weight: float = 0.25,
        groups: int | Whole | None = None,
        initializer: keras.initializers.Initializer | str | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            num_codes, commitment_weight=commitment_weight, groups=groups, **kwargs
        )
        if initializer is None:
            initializer = keras.initializers.RandomUniform(
                -1 / num_codes, 1 / num_codes
            )
        self.initializer = keras.initializers.get(initializer)
        self.seed_generator = ReplicaSeedGenerator()

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        dim = self.groups.build(self, self._dim)
        self.codebook = self.add_weight(
            name="codebook",
            shape=(self.groups.num_codebooks, self.num_codes, dim),
            initializer=self.initializer,
            dtype="float32",
            autocast=False,
        )

    @property
    def codebook_weights(self) -> list[keras.Variable]:
        return [self.codebook]

    def _read_codebook(self):
        counts = ops.ones((self.groups.num_codebooks, self.num_codes))
        return ops.convert_to_tensor(self.codebook), counts

    def _loss(self, pieces, quantized, keep, total):
        to_codebook = self._distance(ops.stop_gradient(pieces), quantized, keep, total)
        return to_codebook + super()._loss(pieces, quantized, keep, total)

    def get_config(self) -> dict[str, Any]:
        initializer = keras.initializers.serialize(self.initializer)
        return {**super().get_config(), "initializer": initializer}
