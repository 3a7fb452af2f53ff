"""LatentNMT with CTCOutput, its first codes and the end of codes."""

import keras
import numpy as np
import pytest

from keras_vqem import layers, models
from keras_vqem.models import ctc_words, word_outputs
from tests.models import small


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    model = small.latent_nmt(word_output=models.CTCOutput(upsample=3))
    small.sharpen(model, rng)
    model.compile(label_smoothing=0.0, run_eagerly=True)
    for _ in range(2):
        model(small.batch(rng, rows=8), training=True)
    return model


def test_loss_is_ctc_over_positions_of_the_source(trained, rng):
    inputs = small.batch(rng)
    inputs["source_ids"][1, 2:] = 0  # Six positions, too few for its target.
    inputs["target_ids"][1] = [5, 6, 7, 8, 9, 10, 11, 1]
    outputs = trained(inputs)
    assert outputs["logits"].shape == (6, 21, 29)
    mask = np.repeat(inputs["source_ids"] > 0, 3, axis=1)
    target_ids = inputs["target_ids"]
    loss, fits = layers.ctc_loss(outputs["logits"], target_ids, mask)
    loss, fits = loss.numpy(), fits.numpy()
    assert 0 < fits.sum() < len(fits)
    words = loss[fits].sum() / (target_ids > 0).sum(axis=1)[fits].sum()
    term = list(trained._loss_terms(inputs, outputs))[0]
    _, values, weights = term
    found = np.sum(values["loss"] * weights) / np.sum(weights)
    np.testing.assert_allclose(found, words, rtol=1e-5)


def test_start_from_a_translator_without_codes(rng):
    teacher = small.sharpen(small.ctc_translator(upsample=2), rng)
    model = small.latent_nmt(word_output=models.CTCOutput(upsample=2))
    model.warm_start(teacher)
    for name in ("encoder", "decoder", "upsampler"):
        mine, other = getattr(model, name).weights, getattr(teacher, name).weights
        for weight, same in zip(mine, other, strict=True):
            np.testing.assert_array_equal(weight, same)
    again = small.ctc_translator(upsample=2)
    again.warm_start(teacher)
    inputs = small.batch(rng)
    np.testing.assert_array_equal(again(inputs), teacher(inputs))
    with pytest.raises(ValueError, match="The upsampler of the teacher differs"):
        small.ctc_translator(upsample=3).warm_start(teacher)


def test_each_position_gets_the_code_at_its_place():
    rng = np.random.default_rng(1)
    mask, code_mask = np.zeros((20, 18), bool), np.zeros((20, 5), bool)
    for row in range(20):
        mask[row, : 3 * rng.integers(0, 7)] = True
        code_mask[row, : rng.integers(0, 6)] = True
    found = np.array(word_outputs._places(mask, code_mask))
    for row in range(20):
        total, number = mask[row].sum(), code_mask[row].sum()
        for place in range(total):
            expected = int(place * number / total) if number else 0
            assert found[row, place] == expected
    assert found.min() >= 0 and found.max() == 4


def test_a_row_is_translated_alike_alone_and_padded(trained, rng):
    source_ids = small.sentences(rng, 6, 7)
    options = {"max_codes": 3, "min_codes": 1}
    whole = trained.generate(source_ids, **options)
    wider = trained.generate(np.pad(source_ids, [[0, 0], [0, 3]]), **options)
    for row in range(6):
        ids = whole["target_ids"][row].numpy()
        alone = source_ids[row : row + 1, : (source_ids[row] > 0).sum()]
        one = trained.generate(alone, **options)
        for other in (one["target_ids"][0].numpy(), wider["target_ids"][row].numpy()):
            np.testing.assert_array_equal(other[other > 0], ids[ids > 0])
        np.testing.assert_allclose(one["scores"][0], whole["scores"][row], rtol=1e-4)


def test_words_and_scores_come_from_the_codes(trained, rng):
    source_ids = small.sentences(rng, 6, 7)
    found = trained.generate(source_ids, num_beams=3, max_codes=3, blank_bias=-1.0)
    ids = trained.decode_ids(source_ids, found["codes"], blank_bias=-1.0).numpy()
    width = min(ids.shape[1], found["target_ids"].shape[1])
    np.testing.assert_array_equal(ids[:, :width], found["target_ids"][:, :width])
    plain = trained.decode_ids(source_ids, found["codes"]).numpy()
    blanks = trained.decode_ids(source_ids, found["codes"], blank_bias=50.0).numpy()
    assert not (blanks > 0).any() and (plain > 0).any()
    # Codes matter: others give other words.
    other = (found["codes"].numpy() + 1) % 16
    assert (trained.decode_ids(source_ids, other).numpy() > 0).sum() != (
        plain > 0
    ).sum()
    memory, mask = trained.encode_source(source_ids)
    codes = np.where(found["codes"] < 16, found["codes"], 0)
    latents = trained.bottleneck.decode(codes)
    logits, there = trained._write(latents, found["codes"] < 16, memory, mask)
    expected = ctc_words.mean_log_prob(logits, there, found["target_ids"])
    np.testing.assert_allclose(found["scores"], expected, rtol=1e-4)


