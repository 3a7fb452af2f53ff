"""Bits per dimension of images that are sent as codes: a bound, and its parts.

An image can be sent as its codes, followed by the pixels given the codes:

    bits = -log2 p(codes) - log2 p(image | codes)

where the codes are the nearest ones. This is an upper bound of -log2 p(image) for any
codes and any prior. The accounting of the paper (soft labels for the prior, their mean
for the decoder) is not a bound; `paper_accounting` computes it for comparison.
"""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from keras import ops

from keras_vqem.evaluation import codes as code_counts
from keras_vqem.evaluation.image_priors import PredictorPrior as PredictorPrior
from keras_vqem.evaluation.image_priors import Prior as Prior
from keras_vqem.evaluation.image_priors import UniformPrior as UniformPrior
from keras_vqem.evaluation.image_priors import UnigramPrior as UnigramPrior
from keras_vqem.evaluation.image_quality import psnr
from keras_vqem.layers.bottlenecks.code_metrics import perplexity
from keras_vqem.models import GridTransformer, ImageVAE, ImageVQVAE


@dataclasses.dataclass(frozen=True)
class ImageBits:
    """Bits per dimension and other means over images.

    Attributes:
        total: Bits per dimension, the sum of `reconstruction` and `prior`.
        reconstruction: Bits per dimension of the pixels given the codes.
        prior: Bits per dimension of the codes.
        psnr: Peak signal-to-noise ratio of the expected image, in dB.
        perplexity: Perplexity of the codes, the mean over slots.
        used: Share of the codebook that occurs at all, from 0 to 1.
        images: Number of images measured.
    """

    total: float
    reconstruction: float
    prior: float
    psnr: float
    perplexity: float
    used: float
    images: int


def encode(
    model: ImageVQVAE,
    images: np.ndarray,
    batch_size: int = 100,
    log: Callable[[str], None] | None = None,
) -> np.ndarray:
    """Returns the codes of images.

    Args:
        model: A `keras_vqem.models.ImageVQVAE`.
        images: uint8 array `[N, H, W, 3]`.
        batch_size: Number of images per batch.
        log: Function that takes a line of progress about every ten seconds, or None.

    Returns:
        Array `[N, rows, columns, slots]`: uint8 if the codebook has at most 256 codes,
        int32 otherwise.
    """
    return _codes_of_parts(tf.function(model.encode), model, images, batch_size, log)


def draw(
    model: ImageVQVAE,
    images: np.ndarray,
    num_samples: int,
    seed: int = 0,
    batch_size: int = 100,
    log: Callable[[str], None] | None = None,
) -> np.ndarray:
    """Draws codes of images from their posteriors, for soft labels of a prior.

    Args:
        model: A `keras_vqem.models.ImageVQVAE` whose bottleneck draws samples.
        images: uint8 array `[N, H, W, 3]`.
        num_samples: Number of draws per code.
        seed: Seed of the draws.
        batch_size: Number of images per batch.
        log: Function that takes a line of progress about every ten seconds, or None.

    Returns:
        Array `[N, rows, columns, slots, num_samples]` with the dtype of `encode`.
    """
    graph = tf.function(lambda part: _draws(model, part, num_samples))
    with _seeded(model.bottleneck, seed):
        return _codes_of_parts(graph, model, images, batch_size, log)


def _draws(model, images, num_samples):
    """Draws for images, [B, rows, columns, slots, num_samples]."""
    compressed = model.compressed(images)
    samples = model.bottleneck.sample(compressed, num_samples)
    rows, columns = compressed.shape[1:3]
    return ops.reshape(samples, (-1, rows, columns, samples.shape[-2], num_samples))


@contextlib.contextmanager
def _seeded(bottleneck, seed):
    """Draws in this context depend on the seed alone; those after it do not."""
    state = bottleneck.seed_generator.state
    before = state.numpy()
    state.assign([seed, 0])
    try:
        yield
    finally:
        state.assign(before)


