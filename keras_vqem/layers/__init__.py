"""Keras layers: one public class a file, the file named after it."""

from keras_vqem.layers.bottlenecks.gaussian_bottleneck import GaussianBottleneck
from keras_vqem.layers.bottlenecks.groupings import Projections, SharedSlices, Slices
from keras_vqem.layers.bottlenecks.gumbel_softmax_bottleneck import (
    GumbelSoftmaxBottleneck,
)
from keras_vqem.layers.bottlenecks.semantic_hashing_bottleneck import (
    SemanticHashingBottleneck,
)
from keras_vqem.layers.bottlenecks.vq_bottleneck import VQBottleneck
from keras_vqem.layers.bottlenecks.vqem_bottleneck import VQEMBottleneck

__all__ = [
    "GaussianBottleneck",
    "GumbelSoftmaxBottleneck",
    "Projections",
    "SemanticHashingBottleneck",
    "SharedSlices",
    "Slices",
    "VQBottleneck",
    "VQEMBottleneck",
]