def test_several_translations_come_best_first(trained, rng):
    source_ids = small.sentences(rng, 4, 7)
    options = {"num_beams": 4, "max_codes": 3, "min_codes": 1}
    best = trained.generate(source_ids, **options)
    found = trained.generate(source_ids, num_return_sequences=3, **options)
    codes, scores = found["codes"].numpy(), found["scores"].numpy()
    assert found["target_ids"].shape[:2] == (4, 3) and scores.shape == (4, 3)
    assert (np.diff(scores, axis=1) <= 0).all()
    for name, value in best.items():
        np.testing.assert_array_equal(found[name][:, 0], value)
    for row in range(4):
        assert len({tuple(c) for c in codes[row].tolist()}) == 3
    # Each is what its codes write.
    flat = codes.reshape(12, -1)
    ids = trained.decode_ids(np.repeat(source_ids, 3, axis=0), flat).numpy()
    kept = found["target_ids"].numpy().reshape(12, -1)
    for one, other in zip(ids, kept, strict=True):
        np.testing.assert_array_equal(one[one > 0], other[other > 0])
    texts = trained.translate(["abc", "de"], num_return_sequences=2, num_beams=2)
    assert [len(of_one) for of_one in texts] == [2, 2]
    with pytest.raises(ValueError, match="Pass num_beams=3"):
        trained.generate(source_ids, num_return_sequences=3)


def test_codes_are_sampled_from_the_predictor(trained, rng):
    """The first codes of many draws against the predictor's probabilities."""
    source_ids = small.sentences(rng, 2, 5)
    number = 3000
    options = {"temperature": 0.7, "max_codes": 1, "min_codes": 1}
    found = trained.generate(source_ids, num_return_sequences=number, seed=5, **options)
    again = trained.generate(source_ids, num_return_sequences=5, seed=5, **options)
    assert again["codes"].shape[:2] == (2, 5)
    memory, mask = trained.encode_source(source_ids)
    logits = trained.predictor(np.zeros((2, 0), "int32"), memory, memory_mask=mask)
    logits = logits[:, 0, :16].numpy().astype("float64") / 0.7
    p = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    for row in range(2):
        counts = np.bincount(found["codes"][row, :, 0], minlength=16)[:16]
        error = np.abs(counts / number - p[row])
        assert (error < 5 * np.sqrt(p[row] * (1 - p[row]) / number) + 1e-3).all()
    one = trained.generate(source_ids, seed=5, **options)
    assert one["codes"].shape[0] == 2 and len(one["codes"].shape) == 2
    with pytest.raises(ValueError, match="num_beams=1"):
        trained.generate(source_ids, num_beams=2, **options)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_first_code_is_given_per_row(trained, rng, beams):
    source_ids = small.sentences(rng, 4, 7)
    options = {"num_beams": beams, "max_codes": 3}
    free = trained.generate(source_ids, **options)["codes"].numpy()
    for first in range(0, 16, 5):
        codes = trained.generate(source_ids, first_code=first, **options)["codes"]
        np.testing.assert_array_equal(codes[:, 0], first)
    mixed = trained.generate(
        source_ids, first_code=np.array([-1, 3, -1, 15]), **options
    )["codes"].numpy()
    assert mixed[1, 0] == 3 and mixed[3, 0] == 15
    np.testing.assert_array_equal(mixed[::2], free[::2, : mixed.shape[1]])
    # The codes after it are those that the predictor finds most probable.
    if beams == 1:
        memory, mask = trained.encode_source(source_ids)
        logits = trained.predictor(mixed[:, :1], memory, memory_mask=mask)
        best = np.argmax(logits[:, 1], axis=-1)
        np.testing.assert_array_equal(mixed[:, 1], best)


