"""Keras layers, with one public class per file, named after the class."""

from keras_vqem.layers.bottlenecks.averages import (
    MovingAverages,
    PaperAverages,
    ReferenceAverages,
)
from keras_vqem.layers.bottlenecks.bottleneck import DiscreteBottleneck
from keras_vqem.layers.bottlenecks.commitments import NormCommitment, SquaredCommitment
from keras_vqem.layers.bottlenecks.draws import Draws
from keras_vqem.layers.bottlenecks.finite_scalar_bottleneck import (
    FiniteScalarBottleneck,
)
from keras_vqem.layers.bottlenecks.gaussian_bottleneck import GaussianBottleneck
from keras_vqem.layers.bottlenecks.gradients import RotationTrick, StraightThrough
from keras_vqem.layers.bottlenecks.groupings import Projections, SharedSlices, Slices
from keras_vqem.layers.bottlenecks.gumbel_softmax_bottleneck import (
    GumbelSoftmaxBottleneck,
)
from keras_vqem.layers.bottlenecks.learned_prior_vqem_bottleneck import (
    LearnedPriorVQEMBottleneck,
)
from keras_vqem.layers.bottlenecks.learned_projections import LearnedProjections
from keras_vqem.layers.bottlenecks.lookup_free_bottleneck import LookupFreeBottleneck
from keras_vqem.layers.bottlenecks.penalties import AssignmentEntropy, OrthogonalCodes
from keras_vqem.layers.bottlenecks.random_projection_bottleneck import (
    RandomProjectionBottleneck,
)
from keras_vqem.layers.bottlenecks.residual_bottleneck import ResidualBottleneck
from keras_vqem.layers.bottlenecks.semantic_hashing_bottleneck import (
    SemanticHashingBottleneck,
)
from keras_vqem.layers.bottlenecks.sim_vq_bottleneck import SimVQBottleneck
from keras_vqem.layers.bottlenecks.similarities import Cosine, Euclidean
from keras_vqem.layers.bottlenecks.vq_bottleneck import VQBottleneck
from keras_vqem.layers.bottlenecks.vqem_bottleneck import VQEMBottleneck
from keras_vqem.layers.cached_attention import CachedAttention
from keras_vqem.layers.ctc_alignment import ctc_alignment
from keras_vqem.layers.ctc_loss import ctc_loss
from keras_vqem.layers.feed_forward import FeedForward
from keras_vqem.layers.image_compressor import ImageCompressor
from keras_vqem.layers.image_decompressor import ImageDecompressor
from keras_vqem.layers.likelihoods.categorical_pixels import CategoricalPixels
from keras_vqem.layers.likelihoods.grouped_pixels import GroupedPixels
from keras_vqem.layers.likelihoods.logistic_mixture import LogisticMixture
from keras_vqem.layers.local_attention import LocalAttention
from keras_vqem.layers.local_transformer import LocalTransformer
from keras_vqem.layers.patch_compressor import PatchCompressor
from keras_vqem.layers.patch_decompressor import PatchDecompressor
from keras_vqem.layers.replica_dropout import ReplicaDropout
from keras_vqem.layers.sequence_compressor import SequenceCompressor
from keras_vqem.layers.sequence_decompressor import SequenceDecompressor
from keras_vqem.layers.tied_embedding import TiedEmbedding
from keras_vqem.layers.transformer_decoder import TransformerDecoder
from keras_vqem.layers.transformer_encoder import TransformerEncoder

__all__ = [
    "AssignmentEntropy",
    "CachedAttention",
    "CategoricalPixels",
    "Cosine",
    "DiscreteBottleneck",
    "Draws",
    "Euclidean",
    "FeedForward",
    "FiniteScalarBottleneck",
    "GaussianBottleneck",
    "GroupedPixels",
    "GumbelSoftmaxBottleneck",
    "ImageCompressor",
    "ImageDecompressor",
    "LearnedPriorVQEMBottleneck",
    "LearnedProjections",
    "LocalAttention",
    "LocalTransformer",
    "LogisticMixture",
    "LookupFreeBottleneck",
    "MovingAverages",
    "NormCommitment",
    "OrthogonalCodes",
    "PaperAverages",
    "PatchCompressor",
    "PatchDecompressor",
    "Projections",
    "RandomProjectionBottleneck",
    "ReferenceAverages",
    "ReplicaDropout",
    "ResidualBottleneck",
    "RotationTrick",
    "SemanticHashingBottleneck",
    "SequenceCompressor",
    "SequenceDecompressor",
    "SharedSlices",
    "SimVQBottleneck",
    "Slices",
    "SquaredCommitment",
    "StraightThrough",
    "TiedEmbedding",
    "TransformerDecoder",
    "TransformerEncoder",
    "VQBottleneck",
    "VQEMBottleneck",
    "ctc_alignment",
    "ctc_loss",
]
