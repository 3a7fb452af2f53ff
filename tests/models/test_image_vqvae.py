"""ImageVQVAE: codes in and out, the start from patches, and what it learns."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from keras_vqem import layers
from keras_vqem.images import shapes
from keras_vqem.layers import patch_start
from keras_vqem.layers.patch_compressor import to_patches
from keras_vqem.models import GridTransformer, ImageVAE, ImageVQVAE
from keras_vqem.serving import write_warmup


def make_model(bottleneck=None, likelihood=None, **kwargs):
    vae = isinstance(bottleneck, layers.GaussianBottleneck)
    return (ImageVAE if vae else ImageVQVAE)(
        layers.PatchCompressor(code_dim=24, channels=8, num_blocks=1),
        bottleneck
        or layers.VQEMBottleneck(32, num_samples=5, groups=layers.Slices(3), seed=0),
        layers.PatchDecompressor(channels=8, num_blocks=1, pixel_channels=8, unit=0.1),
        likelihood or layers.LogisticMixture(num_mixtures=2),
        image_size=(16, 16),
        **kwargs,
    )


@pytest.fixture(scope="module")
def images():
    return shapes.images(256, size=16)[0]


def test_codes_say_all_that_the_decoder_sees(images):
    model = make_model()
    model.compile()
    model.fit({"images": images}, batch_size=64, verbose=0)
    codes = model.encode(images[:4])
    assert codes.shape == (4, 4, 4, 3)
    outputs = model({"images": images[:4]})
    np.testing.assert_array_equal(outputs["codes"], codes)
    log_p = model.likelihood.log_prob(outputs["outputs"], images[:4], outputs["base"])
    latents = model.bottleneck.decode(codes)
    np.testing.assert_allclose(
        model.log_prob(images[:4], latents), np.sum(log_p, axis=(1, 2)), rtol=1e-5
    )
    found = model.reconstruct(images[:4])
    assert found.dtype == "uint8" and found.shape == (4, 16, 16, 3)
    np.testing.assert_array_equal(found, model.decode(codes))


def test_start_from_patches_beats_any_other_linear_code_at_hand(images):
    """Against the mean colour of each patch, which takes as many numbers."""
    model = make_model()
    model.init_from_patches(images)
    latents = model.bottleneck.decode(model.encode(images))
    base = (np.asarray(model.decompressor(latents)[1]) + 1) * 127.5
    error = np.square(base - images).mean()
    means = images.reshape(-1, 4, 4, 4, 4, 3).mean(axis=(2, 4), keepdims=True)
    flat = np.broadcast_to(means, (256, 4, 4, 4, 4, 3)).reshape(images.shape)
    assert error < 0.7 * np.square(flat - images).mean()
    # Vectors are the coordinates themselves: without the codes nothing but what lies
    # outside the chosen components is lost.
    whole = model.decompressor(model.compressed(images))[1]
    whole = np.square((np.asarray(whole) + 1) * 127.5 - images).mean()
    assert whole < 0.5 * error


def test_a_vae_starts_as_probabilistic_pca(images):
    bottleneck = layers.GaussianBottleneck(60, seed=0)
    model = make_model(bottleneck)
    model.init_from_patches(images)
    found = model({"images": images})
    mean, log_variance = (
        np.asarray(found[name]).reshape(-1, 60) for name in ("mean", "log_variance")
    )
    noise = model.likelihood.spread / 127.5
    patches = np.asarray(to_patches(images.astype("float32") / 127.5 - 1.0, 4)).reshape(
        -1, 48
    )
    variances = np.sort(np.linalg.eigvalsh(np.cov(patches.T)))[::-1]
    used = min(48, model.compressor.code_dim)
    # Over all patches the latents have the prior's moments: mean 0 and variance 1.
    np.testing.assert_allclose(mean.mean(0), 0, atol=1e-3)
    second = (np.square(mean) + np.exp(log_variance)).mean(0)
    np.testing.assert_allclose(second, 1, rtol=1e-3)
    # What is known of each is what the noise leaves.
    np.testing.assert_allclose(
        np.exp(log_variance[0, :used]),
        np.minimum(noise**2 / variances[:used], 1.0),
        rtol=1e-2,
    )
    # And the guess is the posterior's mean of the patch: each component shrunk.
    components = np.linalg.eigh(np.cov(patches.T))[1][:, ::-1][:, :used]
    shrunk = np.maximum(1 - noise**2 / variances[:used], 0)
    centred = patches - patches.mean(0)
    expected = (centred @ components * shrunk) @ components.T + patches.mean(0)
    base = np.asarray(to_patches(found["base"] / 127.5 - 1.0, 4)).reshape(-1, 48)
    np.testing.assert_allclose(base, expected, atol=2e-3)


def test_start_from_patches_says_what_it_needs(images):
    for bottleneck in (
        layers.VQEMBottleneck(32, groups=layers.SharedSlices(3)),
        layers.VQEMBottleneck(32),
        layers.GumbelSoftmaxBottleneck(32, groups=layers.Slices(3)),
    ):
        with pytest.raises(ValueError, match=r"groups=Slices\(n\); or a Gaussian"):
            make_model(bottleneck).init_from_patches(images)
    model = ImageVQVAE(
        layers.PatchCompressor(code_dim=24, channels=8),
        layers.VQEMBottleneck(32, groups=layers.Slices(3)),
        layers.ImageDecompressor(channels=8),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(16, 16),
    )
    with pytest.raises(ValueError, match="PatchCompressor, ImageDecompressor, VQEM"):
        model.init_from_patches(images)
    with pytest.raises(ValueError, match="16 codes out of 256 .* fewer groups"):
        patch_start.find(images, 2, num_groups=16, num_codes=256, size=4)


def test_deal_uses_up_the_bits_evenly():
    variances = 2.0 ** np.arange(12, 0, -1)
    groups = patch_start.deal(variances, num_groups=3, bits=8.0, size=10)
    told = sorted(sum(groups, []))
    # Water-filling by hand: with the n largest told at error D the bits add up to 24.
    log2 = np.arange(12, 0, -1.0)
    for n in range(12, 0, -1):
        level = (log2[:n].sum() - 2 * 24) / n
        if log2[n - 1] > level:
            break
    assert told == list(range(n))
    loads = [sum((log2[i] - level) / 2 for i in group) for group in groups]
    np.testing.assert_allclose(sum(loads), 24.0, rtol=1e-6)
    assert max(loads) - min(loads) < 2.0
    assert max(map(len, patch_start.deal(variances, 3, 8.0, size=2))) == 2


def test_k_means_finds_clusters(rng):
    centres = np.array([[0, 0], [10, 0], [0, 10]], "float32")
    vectors = np.repeat(centres, 50, axis=0) + 0.1 * rng.normal(size=(150, 2))
    best = min(
        np.abs(
            np.sort(patch_start.k_means(vectors, 3, rng)[0], 0) - np.sort(centres, 0)
        ).max()
        for _ in range(5)
    )
    assert best < 0.1


@pytest.mark.parametrize(
    "bottleneck",
    [
        layers.VQEMBottleneck(32, groups=layers.SharedSlices(3)),
        layers.VQBottleneck(32, groups=layers.Slices(3)),
        layers.GaussianBottleneck(6, kl_weight=1 / 48),
    ],
    ids=lambda layer: type(layer).__name__,
)
@pytest.mark.parametrize(
    "likelihood",
    ["LogisticMixture", pytest.param("CategoricalPixels", marks=pytest.mark.slow)],
)
def test_it_learns_saves_and_loads(tmp_path, images, bottleneck, likelihood):
    keras.utils.set_random_seed(0)
    bottleneck = type(bottleneck).from_config(bottleneck.get_config())
    model = make_model(bottleneck, getattr(layers, likelihood)())
    model.compile(keras.optimizers.Adam(0.003))
    history = model.fit({"images": images}, batch_size=32, epochs=4, verbose=0).history
    assert (
        history["reconstruction_bits_per_dim"][-1]
        < history["reconstruction_bits_per_dim"][0] - 0.1
    )
    assert {"bottleneck_loss", "loss", "nonfinite"} <= set(history)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    expected = model({"images": images[:4]})
    for name, found in again({"images": images[:4]}).items():
        np.testing.assert_array_equal(found, expected[name])


def test_the_papers_configuration_trains_a_step(images):
    model = ImageVQVAE.paper(image_size=(16, 16))
    model.compile()
    history = model.fit({"images": images[:2]}, batch_size=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert model.encode(images[:1]).shape == (1, 4, 4, 10)
    assert model.bottleneck.codebook.shape == (1, 256, 512)
    # 5 x 5 x 512 x 512, three times; and ten codes of 512 numbers both ways.
    assert 20e6 < model.count_params() < 40e6


def test_an_image_must_divide_into_cells():
    with pytest.raises(ValueError, match=r"multiples of 4, received shape \(1, 18"):
        ImageVQVAE.paper(channels=4, image_size=(18, 16)).build()


@pytest.fixture(scope="module")
def with_prior(images):
    keras.utils.set_random_seed(0)
    model = make_model()
    model.init_from_patches(images)
    prior = GridTransformer(
        (4, 4, 3),
        32,
        hidden_dim=8,
        num_layers=1,
        num_heads=2,
        intermediate_dim=16,
        block_length=8,
    )
    return model.with_prior(prior)


def test_a_model_with_a_prior_draws_images_and_is_one_object(
    images, with_prior, tmp_path
):
    drawn = with_prior.sample(3, seed=(1, 2))
    assert drawn.shape == (3, 16, 16, 3) and drawn.dtype == "uint8"
    codes = with_prior.prior.sample(3, seed=(1, 2))
    np.testing.assert_array_equal(drawn, with_prior.decode(codes))
    for path in ("model.keras", "preset"):
        if path == "preset":
            with_prior.save_to_preset(tmp_path / path)
            loaded = ImageVQVAE.from_preset(tmp_path / path)
        else:
            with_prior.save(tmp_path / path)
            loaded = keras.saving.load_model(tmp_path / path)
        np.testing.assert_array_equal(loaded.sample(3, seed=(1, 2)), drawn)
        np.testing.assert_array_equal(
            loaded.reconstruct(images[:3]), with_prior.reconstruct(images[:3])
        )


def test_training_leaves_the_prior_alone(images, with_prior):
    before = [w.copy() for w in with_prior.prior.get_weights()]
    of_prior = {id(w) for w in with_prior.prior.weights}
    assert of_prior and not of_prior & {id(w) for w in with_prior.trainable_variables}
    with_prior.compile()
    with_prior.fit({"images": images[:64]}, batch_size=32, verbose=0)
    for old, new in zip(before, with_prior.prior.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_with_a_prior_all_parts_and_the_precision_stay_the_same():
    prior = GridTransformer(
        (4, 4, 3), 32, hidden_dim=8, num_layers=1, num_heads=2, intermediate_dim=16
    )
    model = make_model(dtype="mixed_bfloat16")
    both = model.with_prior(prior)
    assert both.dtype_policy.name == "mixed_bfloat16"
    own = {id(w) for w in model.weights}
    assert own == {id(w) for w in both.weights} - {id(w) for w in prior.weights}
    assert [layer.name for layer in both.layers].count("head") == 1


@pytest.mark.parametrize(
    "bottleneck",
    [
        layers.VQEMBottleneck(16, seed=0),
        pytest.param(
            layers.SemanticHashingBottleneck(4, seed=0), marks=pytest.mark.slow
        ),
        pytest.param(
            layers.ResidualBottleneck(layers.VQEMBottleneck(16, groups=2), 2),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["em", "hashing", "residual"],
)
def test_a_slot_per_code_of_a_vector(images, bottleneck, tmp_path):
    slots = bottleneck.groups.num_groups
    model = make_model(bottleneck)
    model.compile()
    model.fit({"images": images[:32]}, batch_size=16, verbose=0)
    codes = model.encode(images[:2])
    assert codes.shape == (2, 4, 4, slots)
    np.testing.assert_array_equal(model.decode(codes), model.reconstruct(images[:2]))
    prior = GridTransformer(
        (4, 4, slots), 16, hidden_dim=8, num_layers=1, num_heads=2, intermediate_dim=16
    )
    both = model.with_prior(prior)
    assert both.sample(2, seed=(0, 1)).shape == (2, 16, 16, 3)
    both.export(tmp_path / "1")
    found = tf.saved_model.load(str(tmp_path / "1")).signatures["decode"](
        codes=tf.cast(codes, "int32")
    )
    difference = np.asarray(found["images"], int) - np.asarray(model.decode(codes), int)
    assert np.abs(difference).max() <= 1


def test_a_prior_of_other_codes_is_refused():
    prior = GridTransformer(
        (4, 4, 3), 16, hidden_dim=8, num_layers=1, num_heads=2, intermediate_dim=16
    )
    with pytest.raises(ValueError, match="4 x 4 x 3 symbols out of 16.*out of 32"):
        make_model().with_prior(prior)
    with pytest.raises(ValueError, match="with_prior"):
        make_model().sample(1, seed=(0, 0))


@pytest.mark.slow
def test_exported_model_does_what_the_model_does(images, with_prior, tmp_path):
    with_prior.export(tmp_path / "1")
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    call = loaded.signatures
    given = tf.constant(images[:5])
    codes = call["encode"](images=given)["codes"]
    np.testing.assert_array_equal(codes, with_prior.encode(given))
    expected = with_prior.reconstruct(given)
    for found in (
        call["serving_default"](images=given),
        call["reconstruct"](images=given),
        call["decode"](codes=codes),
    ):
        # A float's last digit can decide on which side of a half it is rounded.
        difference = np.asarray(found["images"], int) - np.asarray(expected, int)
        assert np.abs(difference).max() <= 1 and (difference != 0).mean() < 0.001
    # Numbers that are no codes disturb nobody else.
    wrong = np.array(codes)
    wrong[0] = 10**6
    found = call["decode"](codes=tf.constant(wrong))["images"]
    difference = np.asarray(found[1:], int) - np.asarray(expected[1:], int)
    assert np.abs(difference).max() <= 1
    # A row is what it would be alone.
    for row in range(5):
        alone = call["encode"](images=given[row : row + 1])["codes"]
        np.testing.assert_array_equal(alone[0], codes[row])
        alone = call["reconstruct"](images=given[row : row + 1])["images"]
        difference = np.asarray(alone[0], int) - np.asarray(expected[row], int)
        assert np.abs(difference).max() <= 1
    seeds = [(1, 2), (3, 4), (1, 2)]
    drawn = call["sample"](seed=tf.constant(seeds))
    for seed, found in zip(seeds, drawn["codes"], strict=True):
        alone = with_prior.prior.sample(1, seed=seed)
        np.testing.assert_array_equal(found, alone[0])
    assert np.any(drawn["codes"][0] != drawn["codes"][1])
    np.testing.assert_array_equal(
        drawn["images"], call["decode"](codes=drawn["codes"])["images"]
    )
    assert call["sample"](seed=tf.zeros((0, 2), "int32"))["images"].shape[0] == 0
    # Warm-up requests are those of images.
    path = write_warmup(tmp_path / "1", images[:2], batch_sizes=(1, 3))
    for record, places in zip(
        tf.data.TFRecordDataset(str(path)), [[0], [1], [0, 1, 0]], strict=True
    ):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        asked = tf.make_ndarray(log.predict_log.request.inputs["images"])
        np.testing.assert_array_equal(asked, images[places])
    # And in a new process, of TensorFlow alone.
    np.savez(tmp_path / "found", given=given, codes=codes, drawn=drawn["codes"])
    script = f"""
