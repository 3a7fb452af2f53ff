"""Quantizers of compare_bottlenecks.py and of benchmark_bottleneck.py.

`QUANTIZERS` is the table: a new row is all that a new quantizer needs. Each row has a
label and a function `(dim, num_codes, steps, seed)` that makes the layer, for vectors
of size `dim`, about `num_codes` different codes per vector and a run of `steps` steps.
Rows with `peer=True` make modules of vector-quantize-pytorch, which run in the
environment of the peers. A peer has the settings of the row above it; where that
library starts codebooks by k-means only, this is in its label.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

COMMITMENT_WEIGHT = 0.25
KERAS = ("keras-vqem", "keras", "tensorflow")
TORCH = ("vector-quantize-pytorch", "torch")


class Quantizer(NamedTuple):
    label: str
    make: Callable  # (dim, num_codes, steps, seed) -> layer
    peer: bool = False


def decay(steps):
    """Returns a decay of moving averages that remember about a tenth of the run."""
    return min(0.999, max(0.9, 1 - 10 / steps))


def levels(num_codes):
    """Returns numbers of levels, at least 5 if possible, of about `num_codes` codes."""
    found = []
    for left in range(max(1, int(math.log(num_codes, 5))), 0, -1):
        found.append(round((num_codes / math.prod(found)) ** (1 / left)))
    return tuple(found)


def em(dim, num_codes, steps, seed, **options):
    from keras_vqem.layers import VQEMBottleneck

    return VQEMBottleneck(num_codes, decay=decay(steps), seed=seed, **options)


def soft_em(dim, num_codes, steps, seed, num_samples):
    import keras

    temperature = keras.optimizers.schedules.ExponentialDecay(0.3, steps, 0.01)
    options = {"num_samples": num_samples, "temperature": temperature}
    return em(dim, num_codes, steps, seed, **options)


def em_product(dim, num_codes, steps, seed):
    """Two codebooks of sqrt(K) codes: as many combinations as one of K codes has."""
    return em(dim, math.isqrt(num_codes), steps, seed, groups=2)


def em_residual(dim, num_codes, steps, seed):
    from keras_vqem.layers import ResidualBottleneck

    return ResidualBottleneck(em(dim, math.isqrt(num_codes), steps, seed), 2)


def em_projected(dim, num_codes, steps, seed):
    from keras_vqem.layers import LearnedProjections

    groups = LearnedProjections(dim=dim // 4, seed=seed)
    return em(dim, num_codes, steps, seed, groups=groups)


def vq(dim, num_codes, steps, seed, **options):
    from keras_vqem.layers import VQBottleneck

    return VQBottleneck(num_codes, **options)


def sim_vq(dim, num_codes, steps, seed):
    from keras_vqem.layers import SimVQBottleneck

    return SimVQBottleneck(num_codes, seed=seed)


def finite_scalar(dim, num_codes, steps, seed):
    from keras_vqem.layers import FiniteScalarBottleneck

    return FiniteScalarBottleneck(levels(num_codes))


def lookup_free(dim, num_codes, steps, seed):
    from keras_vqem.layers import LookupFreeBottleneck

    return LookupFreeBottleneck(round(math.log2(num_codes)))


def gumbel(dim, num_codes, steps, seed):
    import keras

    from keras_vqem.layers import GumbelSoftmaxBottleneck

    temperature = keras.optimizers.schedules.PolynomialDecay(1.2, steps, 0.2)
    return GumbelSoftmaxBottleneck(
        num_codes, temperature=temperature, kl_weight=0.0, seed=seed
    )


def semantic_hashing(dim, num_codes, steps, seed):
    import keras

    from keras_vqem.layers import SemanticHashingBottleneck

    rate = keras.optimizers.schedules.PolynomialDecay(0.0, max(steps // 2, 1), 0.5)
    bits = round(math.log2(num_codes))
    return SemanticHashingBottleneck(bits, discrete_rate=rate, seed=seed)


def peer_vq(dim, num_codes, steps, seed, kind="VectorQuantize", **options):
    import vector_quantize_pytorch

    defaults = {"decay": decay(steps), "threshold_ema_dead_code": 0}
    return getattr(vector_quantize_pytorch, kind)(
        dim=dim,
        codebook_size=num_codes,
        commitment_weight=COMMITMENT_WEIGHT,
        **defaults | {"rotation_trick": False} | options,
    )


def peer_product(dim, num_codes, steps, seed):
    options = {"heads": 2, "codebook_dim": dim // 2, "separate_codebook_per_head": True}
    codes = math.isqrt(num_codes)
    return peer_vq(dim, codes, steps, seed, kmeans_init=True, **options)


def peer_residual(dim, num_codes, steps, seed):
    options = {"kind": "ResidualVQ", "num_quantizers": 2, "kmeans_init": True}
    return peer_vq(dim, math.isqrt(num_codes), steps, seed, **options)


def peer_projected(dim, num_codes, steps, seed):
    options = {"codebook_dim": dim // 4, "kmeans_init": True}
    return peer_vq(dim, num_codes, steps, seed, **options)


def peer_sim_vq(dim, num_codes, steps, seed):
    from vector_quantize_pytorch import SimVQ

    return SimVQ(
        dim=dim,
        codebook_size=num_codes,
        rotation_trick=False,
        input_to_quantize_commit_loss_weight=COMMITMENT_WEIGHT,
    )


def peer_finite_scalar(dim, num_codes, steps, seed):
    from vector_quantize_pytorch import FSQ

    return FSQ(levels(num_codes), dim=dim, preserve_symmetry=True)


def peer_lookup_free(dim, num_codes, steps, seed):
    from vector_quantize_pytorch import LFQ

    num_codes = 2 ** round(math.log2(num_codes))
    options = {"commitment_loss_weight": COMMITMENT_WEIGHT}
    return LFQ(dim=dim, codebook_size=num_codes, **options)


def ours(label, make, **options):
    return Quantizer(label, functools.partial(make, **options))


def peer(label, make, **options):
    label = f"vector-quantize-pytorch, {label}"
    return Quantizer(label, functools.partial(make, **options), peer=True)


KMEANS = {"kmeans_init": True}
LEARNED = {"learnable_codebook": True, "ema_update": False}
# In the order of the rows of the table, each peer below its counterpart.
QUANTIZERS = {
    "hard_em": ours("hard EM", em),
    "hard_em_kmeans": ours("hard EM, k-means start", em, initializer="kmeans"),
    "vqp_ema": peer("EMA, k-means start", peer_vq, **KMEANS),
    "hard_em_revival": ours("hard EM, dead codes moved", em, dead_code_threshold=0.05),
    "vqp_revival": peer(
        "EMA, k-means start, dead codes moved",
        peer_vq,
        threshold_ema_dead_code=2,
        **KMEANS,
    ),
    "soft_em": ours("soft EM, 10 draws", soft_em, num_samples=10),
    "exact_em": ours("soft EM, exact", soft_em, num_samples="exact"),
    "cosine": ours("hard EM, cosine", em, similarity="cosine"),
    "vqp_cosine": peer(
        "EMA, k-means start, cosine", peer_vq, use_cosine_sim=True, **KMEANS
    ),
    "projected": ours("hard EM, learned projection to a quarter", em_projected),
    "vqp_projected": peer("EMA, k-means start, codebook_dim", peer_projected),
    "product": ours("hard EM, product of 2 codebooks", em_product),
    "vqp_product": peer("EMA, k-means start, 2 heads", peer_product),
    "residual": ours("hard EM, 2 residual levels", em_residual),
    "vqp_residual": peer("ResidualVQ, k-means start", peer_residual),
    "vq": ours("VQ, by gradient", vq),
    "vqp_learned": peer("by gradient", peer_vq, **LEARNED),
    "vq_rotation": ours("VQ, by gradient, rotation trick", vq, gradient="rotation"),
    "vqp_learned_rotation": peer(
        "by gradient, rotation trick", peer_vq, rotation_trick=True, **LEARNED
    ),
    "sim_vq": ours("SimVQ", sim_vq),
    "vqp_sim_vq": peer("SimVQ", peer_sim_vq),
    "finite_scalar": ours("finite scalar (FSQ)", finite_scalar),
    "vqp_finite_scalar": peer("FSQ", peer_finite_scalar),
    "lookup_free": ours("lookup-free (LFQ)", lookup_free),
    "vqp_lookup_free": peer("LFQ", peer_lookup_free),
    "gumbel": ours("Gumbel-Softmax", gumbel),
    "semantic_hashing": ours("semantic hashing", semantic_hashing),
}


def torch_call(layer, vectors):
    """Returns quantized vectors, codes and loss of a module of the peers."""
    # Finite scalar quantization returns no loss.
    quantized, codes, *losses = layer(vectors)
    return quantized, codes, sum(loss.sum() for loss in losses)
