"""Bits a dimension: by hand, and as a bound of what all codes together say."""

import itertools

import numpy as np
import pytest

from keras_vqem import layers
from keras_vqem.evaluation import image_bits
from keras_vqem.images import shapes
from keras_vqem.models import GridTransformer, ImageVAE, ImageVQVAE
from tests.conformance import checks


def make_model(bottleneck, model_class=ImageVQVAE):
    model = model_class(
        layers.PatchCompressor(code_dim=8, channels=8, num_blocks=1),
        bottleneck,
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(8, 8),
    )
    model.compile()
    model.fit({"images": shapes.images(64, size=8)[0]}, batch_size=32, verbose=0)
    return model


@pytest.fixture(scope="module")
def images():
    return shapes.images(30, size=8, split="test")[0]


@pytest.fixture(scope="module")
def model():
    return make_model(
        layers.VQEMBottleneck(16, num_samples=5, groups=layers.Slices(2), seed=0)
    )


def test_a_uniform_prior_costs_what_codes_weigh(model, images):
    found = image_bits.evaluate(model, images, image_bits.UniformPrior(16), 7)
    # 2 x 2 cells of 2 codes of 4 bits, over 8 x 8 x 3 dimensions.
    np.testing.assert_allclose(found.prior, 2 * 2 * 2 * 4 / 192, rtol=1e-6)
    codes = model.encode(images)
    log_p = model.log_prob(images, model.bottleneck.decode(codes))
    bits = -np.mean(log_p) / np.log(2) / 192
    np.testing.assert_allclose(found.reconstruction, bits, rtol=1e-5)
    np.testing.assert_allclose(found.total, found.prior + bits, rtol=1e-5)
    again = np.asarray(model.reconstruct(images)).astype(float)
    error = np.square(images - again).mean((1, 2, 3))
    np.testing.assert_allclose(
        found.psnr, np.mean(10 * np.log10(255**2 / error)), rtol=1e-4
    )
    assert found.images == 30
    slots = np.asarray(codes).reshape(-1, 2).T
    shares = [np.unique(slot, return_counts=True)[1] / len(slot) for slot in slots]
    perplexities = [np.exp(-np.sum(p * np.log(p))) for p in shares]
    np.testing.assert_allclose(found.perplexity, np.mean(perplexities), rtol=1e-5)
    np.testing.assert_allclose(found.used, np.mean([len(p) for p in shares]) / 16)


def test_the_papers_uniform_prior_is_1_667_bits():
    codes = np.zeros((1, 8, 8, 10), int)
    bits = image_bits.UniformPrior(256).nats(codes) / np.log(2) / (32 * 32 * 3)
    np.testing.assert_allclose(bits, 5 / 3)


def test_a_unigram_prior_is_the_frequencies_of_its_slot(rng):
    train = rng.integers(4, size=(50, 2, 2, 3)) // [1, 2, 4]
    prior = image_bits.UnigramPrior(train, 4)
    for slot in range(3):
        counts = np.bincount(train[..., slot].ravel(), minlength=4) + 1
        np.testing.assert_allclose(np.exp(prior.log_p[slot]), counts / counts.sum())
    codes = train[:5]
    expected = -sum(
        prior.log_p[s, codes[:, r, c, s]]
        for r in range(2)
        for c in range(2)
        for s in range(3)
    )
    np.testing.assert_allclose(prior.nats(codes), expected)


def test_a_unigram_prior_per_cell_is_the_frequencies_of_its_place(rng):
    train = rng.integers(4, size=(50, 2, 3, 2))
    prior = image_bits.UnigramPrior(train, 4, per_cell=True)
    codes, expected = rng.integers(4, size=(5, 2, 3, 2)), np.zeros(5)
    for place in np.ndindex(2, 3, 2):
        counts = np.bincount(train[:, *place], minlength=4) + 1
        expected -= np.log(counts / counts.sum())[codes[:, *place]]
    np.testing.assert_allclose(prior.nats(codes), expected)


def test_draws_are_those_of_the_posterior_and_of_the_seed(model, images):
    state = model.bottleneck.seed_generator.state
    before = state.numpy()
    first, again, other = (
        image_bits.draw(model, images, 400, seed, batch_size=13) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(state, before)
    np.testing.assert_array_equal(first, again)
    codes = image_bits.encode(model, images)
    assert first.shape == (*codes.shape, 400) and (first != other).any()
    posterior = np.asarray(model.bottleneck.posterior(model.compressed(images)))
    shares = np.mean(first[..., None] == np.arange(16), axis=-2)
    np.testing.assert_allclose(shares, posterior.reshape(shares.shape), atol=0.13)


def test_a_predictor_is_charged_its_own_nats(model, images):
    predictor = GridTransformer((2, 2, 2), 16, 8, 1, 2, 16, block_length=4)
    codes = image_bits.encode(model, images, 13)
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, model.encode(images))
    found = image_bits.evaluate(model, images, image_bits.PredictorPrior(predictor))
    inputs = {"symbols": codes}
    nats = np.sum(predictor.nats(inputs, predictor(inputs)), axis=(1, 2, 3))
    np.testing.assert_allclose(found.prior, nats.mean() / np.log(2) / 192, rtol=1e-5)