def test_styles_name_first_codes(rng):
    model = small.latent_nmt(styles={"formal": 3, "informal": 5})
    model.compile(run_eagerly=True)
    model(small.batch(rng), training=True)
    small.sharpen(model, np.random.default_rng(0))
    source_ids = small.sentences(rng, 3, 7)
    for style, code in model.styles.items():
        named = model.generate(source_ids, style=style, max_codes=3)["codes"]
        given = model.generate(source_ids, first_code=code, max_codes=3)["codes"]
        np.testing.assert_array_equal(named, given)
    texts = ["abc", "hello"]
    assert model.translate(texts, style="formal") == model.translate(
        texts, first_code=3
    )
    model.generation_config = {"style": "formal"}
    assert model.translate(texts) == model.translate(texts, first_code=None)
    again = models.LatentNMT.from_config(model.get_config())
    assert again.styles == model.styles
    assert again.generation_config == {"style": "formal"}
    with pytest.raises(ValueError, match="no style 'rude'; it has 'formal', 'infor"):
        model.generate(source_ids, style="rude")
    with pytest.raises(ValueError, match="Pass one of them"):
        model.generate(source_ids, style="formal", first_code=1)
    with pytest.raises(ValueError, match="codes below 16"):
        model.styles = {"loud": 16}


def test_codes_end_where_the_end_is_probable_enough(trained, rng):
    """Against the predictor step by step."""
    source_ids = small.sentences(rng, 5, 7)
    memory, mask = trained.encode_source(source_ids)
    found = {}
    for threshold in (0.0, 0.04, 0.06, 1.0):
        codes = trained.predictor.search(
            memory, mask, max_length=5, end_threshold=threshold
        ).numpy()
        found[threshold] = codes
        for row in range(5):
            so_far = []
            while len(so_far) < 4:
                before = np.array([so_far], "int32").reshape(1, -1)
                logits = trained.predictor(
                    before, memory[row : row + 1], memory_mask=mask[row : row + 1]
                )[0, -1].numpy()
                p = np.exp(logits - np.logaddexp.reduce(logits))
                if p[16] > threshold:
                    break
                so_far.append(int(np.argmax(logits[:16])))
            ended = codes[row][codes[row] < 16]
            assert ended[:4].tolist() == so_far
    lengths = {t: (c < 16).sum() for t, c in found.items()}
    assert lengths[0.0] == 0 and lengths[0.0] < lengths[1.0]
    at_least = trained.predictor.search(
        memory, mask, max_length=5, min_length=2, end_threshold=0.0
    ).numpy()
    np.testing.assert_array_equal((at_least < 16).sum(axis=1), 2)


def test_a_blank_needs_ctc(rng):
    model = small.latent_nmt()
    with pytest.raises(ValueError, match="has no blank"):
        model.decode_ids(
            small.sentences(rng, 2, 5), np.zeros((2, 1), int), blank_bias=-1.0
        )


def test_it_survives_saving(trained, rng, tmp_path):
    trained.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.word_output.upsample == 3
    source_ids = small.sentences(rng, 3, 7)
    for name, value in trained.generate(source_ids, max_codes=3).items():
        np.testing.assert_array_equal(
            value, again.generate(source_ids, max_codes=3)[name]
        )


@pytest.mark.parametrize("groups", [pytest.param(None, marks=pytest.mark.slow), 2])
def test_the_e_step_follows_the_predictor(rng, groups):
    """With a heavy prior, hard codes are those that the predictor names."""
    bottleneck = layers.VQEMBottleneck(16, groups=groups, seed=1)
    model = small.latent_nmt(bottleneck, prior_weight=1e6)
    model.compile(run_eagerly=True)
    inputs = small.batch(rng)
    model(inputs, training=True)  # Places the codebook.
    small.sharpen(model, np.random.default_rng(0))
    memory, mask = model.encode_source(inputs["source_ids"])
    nearest = model(inputs)["codes"]
    logits = model.predictor(nearest, memory, memory_mask=mask)[:, :-1, :16]
    expected = np.argmax(logits, axis=-1)
    assert (expected != nearest.numpy()).any()
    found = model(inputs, training=True)
    there = found["code_mask"].numpy()
    np.testing.assert_array_equal(found["codes"].numpy()[there], expected[there])
    # Only in training, and only once the bypass is over.
    np.testing.assert_array_equal(model(inputs)["codes"].shape, nearest.shape)
    early = small.latent_nmt(bottleneck, prior_weight=1e6, bypass_steps=100)
    early.set_weights(model.get_weights())
    early.steps.assign(0)
    plain = early(inputs)["codes"].numpy()
    codes = early(inputs, training=True)["codes"].numpy()
    np.testing.assert_array_equal(codes[there], plain[there])


def test_a_prior_needs_a_codebook():
    with pytest.raises(ValueError, match="Leave `prior_weight` out"):
        small.latent_nmt(layers.GumbelSoftmaxBottleneck(16), prior_weight=1.0)
