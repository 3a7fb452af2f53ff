"""VQBottleneck: the original VQ-VAE, whose codebook is learned by gradient."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vqem.layers.bottlenecks import penalties as penalty_objects
from keras_vqem.layers.bottlenecks import starts
from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.commitments import SquaredCommitment
from keras_vqem.layers.bottlenecks.gradients import StraightThrough
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.layers.bottlenecks.similarities import Euclidean
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

    `penalties` are added to it. The metrics are those of `VQEMBottleneck`.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        commitment_weight: Weight of the second term of the loss; beta in the paper. Or
            a commitment of another form, such as `keras_vqem.layers.NormCommitment`.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`.
        initializer: Keras initializer of the codebook. None stands for the uniform
            distribution between `-1 / K` and `1 / K` of the original VQ-VAE. `"data"`
            and `"kmeans"` start from training batches, as in `VQEMBottleneck`.
        similarity: `"euclidean"`, `"cosine"`, or a similarity; see `VQEMBottleneck`.
        gradient: `"straight_through"`, `"rotation"` for the rotation trick, or a
            gradient estimator, such as `keras_vqem.layers.RotationTrick()`.
        penalties: Penalty or list of penalties to add to the loss, such as
            `keras_vqem.layers.OrthogonalCodes()` and
            `keras_vqem.layers.AssignmentEntropy()`.
        seed: Integer seed of `"data"`, `"kmeans"`, `adapt` and `sample`. None draws one
            at random.
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
        commitment_weight: float | SquaredCommitment = 0.25,
        groups: int | Whole | None = None,
        initializer: keras.initializers.Initializer | str | None = None,
        similarity: str | Euclidean = "euclidean",
        gradient: str | StraightThrough = "straight_through",
        penalties: penalty_objects.Penalty | Sequence[penalty_objects.Penalty] = (),
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            num_codes,
            commitment_weight=commitment_weight,
            groups=groups,
            similarity=similarity,
            gradient=gradient,
            **kwargs,
        )
        if initializer is None:
            initializer = keras.initializers.RandomUniform(
                -1 / num_codes, 1 / num_codes
            )
        self.initializer = starts.get(initializer)
        self._waits = self.initializer in starts.FROM_DATA
        self.penalties = penalty_objects.get(penalties)
        self.seed = seed
        self.seed_generator = ReplicaSeedGenerator(seed)
        if self._waits:
            # All replicas must draw the same numbers.
            self.start_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        super().build(input_shape)
        dim = self.groups.build(self, self._dim)
        shape = (self.groups.num_codebooks, self.num_codes)
        self.codebook = self.add_weight(
            name="codebook",
            shape=(*shape, dim),
            initializer="zeros" if self._waits else self.initializer,
            dtype="float32",
            autocast=False,
        )
        if self._waits:
            # Above 0 for codes that have a vector.
            self.placed = self.add_weight(
                name="placed",
                shape=shape,
                initializer="zeros",
                dtype="float32",
                trainable=False,
                autocast=False,
                aggregation="only_first_replica",
            )

    @property
    def counts(self) -> keras.Variable | None:
        """Numbers `[C, K]`, 0 for codes that wait for data; None if none can wait."""
        return self.placed if self._waits else None

    @property
    def codebook_weights(self) -> list[keras.Variable]:
        return [self.codebook, *([self.placed] if self._waits else [])]

    def _read_codebook(self):
        if self._waits:
            counts = ops.convert_to_tensor(self.placed)
        else:
            counts = ops.ones((self.groups.num_codebooks, self.num_codes))
        return ops.convert_to_tensor(self.codebook), counts

    def _begin_step(self, pieces, keep, per_replica, learning):
        vectors, counts = self._read_codebook()
        if not (learning and self._waits):
            return vectors, counts
        kmeans = self.initializer == "kmeans"
        found, counts = starts.give_places(
            ops.stop_gradient(vectors),
            counts,
            pieces,
            keep,
            per_replica,
            generator=self.start_generator,
            by_kmeans=self.similarity.prepare if kmeans else None,
        )
        # The optimizer goes on from here; the gradient is that of the weight.
        self._adopt(found, counts)
        return ops.stop_gradient(found) + (vectors - ops.stop_gradient(vectors)), counts

    def _adopt(self, centres, counts):
        self.codebook.assign(centres)
        if self._waits:
            self.placed.assign(ops.cast(counts > 0, "float32"))

    def _loss(self, pieces, quantized, keep, total):
        errors = ops.mean(ops.square(ops.stop_gradient(pieces) - quantized), axis=-1)
        to_codebook = self._mean_over_rows(errors, keep, total)
        return to_codebook + super()._loss(pieces, quantized, keep, total)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "initializer": starts.serialize(self.initializer),
            "penalties": [
                keras.saving.serialize_keras_object(x) for x in self.penalties
            ],
            "seed": self.seed,
        }
