"""Linear codes of patches to start from: their principal components.

With codes, components are dealt into groups and each group gets k-means of its own. For
a VAE they are independent Gaussians.
"""

import dataclasses

import numpy as np

from keras_vqem.layers.bottlenecks.bottleneck import DiscreteBottleneck
from keras_vqem.layers.bottlenecks.codebook_bottleneck import CodebookBottleneck
from keras_vqem.layers.bottlenecks.gaussian_bottleneck import GaussianBottleneck
from keras_vqem.layers.bottlenecks.groupings import Slices
from keras_vqem.layers.bottlenecks.vqem_bottleneck import VQEMBottleneck
from keras_vqem.layers.patch_compressor import PatchCompressor, to_patches
from keras_vqem.layers.patch_decompressor import PatchDecompressor

# Of one k-means: enough for a start that training improves on.
VECTORS, ROUNDS = 30_000, 20
# What the moving averages of the codebook start with, in vectors of a batch.
BATCH = 4096


def init_from_patches(
    compressor: PatchCompressor,
    bottleneck: CodebookBottleneck | GaussianBottleneck,
    decompressor: PatchDecompressor,
    images,
    noise: float,
    seed: int = 0,
):
    """Gives three built layers a start from patches of images.

    Args:
        compressor: Its linear path becomes the principal components of patches.
        bottleneck: Its codebooks become k-means of groups of components; a
            `GaussianBottleneck` becomes that of probabilistic PCA.
        decompressor: Its linear path undoes the compressor's.
        images: uint8 [N, H, W, 3].
        noise: Standard deviation of a pixel's noise, where pixels go from -1 to 1; for
            a `GaussianBottleneck`.
        seed: Seed of k-means.
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
            f"Starting from patches needs a PatchCompressor, a PatchDecompressor "
            f"and a codebook for each group, a VQEMBottleneck or VQBottleneck with "
            f"groups=Slices(n); or a GaussianBottleneck. Received {names} with "
            f"groups {groups!r}."
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
    # The compressor's first outputs are the means; what the others will be is for
    # the network to find.
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
    """`basis` [P, G d] and `mean` [P] of patches; `codebooks` [G, K, d], `counts`."""

    basis: np.ndarray
    mean: np.ndarray
    codebooks: np.ndarray
    counts: np.ndarray


def find(images, patch_size, num_groups, num_codes, size, seed=0):
    """Finds the code for patches of images.

    Args:
        images: uint8 [N, H, W, 3].
        patch_size: Height and width of a patch.
        num_groups: G, how many codes a patch gets.
        num_codes: K, the size of each codebook.
        size: d, how many components a group may have; what is not used stays 0.
        seed: Of k-means.

    Returns:
        A `PatchStart`, for pixels from -1 to 1.
    """
    rng = np.random.default_rng(seed)
    patches, mean, variances, vectors = components(images, patch_size, rng)
    groups = deal(variances, num_groups, np.log2(num_codes), size)
    if not all(groups):
        raise ValueError(
            f"{num_groups} codes out of {num_codes} are more than patches of "
            f"{patch_size} x {patch_size} have components for. Use fewer "
            f"groups, or larger patches."
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


def components(images, patch_size, rng):
    """Principal components of patches, for pixels from -1 to 1.

    Returns:
        Patches [N, P], some if there are many; their mean [P]; the variances [P], from
        the largest to the smallest; and the components [P, P], a column each.
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
    """What the linear model of a VAE is at its optimum: probabilistic PCA.

    `inward` [P, n] and `inward_bias` give the means of the n latents' posteriors,
    `log_variances` [n] are theirs; `outward` [n, P] and `mean` [P] the patch again.
    """

    inward: np.ndarray
    inward_bias: np.ndarray
    log_variances: np.ndarray
    outward: np.ndarray
    mean: np.ndarray


def find_gaussian(images, patch_size, size, noise, seed=0):
    """Finds the linear VAE of patches.

    A component of variance v, seen as c through pixel noise of variance s, is a latent
    of variance 1 whose posterior has the mean c sqrt(v) / (v + s) and the variance
    s / (v + s).

    Args:
        images: uint8 [N, H, W, 3].
        patch_size: Height and width of a patch.
        size: How many latents there may be.
        noise: Standard deviation of a pixel's noise, where pixels go from -1 to 1.
        seed: Which patches are taken, if there are many.
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


def deal(variances, num_groups, bits, size):
    """Deals components to groups so that each has about as much to tell.

    A component of variance v needs log2(v / D) / 2 bits to be told with an error D,
    the same for all; D is such that all groups' bits together are just used up
    (reverse water-filling). Components below D are not told at all.

    Args:
        variances: [P], from the largest to the smallest.
        num_groups: How many groups.
        bits: Of one group.
        size: How many components a group may have.

    Returns:
        A list of lists of components.
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


def k_means(vectors, num_codes, rng):
    """Lloyd's k-means.

    Returns:
        The centres [K, d], and the share of the vectors that each got [K].
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
        # A centre that got nothing starts anew from a vector.
        fresh = vectors[rng.choice(len(vectors), num_codes)]
        centres = np.where(
            counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], fresh
        ).astype("float32")
    return centres, counts / len(vectors)