def _codes_of_parts(graph, model, images, batch_size, log):
    dtype = "uint8" if model.bottleneck.num_codes <= 256 else "int32"
    found, shown = [], time.monotonic()
    for part in parts(images, batch_size):
        found.append(np.asarray(graph(part)).astype(dtype))
        if log is not None and time.monotonic() - shown >= 10:
            shown = time.monotonic()
            done = batch_size * len(found)
            log(f"{min(done, len(images)):,} of {len(images):,} images encoded")
    return np.concatenate(found)


def evaluate(
    model: ImageVQVAE,
    images: np.ndarray,
    prior: Prior,
    batch_size: int = 100,
    labels: np.ndarray | None = None,
) -> ImageBits:
    """Measures an autoencoder with codes.

    Args:
        model: A `keras_vqem.models.ImageVQVAE`.
        images: uint8 array `[N, H, W, 3]`.
        prior: Prior over the codes, such as a `PredictorPrior`.
        batch_size: Number of images per batch.
        labels: Classes of the images, integers `[N]`, for a prior with classes. Its
            bits, and the total, are then conditional on them.

    Returns:
        An `ImageBits`.
    """
    return evaluate_priors(model, images, {"": prior}, batch_size, labels)[""]


def evaluate_priors(
    model: ImageVQVAE,
    images: np.ndarray,
    priors: Mapping[str, Prior],
    batch_size: int = 100,
    labels: np.ndarray | None = None,
) -> dict[str, ImageBits]:
    """Measures an autoencoder with codes under several priors, with one pass of it.

    Args:
        model: A `keras_vqem.models.ImageVQVAE`.
        images: uint8 array `[N, H, W, 3]`.
        priors: Dict from names to priors over the codes.
        batch_size: Number of images per batch.
        labels: Classes of the images, integers `[N]`, for priors with classes.

    Returns:
        Dict from the same names to `ImageBits`.
    """

    @tf.function
    def step(images):
        codes = model.encode(images)
        latents = model.latents(codes)
        return codes, model.log_prob(images, latents), model.expected(latents)

    found = []
    for part in parts(images, batch_size):
        codes, log_p, expected = step(part)
        found.append((codes.numpy(), -log_p.numpy(), psnr(part, expected.numpy())))
    codes, nats, psnrs = (np.concatenate(x) for x in zip(*found, strict=True))
    scale = 1.0 / (math.log(2.0) * math.prod(images.shape[1:]))
    reconstruction = nats.mean() * scale
    counts = code_counts.count(codes, model.bottleneck.num_codes)
    used = (float(np.mean(perplexity(counts))), float((counts > 0).mean()))
    measured = {}
    for name, prior in priors.items():
        given = [(part,) for part in parts(codes, batch_size)]
        if labels is not None:
            sent = parts(labels, batch_size)
            given = [(*part, own) for part, own in zip(given, sent, strict=True)]
        prior_nats = np.concatenate([prior.nats(*part) for part in given])
        prior_bits = prior_nats.mean() * scale
        measured[name] = ImageBits(
            float(reconstruction + prior_bits),
            float(reconstruction),
            float(prior_bits),
            float(psnrs.mean()),
            *used,
            len(images),
        )
    return measured