def test_a_predictor_with_classes_is_charged_given_the_labels(model, images):
    sizes = (8, 1, 2, 16)
    predictor = GridTransformer((2, 2, 2), 16, *sizes, block_length=4, num_classes=3)
    predictor.build()
    checks.shake(predictor)
    codes = np.asarray(model.encode(images))
    labels = np.arange(len(images)) % 3
    priors = {
        "predictor": image_bits.PredictorPrior(predictor),
        "uniform": image_bits.UniformPrior(16),
        "unigram": image_bits.UnigramPrior(codes, 16),
    }
    # Batches that do not divide the images.
    found = image_bits.evaluate_priors(model, images, priors, 13, labels)
    others = image_bits.evaluate(model, images, priors["predictor"], 13, 0 * labels)
    bits = []
    for given in (labels, 0 * labels):
        inputs = {"symbols": codes, "labels": given}
        nats = np.sum(predictor.nats(inputs, predictor(inputs)), axis=(1, 2, 3))
        bits.append(nats.mean() / np.log(2) / 192)
    assert bits[0] != pytest.approx(bits[1], rel=1e-4)
    measured = [found["predictor"].prior, others.prior]
    np.testing.assert_allclose(measured, bits, rtol=1e-5)
    # Other priors take no notice.
    for name in ("uniform", "unigram"):
        assert found[name] == image_bits.evaluate(model, images, priors[name])
    with pytest.raises(ValueError, match="has 3 classes and needs `labels`"):
        image_bits.evaluate(model, images, priors["predictor"])


def test_the_papers_accounting_of_certain_codes_is_the_bound(images):
    """At a tiny temperature all draws are the nearest code."""
    model = make_model(
        layers.VQEMBottleneck(
            16, num_samples=3, temperature=1e-9, groups=layers.Slices(2), seed=0
        )
    )
    predictor = GridTransformer((2, 2, 2), 16, 8, 1, 2, 16, block_length=4)
    bound = image_bits.evaluate(model, images, image_bits.PredictorPrior(predictor))
    found = image_bits.paper_accounting(model, images, predictor, 3)
    expected = bound.total, bound.reconstruction, bound.prior
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_bits_are_a_bound_and_not_far_from_the_truth():
    """A model so small that all its codes can be tried."""
    size = {
        "hidden_dim": 8,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate_dim": 16,
        "block_length": 4,
    }
    model = ImageVQVAE(
        layers.PatchCompressor(code_dim=4, channels=8, num_blocks=1),
        layers.VQEMBottleneck(4, groups=layers.Slices(2), seed=0),
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(4, 8),
    )
    model.compile()
    train = shapes.images(64, size=8)[0][:, :4]
    model.fit({"images": train}, batch_size=32, verbose=0)
    prior = image_bits.PredictorPrior(GridTransformer((1, 2, 2), 4, **size))
    images = shapes.images(5, size=8, split="test")[0][:, :4]
    found = image_bits.evaluate(model, images, prior)
    codes = np.array(list(itertools.product(range(4), repeat=4))).reshape(-1, 1, 2, 2)
    log_prior = -prior.nats(codes).astype("float64")
    np.testing.assert_allclose(np.exp(log_prior).sum(), 1.0, rtol=1e-5)
    exact = []
    for image in images:
        log_p = model.log_prob(np.stack([image] * 256), model.latents(codes))
        exact.append(np.logaddexp.reduce(log_prior + np.asarray(log_p)))
    truth = -np.mean(exact) / np.log(2) / images[0].size
    assert truth <= found.total < truth + 0.5


def test_the_papers_accounting_follows_its_seed_and_leaves_no_trace(model, images):
    predictor = GridTransformer((2, 2, 2), 16, 8, 1, 2, 16, block_length=4)
    before = model.bottleneck.seed_generator.state.numpy()
    first, again, other = (
        image_bits.paper_accounting(model, images, predictor, 3, seed=seed)
        for seed in (1, 1, 2)
    )
    assert first == again != other
    np.testing.assert_array_equal(model.bottleneck.seed_generator.state, before)


@pytest.mark.slow
def test_importance_weights_tighten_the_bound_of_a_vae(images):
    model = make_model(layers.GaussianBottleneck(2, kl_weight=1 / 48, seed=0), ImageVAE)
    elbo = image_bits.gaussian_bound(model, images)
    np.testing.assert_allclose(elbo.total, elbo.reconstruction + elbo.prior)
    kl = model.bottleneck(model.compressed(images))["kl"]
    np.testing.assert_allclose(
        elbo.prior, np.sum(kl, axis=(1, 2)).mean() / np.log(2) / 192, rtol=1e-4
    )
    few = image_bits.gaussian_bound(model, images, num_samples=2).total
    many = image_bits.gaussian_bound(model, images, num_samples=16).total
    assert many < few < elbo.total + 0.02


def test_the_bound_of_a_vae_comes_down_to_the_truth():
    """Where the decoder does not look at the latents, its bits are the truth."""
    model = ImageVAE(
        layers.PatchCompressor(code_dim=4, channels=8, num_blocks=1),
        layers.GaussianBottleneck(1, kl_weight=1 / 48, seed=0),
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(4, 4),
    )
    model.build()
    for layer in (model.decompressor.linear, model.decompressor.inward):
        layer.kernel.assign(np.zeros(layer.kernel.shape))
    # A posterior with mean 0.5 and variance exp(-0.5), whatever the image.
    kernel, _ = model.bottleneck.get_weights()
    model.bottleneck.set_weights([0 * kernel, np.array([0.5, -0.5])])
    images = shapes.images(200, size=8, split="test")[0][:, :4, :4]
    log_p = np.mean(model.log_prob(images, np.zeros((200, 1, 1, 1), "float32")))
    truth = -log_p / np.log(2) / 48
    kl = 0.5 * (0.25 + np.exp(-0.5) - 1 + 0.5) / np.log(2) / 48
    elbo = image_bits.gaussian_bound(model, images).total
    np.testing.assert_allclose(elbo, truth + kl, rtol=1e-5)
    found = image_bits.gaussian_bound(model, images, num_samples=20).total
    # Without the division by 20 it would be 0.09 lower.
    np.testing.assert_allclose(found, truth, atol=kl / 3)
