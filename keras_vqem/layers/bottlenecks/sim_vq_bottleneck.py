"""SimVQBottleneck: a codebook that moves as a whole, by one linear map."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks.commitments import SquaredCommitment
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.layers.bottlenecks.vq_bottleneck import VQBottleneck


@keras.saving.register_keras_serializable(package="keras_vqem")
class SimVQBottleneck(VQBottleneck):
    """Vector quantization whose codebook is a frozen random basis times a learned map.

    In `VQBottleneck` a gradient reaches only the codes that were chosen; the others
    stay behind. Here the codebook is `basis @ kernel`. The `basis` `[K, d]` is random
    and never changes; the `kernel` `[d, d]` is learned, and moves all codes at once,
    whether they were chosen or not. Everything else, the loss
    included, is that of `VQBottleneck`.

    The metrics are those of `VQEMBottleneck`.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        commitment_weight: Weight of the commitment term of the loss, or a commitment;
            see `VQBottleneck`.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`. Each
            codebook has its own basis and its own map.
        seed: Integer seed of the basis. None draws one at random.
        **kwargs: `similarity`, `gradient` and `penalties` of `VQBottleneck`, and
            arguments of `keras.layers.Layer`. `trainable=False` freezes the codebook.

    Call arguments:
        inputs: Vectors `[..., D]`.
        mask: Booleans `[...]`, False for vectors to leave out of loss and metrics.
        training: True or False updates metrics; None does not. The output is the same.
        prior_logits: Logits of a prior over codes; see `VQBottleneck`.

    Returns:
        The dict of `VQBottleneck`.

    Example:

    >>> layer = keras_vqem.layers.SimVQBottleneck(num_codes=8, seed=0)
    >>> outputs = layer(np.ones((2, 3, 4), "float32"), training=True)
    >>> outputs["codes"].shape, [w.name for w in layer.trainable_weights]
    (TensorShape([2, 3]), ['kernel'])

    References:
        - Zhu, Li, Xin, Xia, Xu, 2024. Addressing Representation Collapse in Vector
          Quantized Models with One Linear Layer. arXiv:2411.02038.
    """

    # A basis does not start from data.
    _adopt = None

    def __init__(
        self,
        num_codes: int,
        commitment_weight: float | SquaredCommitment = 0.25,
        groups: int | Whole | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ):
        if "initializer" in kwargs:
            raise ValueError(
                f"A SimVQBottleneck takes no `initializer`, because its basis is "
                f"random and frozen; received {kwargs['initializer']!r}. Leave it out, "
                f"or use VQBottleneck."
            )
        super().__init__(
            num_codes,
            commitment_weight=commitment_weight,
            groups=groups,
            seed=seed,
            **kwargs,
        )

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        # Not that of VQBottleneck, which makes a codebook.
        super(VQBottleneck, self).build(input_shape)
        dim, codebooks = self.groups.build(self, self._dim), self.groups.num_codebooks
        self.basis = self.add_weight(
            name="basis",
            shape=(codebooks, self.num_codes, dim),
            initializer=keras.initializers.RandomNormal(0.0, dim**-0.5, self.seed),
            dtype="float32",
            trainable=False,
            autocast=False,
        )
        # The identity per codebook: the basis is random already.
        self.kernel = self.add_weight(
            name="kernel",
            shape=(codebooks, dim, dim),
            initializer=lambda shape, dtype: ops.broadcast_to(
                ops.eye(dim, dtype=dtype), shape
            ),
            dtype="float32",
            autocast=False,
        )

    @property
    def codebook(self) -> tf.Tensor:
        """The codebooks `[C, K, d]`. `C` is 1 unless `groups` has several codebooks."""
        return ops.matmul(self.basis, self.kernel)

    def _read_codebook(self):
        counts = ops.ones((self.groups.num_codebooks, self.num_codes))
        return self.codebook, counts

    @property
    def codebook_weights(self) -> list[keras.Variable]:
        return [self.basis, self.kernel]

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["initializer"]
        return config
