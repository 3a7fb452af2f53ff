"""A start for image models: linear codes from the principal components of patches.

With a discrete bottleneck, the components are distributed over groups, and each group
gets its own k-means. With a VAE, the components are independent Gaussians.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from keras_vqem.layers.bottlenecks.bottleneck import DiscreteBottleneck
from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.gaussian_bottleneck import GaussianBottleneck
from keras_vqem.layers.bottlenecks.groupings import Slices
from keras_vqem.layers.bottlenecks.vqem_bottleneck import VQEMBottleneck
from keras_vqem.layers.patch_compressor import PatchCompressor, to_patches
from keras_vqem.layers.patch_decompressor import PatchDecompressor

# Numbers of vectors and rounds of one k-means: enough for a start that training then
# improves.
VECTORS, ROUNDS = 30_000, 20
# Number of vectors per batch that the moving averages of the codebook start with.
BATCH = 4096


def init_from_patches(
    compressor: PatchCompressor,
    bottleneck: CodebookBottleneck | GaussianBottleneck,
    decompressor: PatchDecompressor,
    images: ArrayLike,
    noise: float,
    seed: int = 0,
) -> None:
    """Sets the weights of three built layers to linear codes of image patches.

    Args:
        compressor: Layer whose linear map becomes the principal components of patches.
        bottleneck: Layer whose codebooks become the centres of k-means, one k-means per
            group of components. A `GaussianBottleneck` becomes the posterior of
            probabilistic PCA.
        decompressor: Layer whose linear map becomes the inverse of the compressor's.
        images: Training images, uint8 `[N, H, W, 3]`.
        noise: Standard deviation of the noise of a pixel, for pixels from -1 to 1; used
            only with a `GaussianBottleneck`.
        seed: Integer seed of k-means.
    """
    groups = bottleneck.groups if isinstance(bottleneck, DiscreteBottleneck) else None
    gaussian = isinstance(bottleneck, GaussianBottleneck)
    nearest = isinstance(bottleneck, CodebookBottleneck)
    if not (
        isinstance(compressor, PatchCompressor)
        and isinstance(decompressor, PatchDecompressor)
        and (gaussian or nearest and type(groups) is Slices)
    ):
        parts = (compressor, decompressor, bottleneck)
        names = ", ".join(type(part).__name__ for part in parts)
        raise ValueError(
            f"A start from patches needs a PatchCompressor, a PatchDecompressor, and "
            f"a bottleneck with one codebook per group: a VQEMBottleneck or a "
            f"VQBottleneck with groups=Slices(n); or a GaussianBottleneck. Received "
            f"{names} with groups={groups!r}."
        )
    if gaussian:
        _init_gaussian(compressor, bottleneck, decompressor, images, noise, seed)
        return
    start = find(
        images,
        compressor.patch_size,
        groups.num_groups,
        bottleneck.num_codes,
        bottleneck.codebook.shape[-1],
        seed,
    )
    inward = start.basis / decompressor.unit
    compressor.linear.set_weights([inward, -start.mean @ inward])
    decompressor.linear.set_weights([start.basis.T, start.mean])
    bottleneck.codebook.assign(start.codebooks / decompressor.unit)
    if isinstance(bottleneck, VQEMBottleneck):
        bottleneck.counts.assign(start.counts)


def _init_gaussian(compressor, bottleneck, decompressor, images, noise, seed):
    kernel, bias = (np.array(w) for w in bottleneck.get_weights())
    latents = len(bias) // 2
    size = min(compressor.code_dim, latents)
    start = find_gaussian(images, compressor.patch_size, size, noise, seed)
    used = len(start.log_variances)
    # The first outputs of the compressor are the means. Its linear map leaves the other
    # outputs at 0, for the network to learn.
    kernel[:used], kernel[:used, :used] = 0.0, np.eye(used)
    bias[latents : latents + used] = start.log_variances
    bottleneck.set_weights([kernel, bias])
    for layer, matrix, shift in (
        (compressor.linear, start.inward, start.inward_bias),
        (decompressor.linear, start.outward / decompressor.unit, start.mean),
    ):
        weights = [np.zeros_like(w) for w in layer.get_weights()]
        weights[0][: matrix.shape[0], : matrix.shape[1]] = matrix
        weights[1][: len(shift)] = shift
        layer.set_weights(weights)


@dataclasses.dataclass
class PatchStart:
    """Linear codes of patches with `P` numbers each.

    Attributes:
        basis: Principal components, float32 `[P, G d]`, `d` columns per group.
        mean: Mean of the patches, float32 `[P]`.
        codebooks: Centres of k-means, float32 `[G, K, d]`.
        counts: Average number of vectors per batch and code, float32 `[G, K]`.
    """

    basis: np.ndarray
    mean: np.ndarray
    codebooks: np.ndarray
    counts: np.ndarray


def find(
    images: ArrayLike,
    patch_size: int,
    num_groups: int,
    num_codes: int,
    size: int,
    seed: int = 0,
) -> PatchStart:
    """Finds linear codes for patches of images.

    Args:
        images: Images, uint8 `[N, H, W, 3]`.
        patch_size: Height and width of a patch.
        num_groups: Number of codes per patch, `G`.
        num_codes: Number of codes per codebook, `K`.
        size: Maximum number of components per group, `d`. Unused ones stay 0.
        seed: Integer seed of k-means.

    Returns:
        A `PatchStart` for pixels from -1 to 1.
    """
    rng = np.random.default_rng(seed)
    patches, mean, variances, vectors = components(images, patch_size, rng)
    groups = deal(variances, num_groups, np.log2(num_codes), size)
    if not all(groups):
        raise ValueError(
            f"{num_groups} codes out of {num_codes} per patch are too many: patches "
            f"of {patch_size} x {patch_size} pixels have too few components for one "
            f"in each group. Use fewer groups, or larger patches."
        )

    basis = np.zeros((patches.shape[1], num_groups * size), "float32")
    codebooks = np.zeros((num_groups, num_codes, size), "float32")
    counts = np.zeros((num_groups, num_codes), "float32")
    for g, members in enumerate(groups):
        basis[:, g * size : g * size + len(members)] = vectors[:, members]
        chosen = rng.choice(len(patches), min(VECTORS, len(patches)), replace=False)
        found, shares = k_means(
            (patches[chosen] - mean) @ vectors[:, members], num_codes, rng
        )
        codebooks[g, :, : len(members)] = found
        counts[g] = shares * BATCH
    return PatchStart(basis, mean.astype("float32"), codebooks, counts)


def components(
    images: ArrayLike, patch_size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Computes the principal components of patches, for pixels from -1 to 1.

    Args:
        images: Images, uint8 `[N, H, W, 3]`.
        patch_size: Height and width of a patch.
        rng: Generator that selects patches, if there are many.

    Returns:
        A tuple `(patches, mean, variances, vectors)`:

        - `patches`: `[M, P]`, all patches or a random part of them.
        - `mean`: `[P]`, the mean of the patches.
        - `variances`: `[P]`, in decreasing order.
        - `vectors`: `[P, P]`, with one component per column.
    """
    patches = np.asarray(
        to_patches(np.asarray(images, "float32") / 127.5 - 1.0, patch_size)
    )
    patches = patches.reshape(-1, patches.shape[-1])
    if len(patches) > 10 * VECTORS:
        patches = patches[rng.choice(len(patches), 10 * VECTORS, replace=False)]
    mean = patches.mean(0)
    variances, vectors = np.linalg.eigh(np.cov(patches - mean, rowvar=False))
    return patches, mean, variances[::-1], vectors[:, ::-1]