def paper_accounting(
    model: ImageVQVAE,
    images: np.ndarray,
    predictor: GridTransformer,
    num_samples: int,
    seed: int = 0,
    batch_size: int = 100,
    labels: np.ndarray | None = None,
) -> tuple[float, float, float]:
    """Computes the paper's log perplexity in bits per dimension, which is not a bound.

    Codes are drawn; the decoder sees the mean of the draws, and the prior is charged
    their mean cross entropy. It is meant for models trained on draws (soft EM).

    Args:
        model: A `keras_vqem.models.ImageVQVAE` whose bottleneck draws samples.
        images: uint8 array `[N, H, W, 3]`.
        predictor: A `keras_vqem.models.GridTransformer` over the codes.
        num_samples: Number of draws per code.
        seed: Seed of the draws.
        batch_size: Number of images per batch.
        labels: Classes of the images, integers `[N]`, for a predictor with classes.

    Returns:
        A tuple of bits per dimension: total, reconstruction and prior.
    """
    prior, nats = PredictorPrior(predictor), np.zeros(2)
    with _seeded(model.bottleneck, seed):
        for first in range(0, len(images), batch_size):
            part = images[first : first + batch_size]
            own = None if labels is None else labels[first : first + batch_size]
            samples = _draws(model, part, num_samples)
            latents = [model.latents(codes) for codes in ops.unstack(samples, axis=-1)]
            latents = ops.mean(ops.stack(latents), axis=0)
            nats[0] -= np.sum(model.log_prob(part, latents))
            nats[1] += np.sum(prior.nats(model.encode(part), own, samples))
    reconstruction, prior_bits = nats / (math.log(2.0) * images.size)
    return float(reconstruction + prior_bits), float(reconstruction), float(prior_bits)


def gaussian_bound(
    model: ImageVAE,
    images: np.ndarray,
    num_samples: int = 1,
    seed: int = 0,
    batch_size: int = 100,
) -> ImageBits:
    """Measures a `keras_vqem.models.ImageVAE`.

    Args:
        model: A `keras_vqem.models.ImageVAE`.
        images: uint8 array `[N, H, W, 3]`.
        num_samples: Number of samples per image. 1 gives the ELBO with the exact KL
            divergence; more give the importance-weighted bound of Burda et al.
            (2015), which is tighter.
        seed: Seed of the noise.
        batch_size: Number of images per batch.

    Returns:
        An `ImageBits`. Its statistics of codes are NaN. With `num_samples` above 1
        only the total is known, and its parts are NaN.
    """

    @tf.function
    def step(images, seed):
        found = model.bottleneck(model.compressed(images), training=None)
        mean, log_variance = found["mean"], found["log_variance"]
        spread = ops.exp(0.5 * log_variance)
        axes = tuple(range(1, len(mean.shape)))
        log_w = []
        for i in range(num_samples):
            noise = tf.random.stateless_normal(
                ops.shape(mean), tf.random.fold_in(seed, i)
            )
            z = mean + spread * noise
            log_p = model.log_prob(images, ops.cast(z, model.compute_dtype))
            # The constants of the two normal densities cancel.
            log_ratio = 0.5 * (ops.square(noise) + log_variance - ops.square(z))
            log_w.append((log_p, ops.sum(log_ratio, axis=axes)))
        kl = ops.sum(found["kl"], axis=tuple(range(1, len(found["kl"].shape))))
        expected = model.expected(found["quantized"])
        return log_w, kl, expected

    totals, reconstructions, psnrs = [], [], []
    for number, part in enumerate(parts(images, batch_size)):
        log_w, kl, expected = step(part, tf.constant([seed, number]))
        log_p, ratio = (np.stack(x).astype("float64") for x in zip(*log_w, strict=True))
        reconstructions.append(-log_p.mean(axis=0))
        if num_samples == 1:
            totals.append(-log_p[0] + kl)
        else:
            totals.append(-(np.logaddexp.reduce(log_p + ratio) - np.log(num_samples)))
        psnrs.append(psnr(part, expected.numpy()))
    scale = 1.0 / (math.log(2.0) * math.prod(images.shape[1:]))
    total = np.concatenate(totals).mean() * scale
    reconstruction = np.concatenate(reconstructions).mean() * scale
    nan = float("nan")
    return ImageBits(
        float(total),
        float(reconstruction) if num_samples == 1 else nan,
        float(total - reconstruction) if num_samples == 1 else nan,
        float(np.concatenate(psnrs).mean()),
        nan,
        nan,
        len(images),
    )


def parts(array: np.ndarray, size: int) -> list[np.ndarray]:
    """Returns the rows of an array in parts of `size` rows, the last one smaller."""
    return [array[i : i + size] for i in range(0, len(array), size)]
