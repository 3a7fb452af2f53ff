"""RandomProjectionBottleneck: codes of random projections, as in BEST-RQ."""

from typing import Any

import keras
from keras import ops

from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.groupings import Projections
from keras_vqem.layers.bottlenecks.similarities import unit_vectors


@keras.saving.register_keras_serializable(package="keras_vqem")
class RandomProjectionBottleneck(CodebookBottleneck):
    """Codes of random projections, for self-supervised learning as in BEST-RQ.

    A frozen random frame projects each vector to `code_dim` numbers. Its code is that
    of the frozen random unit vector that has the most similar direction. Nothing is
    learned, and there is no loss: the codes of the raw inputs, such as frames of
    speech, are labels that a model learns to predict where its inputs are masked.
    Different seeds give different labels for the same inputs.

    Normalise the inputs to mean 0 and variance 1 per number, for example with
    `keras.layers.Normalization`. Otherwise a large mean decides all codes.

    `quantized`, the chosen unit vectors in the space of the inputs, is there because
    every bottleneck has it: its length says nothing about that of the inputs.

    The metrics are those of `VQEMBottleneck`.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        code_dim: Size of the projections.
        groups: Number of projections with a codebook each, and of codes per vector.
            None for one projection, and codes without an axis for them. The projections
            are orthogonal: `groups * code_dim` must not exceed the size of vectors.
        seed: Integer seed of frame and codebook.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[..., D]`.
        mask: Booleans `[...]`, False for vectors to leave out of the metrics.
        training: True or False updates metrics; None does not. The output is the same.
        prior_logits: Logits of a prior over codes; see `VQBottleneck`.

    Returns:
        The dict of `VQBottleneck`.

    Example:

    >>> layer = keras_vqem.layers.RandomProjectionBottleneck(8192, groups=2)
    >>> frames = np.random.default_rng(0).normal(size=(4, 100, 320)).astype("float32")
    >>> layer.encode(frames).shape, layer.trainable_weights
    (TensorShape([4, 100, 2]), [])

    References:
        - Chiu, Qin, Zhang, Yu, Wu, 2022. Self-supervised Learning with
          Random-projection Quantizer for Speech Recognition. arXiv:2202.01855.
    """

    def __init__(
        self,
        num_codes: int,
        code_dim: int = 16,
        groups: int | None = None,
        seed: int = 0,
        **kwargs: Any,
    ):
        if groups is not None:
            groups = whole_number("groups", groups, 1, "Use None for a single code.")
        code_dim = whole_number("code_dim", code_dim, 1)
        super().__init__(
            num_codes,
            commitment_weight=0.0,
            groups=Projections(groups, dim=code_dim, seed=seed),
            similarity="cosine",
            **kwargs,
        )
        self.code_dim = code_dim
        self.seed = seed

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        dim = self.groups.build(self, self._dim)
        # Another seed than the frame's, so that one does not depend on the other.
        normal = keras.initializers.RandomNormal(stddev=1.0, seed=self.seed + 1)
        self.codebook = self.add_weight(
            name="codebook",
            shape=(self.groups.num_codebooks, self.num_codes, dim),
            initializer=lambda shape, dtype: unit_vectors(normal(shape, dtype)),
            dtype="float32",
            trainable=False,
            autocast=False,
        )

    def _read_codebook(self):
        counts = ops.ones((self.groups.num_codebooks, self.num_codes))
        return ops.convert_to_tensor(self.codebook), counts

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name in ("commitment_weight", "similarity", "gradient"):
            del config[name]
        config["groups"] = self.groups.get_config()["num_groups"]
        return {**config, "code_dim": self.code_dim, "seed": self.seed}
