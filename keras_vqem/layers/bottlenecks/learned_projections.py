"""LearnedProjections: a grouping whose way in and out of the codes is learned."""

import keras
import tensorflow as tf
from keras import ops

from keras_vqem.layers.bottlenecks.groupings import ProjectedSlices


@keras.saving.register_keras_serializable(package="keras_vqem")
class LearnedProjections(ProjectedSlices):
    """Codes of learned projections, for a codebook of smaller vectors.

    A trainable linear map with a bias turns each vector into `num_groups` projections
    of size `dim`, each with its own codebook; another one turns the quantized
    projections back into a vector of the size of the inputs. The map back is part of
    `decode`. It learns from the gradient of `quantized`; the first map learns from what
    passes through the codes, and from the commitment loss.

    The reference projects vectors of size 768 to 32 or 8 numbers, and reports that more
    codes are in use.

    Args:
        num_groups: Number of projections, and of codes per vector. None for a single
            code per vector: codes then have the shape `[...]` instead of `[..., 1]`.
        dim: Size of each projection. None for the size of the vectors divided by the
            number of projections.
        seed: Integer seed of the first values of both maps.

    Example:

    >>> layer = keras_vqem.layers.VQEMBottleneck(
    ...     64, groups=keras_vqem.layers.LearnedProjections(dim=8))
    >>> outputs = layer(np.ones((2, 5, 32), "float32"))
    >>> outputs["quantized"].shape, outputs["codes"].shape, layer.codebook.shape
    (TensorShape([2, 5, 32]), TensorShape([2, 5]), TensorShape([1, 64, 8]))

    References:
        - Yu et al., 2021. Vector-quantized Image Modeling with Improved VQGAN.
          arXiv:2110.04627.
    """

    learned = True

    def build(self, layer: keras.layers.Layer, dim: int) -> int:
        size = self.num_groups * super().build(layer, dim)

        def add_map(name, seed, *shape):
            return [
                layer.add_weight(
                    name=f"{name}_{part}",
                    shape=part_shape,
                    initializer=initializer,
                    dtype="float32",
                    autocast=False,
                )
                for part, part_shape, initializer in (
                    ("kernel", shape, keras.initializers.GlorotUniform(seed=seed)),
                    ("bias", shape[-1:], "zeros"),
                )
            ]

        self._inward = add_map("inward", self.seed, dim, size)
        self._outward = add_map("outward", self.seed + 1, size, dim)
        return self._dim

    def split(self, rows: tf.Tensor) -> tf.Tensor:
        kernel, bias = self._inward
        return super().split(ops.matmul(rows, kernel) + bias)

    def merge(self, pieces: tf.Tensor) -> tf.Tensor:
        kernel, bias = self._outward
        return ops.matmul(super().merge(pieces), kernel) + bias