@dataclasses.dataclass
class GaussianStart:
    """The optimum of a linear VAE of patches: probabilistic PCA with `n` latents.

    Attributes:
        inward: Matrix `[P, n]` from a patch to the means of the posterior.
        inward_bias: Bias `[n]` of those means.
        log_variances: Log variances `[n]` of the posterior.
        outward: Matrix `[n, P]` from latents back to a patch.
        mean: Bias `[P]` of that patch, the mean of the patches.
    """

    inward: np.ndarray
    inward_bias: np.ndarray
    log_variances: np.ndarray
    outward: np.ndarray
    mean: np.ndarray


def find_gaussian(
    images: ArrayLike, patch_size: int, size: int, noise: float, seed: int = 0
) -> GaussianStart:
    """Finds the optimal linear VAE of patches.

    A component has variance `v`, and is observed as `c` through pixel noise of variance
    `s`. As a latent of variance 1, its posterior has mean `c sqrt(v) / (v + s)` and
    variance `s / (v + s)`.

    Args:
        images: Images, uint8 `[N, H, W, 3]`.
        patch_size: Height and width of a patch.
        size: Maximum number of latents.
        noise: Standard deviation of the noise of a pixel, for pixels from -1 to 1.
        seed: Integer seed that selects patches, if there are many.

    Returns:
        A `GaussianStart` for pixels from -1 to 1.
    """
    rng = np.random.default_rng(seed)
    _, mean, variances, vectors = components(images, patch_size, rng)
    vectors, variances = vectors[:, :size], variances[:size]
    variances = np.maximum(variances - noise**2, 0.0)  # without the noise
    total = variances + noise**2
    inward = vectors * np.sqrt(variances) / total
    return GaussianStart(
        inward,
        -mean @ inward,
        np.log(noise**2 / total),
        (vectors * np.sqrt(variances)).T,
        mean,
    )


