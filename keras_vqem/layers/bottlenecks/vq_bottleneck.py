"""VQBottleneck: the original VQ-VAE, its codebook learned by gradient."""

from typing import Any

import keras
from keras import ops

from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.replicas import ReplicaSeedGenerator


@keras.saving.register_keras_serializable(package="keras_vqem")
class VQBottleneck(CodebookBottleneck):
    """Vector quantization with a codebook that is learned by gradient.

    The original VQ-VAE: a vector becomes the nearest entry of the codebook, and the
    gradient passes straight through. One loss draws entries to the vectors they were
    chosen for, another, weighted by `commitment_weight`, draws vectors to their
    entries:

        mean |sg(x) - e|^2 + commitment_weight * mean |x - sg(e)|^2

    Args:
        num_codes: K, the size of the codebook; at least 2.
        commitment_weight: beta, the weight of the second term.
        groups: How many codes a vector gets; see `VQEMBottleneck`.
        initializer: A Keras initializer. The default is uniform between -1 / K and
            1 / K, as van den Oord's.
        **kwargs: Arguments of `keras.layers.Layer`. `trainable=False` freezes the
            codebook.

    Call arguments and returned dict: those of `VQEMBottleneck`; `samples` holds the
    one code of each vector.

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

    def _loss(self, pieces, quantized, keep):
        to_codebook = self._distance(ops.stop_gradient(pieces), quantized, keep)
        return to_codebook + super()._loss(pieces, quantized, keep)

    def get_config(self) -> dict[str, Any]:
        initializer = keras.initializers.serialize(self.initializer)
        return {**super().get_config(), "initializer": initializer}