import sys, numpy as np, tensorflow as tf
folder, seeds = {str(tmp_path)!r}, {seeds!r}
call = tf.saved_model.load(folder + "/1").signatures
with np.load(folder + "/found.npz") as known:
    given, codes = tf.constant(known["given"]), call["encode"](images=known["given"])
    assert (codes["codes"].numpy() == known["codes"]).all()
    assert (call["sample"](seed=seeds)["codes"].numpy() == known["drawn"]).all()
through = call["reconstruct"](images=given)["images"].numpy().astype(int)
assert abs(through - call["decode"](**codes)["images"].numpy()).max() <= 1
assert not {{"keras_vqem", "tensorflow_text"}} & set(sys.modules)
print("fine")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.endswith("fine\n"), done.stderr


def test_scaled_images_are_refused(images):
    model = make_model()
    for use in (model.encode, model.reconstruct, model.init_from_patches):
        with pytest.raises(ValueError, match="`images` must be integers from 0 to 255"):
            use(images[:8] / 255)


def test_levels_are_those_of_images():
    with pytest.raises(ValueError, match="Leave out its argument `levels`"):
        make_model(likelihood=layers.LogisticMixture(num_mixtures=2, levels=16))


def test_each_model_names_the_other_for_the_wrong_bottleneck():
    parts = (
        layers.PatchDecompressor(channels=8, pixel_channels=8),
        layers.LogisticMixture(num_mixtures=2),
    )
    compressor = layers.PatchCompressor(code_dim=8, channels=8)
    with pytest.raises(ValueError, match="GaussianBottleneck has no codes.*ImageVAE"):
        ImageVQVAE(compressor, layers.GaussianBottleneck(4), *parts)
    with pytest.raises(ValueError, match="VQBottleneck has none.*ImageVQVAE"):
        ImageVAE(compressor, layers.VQBottleneck(4), *parts)