def deal(
    variances: np.ndarray, num_groups: int, bits: float, size: int
) -> list[list[int]]:
    """Distributes components over groups that need about the same number of bits.

    To code a component of variance `v` with mean squared error `D` takes
    `log2(v / D) / 2` bits. `D` is the same for all components, and is chosen so that
    they use exactly the bits of all groups together (reverse water-filling). Components
    whose variance is below `D` are left out.

    Args:
        variances: Variances `[P]` of the components, in decreasing order.
        num_groups: Number of groups.
        bits: Number of bits per group.
        size: Maximum number of components per group.

    Returns:
        List of groups, each a list of the indices of its components.
    """
    variances = np.maximum(variances, 1e-12)

    def needs(log_error):
        return np.maximum(0.5 * (np.log2(variances) - log_error), 0.0)

    low, high = np.log2(variances[-1]) - 2.0 * bits * num_groups, np.log2(variances[0])
    for _ in range(100):
        middle = (low + high) / 2
        too_much = needs(middle).sum() > num_groups * bits
        low, high = (middle, high) if too_much else (low, middle)
    needed = needs(high)
    groups, load = [[] for _ in range(num_groups)], np.zeros(num_groups)
    for component in np.flatnonzero(needed):
        room = np.array([len(group) < size for group in groups])
        if not room.any():
            break
        g = int(np.argmin(np.where(room, load, np.inf)))
        groups[g].append(int(component))
        load[g] += needed[component]
    return groups


def k_means(
    vectors: np.ndarray, num_codes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Runs Lloyd's k-means.

    Args:
        vectors: Vectors `[N, d]`.
        num_codes: Number of centres, `K`.
        rng: Generator that selects the vectors to start from.

    Returns:
        A tuple `(centres, shares)`: the centres `[K, d]`, and the fraction of the
        vectors assigned to each, `[K]`.
    """
    vectors = vectors.astype("float32")
    places = rng.choice(len(vectors), num_codes, replace=len(vectors) < num_codes)
    centres = vectors[places]
    for _ in range(ROUNDS):
        codes = np.argmax(
            vectors @ centres.T - 0.5 * np.square(centres).sum(-1), axis=-1
        )
        counts = np.bincount(codes, minlength=num_codes)
        sums = np.stack(
            [np.bincount(codes, column, num_codes) for column in vectors.T], axis=-1
        )
        # A centre without vectors starts again from a random vector.
        fresh = vectors[rng.choice(len(vectors), num_codes)]
        centres = np.where(
            counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], fresh
        ).astype("float32")
    return centres, counts / len(vectors)
