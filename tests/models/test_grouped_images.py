"""Image models whose pixels know their neighbours: codes frozen, saved, exported."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers
from keras_vqem.evaluation import image_bits
from keras_vqem.images import shapes
from keras_vqem.models import GridTransformer, ImageVAE, ImageVQVAE
from tests.conformance import checks


def base_model(bottleneck=None, **settings):
    vae = isinstance(bottleneck, layers.GaussianBottleneck)
    return (ImageVAE if vae else ImageVQVAE)(
        layers.PatchCompressor(code_dim=8, channels=8, num_blocks=1),
        bottleneck
        or layers.VQEMBottleneck(16, num_samples=5, groups=layers.Slices(2), seed=0),
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8, unit=0.1),
        layers.LogisticMixture(2, spread=8.0),
        image_size=(8, 8),
        **settings,
    )


def sample(model):
    return tf.function(lambda: model.sample(2, seed=(1, 2)))()


def grouped(model):
    pixels = layers.GroupedPixels(
        model.likelihood, features=4, channels=8, num_blocks=1, seed=0
    )
    return model.with_likelihood(pixels)


def prior():
    return GridTransformer(
        (2, 2, 2), 16, hidden_dim=8, num_layers=1, num_heads=2, intermediate_dim=16
    )


@pytest.fixture(scope="module")
def images():
    return shapes.images(64, size=8)[0]


@pytest.fixture(scope="module")
def start(images):
    """A model with codes and a prior, and the same with grouped pixels."""
    keras.utils.set_random_seed(0)
    model = base_model()
    model.init_from_patches(images)
    model = model.with_prior(prior())
    return model, grouped(model)


def test_it_starts_where_the_model_was(images, start):
    model, new = start
    latents = model.latents(model.encode(images))
    np.testing.assert_allclose(
        new.log_prob(images, latents), model.log_prob(images, latents), rtol=1e-5
    )
    np.testing.assert_array_equal(new.encode(images), model.encode(images))
    np.testing.assert_array_equal(new.reconstruct(images), model.reconstruct(images))
    assert new.prior is model.prior


@pytest.mark.slow
def test_only_pixels_are_trained_and_they_learn(images, start, tmp_path):
    _, model = start
    codes = model.encode(images)
    frozen = [model.compressor, model.bottleneck, model.decompressor, model.prior]
    before = [w.copy() for part in frozen for w in part.get_weights()]
    prior = image_bits.UniformPrior(16)
    first = image_bits.evaluate(model, images, prior)
    model.compile(keras.optimizers.Adam(0.01))
    history = model.fit({"images": images}, batch_size=16, epochs=8, verbose=0).history
    learned = {id(w) for part in (model.head, model.likelihood) for w in part.weights}
    assert {id(w) for w in model.trainable_weights} == learned
    for old, new in zip(
        before, [w for part in frozen for w in part.get_weights()], strict=True
    ):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(model.encode(images), codes)
    last = image_bits.evaluate(model, images, prior)
    assert last.reconstruction < first.reconstruction - 0.3
    # What training reports is an estimate of what is measured.
    bits = history["reconstruction_bits_per_dim"][-1]
    assert bits == pytest.approx(last.reconstruction, abs=0.5)
    found = model.evaluate({"images": images}, batch_size=16, verbose=0)
    np.testing.assert_allclose(
        found["reconstruction_bits_per_dim"] if isinstance(found, dict) else found[1],
        last.reconstruction,
        rtol=1e-5,
    )
    # A saved model is the same, frozen parts included.
    latents = model.latents(codes)
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    for loaded in (
        keras.saving.load_model(tmp_path / "model.keras", compile=False),
        ImageVQVAE.from_preset(tmp_path / "preset"),
    ):
        np.testing.assert_allclose(
            loaded.log_prob(images, latents), model.log_prob(images, latents), rtol=1e-6
        )
        np.testing.assert_array_equal(sample(loaded), sample(model))
        assert len(loaded.trainable_weights) == len(model.trainable_weights)
        again = grouped(loaded.with_likelihood(model.likelihood.likelihood))
        assert len(again.trainable_weights) == len(model.trainable_weights)


def test_frozen_soft_codes_are_not_drawn(images, start):
    _, model = start
    found = model({"images": images}, training=True)
    latents = model.latents(model.encode(images))
    np.testing.assert_allclose(found["quantized"], latents, rtol=1e-5, atol=1e-5)
    assert found["groups"].shape == (64,)
    assert "groups" not in model({"images": images})


@pytest.mark.slow
def test_codes_and_pixels_are_drawn_with_seeds_of_rows(images, start):
    _, model = start
    checks.shake(model.likelihood)
    seeds = np.array([[1, 2], [3, 4], [1, 2]], "int32")
    draw = tf.function(lambda seeds: model.sample(seeds.shape[0], seeds))
    drawn = draw(tf.constant(seeds)).numpy()
    np.testing.assert_array_equal(drawn[0], drawn[2])
    assert (drawn[0] != drawn[1]).any()
    np.testing.assert_array_equal(draw(tf.constant(seeds[1:2]))[0], drawn[1])
    # The same codes, other pixels.
    codes = model.encode(images[:1])
    first, second = (model.decode(codes, seed=(0, i)).numpy() for i in range(2))
    assert first.dtype == "uint8" and (first != second).any()
    assert (first != model.decode(codes).numpy()).any()


def test_a_vae_draws_its_pixels_too(images):
    model = grouped(base_model(layers.GaussianBottleneck(4, seed=0)))
    assert isinstance(model, ImageVAE)
    checks.shake(model.likelihood)
    drawn = model.sample(2, seed=(0, 1))
    np.testing.assert_array_equal(drawn, model.sample(2, seed=(0, 1)))
    assert drawn.shape == (2, 8, 8, 3)
    found = model({"images": images}, training=True)
    # Latents are drawn even if they are frozen: there is no nearest one.
    assert (found["quantized"] != model.latents(model.encode(images))).numpy().any()


@pytest.mark.slow
def test_an_export_draws_a_row_by_its_seed(images, start, tmp_path):
    _, model = start
    model.export(tmp_path / "1")
    call = tf.saved_model.load(str(tmp_path / "1")).signatures
    seeds = tf.constant([[1, 2], [3, 4], [1, 2]])
    whole = call["sample"](seed=seeds)["images"].numpy()
    np.testing.assert_array_equal(whole[0], whole[2])
    one = call["sample"](seed=seeds[1:2])["images"].numpy()
    assert (one[0] != whole[1]).mean() < 0.1
    assert (model.sample(3, seeds).numpy() != whole).mean() < 0.1
    found = call["reconstruct"](images=tf.constant(images))["images"].numpy()
    difference = found.astype(int) - np.asarray(model.reconstruct(images), int)
    assert np.abs(difference).max() <= 1


@pytest.mark.slow
def test_codes_and_pixels_are_learned_together(images):
    keras.utils.set_random_seed(0)
    inner = layers.LogisticMixture(2, spread=8.0)
    pixels = layers.GroupedPixels(inner, features=4, channels=8, num_blocks=1, seed=0)
    model = base_model()
    model = ImageVQVAE(
        model.compressor, model.bottleneck, model.decompressor, pixels, (8, 8)
    )
    model.init_from_patches(images)
    model.compile(keras.optimizers.Adam(0.005))
    data = {"images": images}
    bits = model.fit(data, batch_size=16, epochs=8, verbose=0).history
    bits = bits["reconstruction_bits_per_dim"]
    assert bits[-1] < bits[0] - 0.3
    codebook = np.asarray(model.bottleneck.codebook)
    model.compile(jit_compile=True)
    model.fit(data, batch_size=16, verbose=0)
    assert (np.asarray(model.bottleneck.codebook) != codebook).any()


@pytest.mark.slow
def test_two_replicas_learn_from_groups_of_their_own(images, strategy):
    with strategy.scope():
        model = grouped(base_model())
        model.compile(keras.optimizers.Adam(0.005))

    @tf.function
    def step():
        return model.likelihood.draw_groups(4)

    first, second = zip(
        *(
            [np.asarray(x) for x in strategy.experimental_local_results(found)]
            for found in (strategy.run(step) for _ in range(10))
        ),
        strict=True,
    )
    assert np.any(np.array(first) != np.array(second))
    history = model.fit({"images": images}, batch_size=16, epochs=4, verbose=0).history
    bits = history["reconstruction_bits_per_dim"]
    assert np.isfinite(bits).all() and bits[-1] < bits[0]