def test_a_vae_draws_from_standard_normal_latents(images):
    model = make_model(layers.GaussianBottleneck(4, seed=0))
    model.init_from_patches(images)
    drawn = np.asarray(model.sample(3, seed=(0, 1)))
    assert drawn.shape == (3, 16, 16, 3) and drawn.dtype == "uint8"
    noise = tf.random.stateless_normal((3, 4, 4, 4), (0, 1))
    np.testing.assert_array_equal(drawn, model.decode(noise))
    assert np.any(drawn != np.asarray(model.sample(3, seed=(0, 2))))
    # At temperature 0 all latents are the mean.
    cold = np.asarray(model.sample(2, seed=(0, 1), temperature=0.0))
    np.testing.assert_array_equal(cold[0], cold[1])


def test_an_exported_vae_does_what_the_model_does(images, tmp_path):
    model = make_model(layers.GaussianBottleneck(4, seed=0))
    model.init_from_patches(images)
    model.export(tmp_path / "1")
    call = tf.saved_model.load(str(tmp_path / "1")).signatures
    given = tf.constant(images[:3])
    latents = call["encode"](images=given)["latents"]
    np.testing.assert_allclose(latents, model.encode(given), rtol=1e-5, atol=1e-5)
    expected = np.asarray(model.reconstruct(given), int)
    for found in (
        call["serving_default"](images=given),
        call["decode"](latents=latents),
    ):
        assert np.abs(np.asarray(found["images"], int) - expected).max() <= 1
