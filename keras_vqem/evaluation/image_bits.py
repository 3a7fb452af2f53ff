"""Bits a dimension of images through codes: a bound, and what it consists of.

To send an image one sends its codes, then the pixels given the codes:

    bits = -log2 p(codes) - log2 p(image | codes)

with the codes that would be sent, the nearest ones. Any code can be sent, so this is
an upper bound of -log2 p(image) whatever the prior. The paper's accounting (soft
labels for the prior, their mean for the decoder) is none; `paper_accounting` computes
it for comparison.
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf
from keras import ops


@dataclasses.dataclass(frozen=True)
class ImageBits:
    """Means over images.

    Attributes:
        total, reconstruction, prior: Bits a dimension; the first is the sum of the
            others.
        psnr: Of the expected image, in dB; the mean over images.
        perplexity: exp of the entropy of the codes' shares, the mean over slots.
        used: Share of the codes that occur at all.
        images: How many were measured.
    """

    total: float
    reconstruction: float
    prior: float
    psnr: float
    perplexity: float
    used: float
    images: int


class UniformPrior:
    """All codes are as likely: log2 `num_codes` bits each."""

    def __init__(self, num_codes):
        self.num_codes = num_codes

    def nats(self, codes):
        """[B] for codes [B, ...]."""
        number = math.prod(codes.shape[1:])
        return np.full(len(codes), number * math.log(self.num_codes))


class UnigramPrior:
    """Each slot of a cell has its own frequencies of codes, wherever the cell is.

    Args:
        codes: Integers [N, rows, columns, slots] of training images.
        num_codes: Size of the codebook.
    """

    def __init__(self, codes, num_codes):
        codes = np.asarray(codes)
        slots = codes.reshape(-1, codes.shape[-1]).T
        # One more of each, so that no code is impossible.
        counts = np.stack([np.bincount(s, minlength=num_codes) for s in slots]) + 1.0
        self.log_p = np.log(counts / counts.sum(axis=-1, keepdims=True))

    def nats(self, codes):
        """[B] for codes [B, rows, columns, slots]."""
        codes = np.asarray(codes)
        picked = self.log_p[np.arange(codes.shape[-1]), codes]
        return -picked.reshape(len(codes), -1).sum(axis=-1)


class PredictorPrior:
    """A trained `keras_vqem.models.GridTransformer`."""

    def __init__(self, predictor):
        self.predictor = predictor
        self._graph = tf.function(
            lambda inputs: ops.sum(
                predictor.nats(inputs, predictor(inputs)), axis=(1, 2, 3)
            )
        )

    def nats(self, codes, samples=None):
        """[B] for codes [B, rows, columns, slots], or with soft labels `samples`."""
        inputs = {"symbols": ops.cast(codes, "int32")}
        if samples is not None:
            inputs["samples"] = ops.cast(samples, "int32")
        return np.asarray(self._graph(inputs))


def encode(model, images, batch_size=100):
    """Codes [N, rows, columns, slots], uint8 if they fit, of images, uint8."""
    graph = tf.function(model.encode)
    dtype = "uint8" if model.bottleneck.num_codes <= 256 else "int32"
    return np.concatenate(
        [np.asarray(graph(part)).astype(dtype) for part in _parts(images, batch_size)]
    )


def evaluate(model, images, prior, batch_size=100):
    """Measures an `ImageVQVAE`.

    Args:
        model: The model.
        images: uint8 [N, H, W, 3].
        prior: Has `nats(codes)`; one of the classes here.
        batch_size: How many images at a time.

    Returns:
        An `ImageBits`.
    """

    @tf.function
    def step(images):
        codes = model.encode(images)
        latents = model.latents(codes)
        return codes, model.log_prob(images, latents), model.expected(latents)

    found = []
    for part in _parts(images, batch_size):
        codes, log_p, expected = step(part)
        found.append((codes.numpy(), -log_p.numpy(), psnr(part, expected.numpy())))
    codes, nats, psnrs = (np.concatenate(x) for x in zip(*found, strict=True))
    prior_nats = np.concatenate(
        [prior.nats(part) for part in _parts(codes, batch_size)]
    )
    scale = 1.0 / (math.log(2.0) * math.prod(images.shape[1:]))
    reconstruction, prior_bits = nats.mean() * scale, prior_nats.mean() * scale
    slots = codes.reshape(-1, codes.shape[-1]).T
    shares = np.stack(
        [np.bincount(s, minlength=model.bottleneck.num_codes) for s in slots]
    ) / len(slots[0])
    entropy = -np.sum(shares * np.log(np.maximum(shares, 1e-30)), axis=-1)
    return ImageBits(
        float(reconstruction + prior_bits),
        float(reconstruction),
        float(prior_bits),
        float(psnrs.mean()),
        float(np.exp(entropy).mean()),
        float((shares > 0).mean()),
        len(images),
    )


def paper_accounting(model, images, predictor, num_samples, seed=0, batch_size=100):
    """The paper's log perplexity, bits a dimension: not a bound.

    Codes are drawn; the decoder sees their mean, the prior is charged the mean cross
    entropy of the draws. For models that are trained on draws: soft EM.

    Returns:
        Total, reconstruction and prior.
    """
    bottleneck, prior = model.bottleneck, PredictorPrior(predictor)
    state = bottleneck.seed_generator.state
    before, nats = state.numpy(), np.zeros(2)
    state.assign([seed, 0])
    for part in _parts(images, batch_size):
        codes = model.encode(part)
        samples = bottleneck.sample(model.compressed(part), num_samples)
        samples = ops.reshape(samples, (*codes.shape, num_samples))
        draws = ops.moveaxis(samples, -1, 0)
        latents = ops.mean(ops.stack([model.latents(draw) for draw in draws]), axis=0)
        nats[0] -= np.sum(model.log_prob(part, latents))
        nats[1] += np.sum(prior.nats(codes, samples))
    state.assign(before)
    reconstruction, prior_bits = nats / (math.log(2.0) * images.size)
    return float(reconstruction + prior_bits), float(reconstruction), float(prior_bits)


def gaussian_bound(model, images, num_samples=1, seed=0, batch_size=100):
    """The bound of an `ImageVAE`.

    Args:
        num_samples: 1 for the ELBO with the exact KL divergence; more for the
            importance-weighted bound of Burda et al. (2015), which is tighter.

    Returns:
        An `ImageBits` without codes; of the importance-weighted bound only the total
        is known.
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
            # Of the two normal densities the constants cancel.
            log_ratio = 0.5 * (ops.square(noise) + log_variance - ops.square(z))
            log_w.append((log_p, ops.sum(log_ratio, axis=axes)))
        kl = ops.sum(found["kl"], axis=tuple(range(1, len(found["kl"].shape))))
        expected = model.expected(found["quantized"])
        return log_w, kl, expected

    totals, reconstructions, psnrs = [], [], []
    for number, part in enumerate(_parts(images, batch_size)):
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


def psnr(images, others):
    """Peak signal to noise ratio [B], dB, of uint8 images; 100 where they are alike."""
    difference = images.astype("float64") - others.astype("float64")
    error = np.square(difference).mean(axis=(1, 2, 3))
    return 10.0 * np.log10(255.0**2 / np.maximum(error, 255.0**2 * 1e-10))


def _parts(array, size):
    return [array[i : i + size] for i in range(0, len(array), size)]
