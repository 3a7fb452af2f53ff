"""CTCTranslator: the loss is that of CTC, words are read off one pass."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.optimizers.schedules import PolynomialDecay

from keras_vqem import decoding, layers, models
from tests.conformance import checks
from tests.models import small


@pytest.fixture
def model(rng):
    return small.sharpen(small.ctc_translator(), rng, scale=1.5)


def fit(model, inputs, steps, **options):
    data = tf.data.Dataset.from_tensors(inputs).repeat()
    return model.fit(data, steps_per_epoch=steps, verbose=0, **options).history


def logits_alone(model, source):
    """Logits of one sentence without padding."""
    return model({"source_ids": source[source > 0][None]})


def strip(row):
    return [int(i) for i in row if i]


def log_softmax(x):
    x = np.asarray(x, "float64")
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_each_source_token_becomes_positions(rng):
    model = small.ctc_translator(upsample=3)
    source_ids = small.sentences(rng, 4, 5)
    assert model({"source_ids": source_ids}).shape == (4, 15, 29)
    with pytest.raises(ValueError, match="`upsample` must be a whole number"):
        small.ctc_translator(upsample=0)


def test_padding_changes_nothing(model, rng):
    source_ids = small.sentences(rng, 4, 6)
    logits = model({"source_ids": source_ids}).numpy()
    padded = np.pad(source_ids, [[0, 0], [0, 3]])
    np.testing.assert_allclose(model({"source_ids": padded})[:, :12], logits, atol=1e-4)
    for row, source in enumerate(source_ids):
        alone = logits_alone(model, source)[0]
        np.testing.assert_allclose(alone, logits[row, : len(alone)], atol=1e-4)
    inputs = {"source_ids": source_ids, "target_ids": small.sentences(rng, 4, 5)}
    losses = []
    for pad in (0, 3):
        batch = {k: np.pad(v, [[0, 2], [0, pad]]) for k, v in inputs.items()}
        model.compile(label_smoothing=0.1)
        losses.append(model.compute_loss(x=batch, y_pred=model(batch)))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_that_of_ctc_over_tokens(model, rng, smoothing):
    """Against TensorFlow's, row by row, with a row whose target does not fit."""
    inputs = small.batch(rng, rows=6, source=7, target=8)
    inputs["source_ids"][3] = [5, 1, 0, 0, 0, 0, 0]  # Four positions,
    inputs["target_ids"][3] = [4, 5, 6, 7, 1, 0, 0, 0]  # five tokens.
    inputs = {name: np.pad(ids, [[0, 1], [0, 0]]) for name, ids in inputs.items()}
    model.compile(label_smoothing=smoothing)
    found = model.compute_loss(x=inputs, y_pred=model(inputs))
    total = plain = tokens = unfit = 0
    for source, target in zip(inputs["source_ids"], inputs["target_ids"], strict=True):
        if not target.any():
            continue
        log_p, target = log_softmax(logits_alone(model, source)), target[target > 0]
        repeats = (target[1:] == target[:-1]).sum()
        if len(target) + repeats > log_p.shape[1]:
            unfit += 1
            continue
        nll = tf.nn.ctc_loss(
            target[None].astype("int32"),
            log_p.astype("float32"),
            [len(target)],
            [log_p.shape[1]],
            logits_time_major=False,
            blank_index=0,
        )[0].numpy()
        plain += nll
        total += (1 - smoothing) * nll - smoothing * log_p.mean(-1).sum()
        tokens += len(target)
    assert unfit >= 1
    np.testing.assert_allclose(found, total / tokens, rtol=1e-4)
    np.testing.assert_allclose(model.token_nll.result(), plain / tokens, rtol=1e-4)
    np.testing.assert_allclose(model.unfit.result(), unfit / 6, rtol=1e-6)


def test_smoothing_is_that_of_each_positions_label(model, rng):
    """The gradient is what the position says less the smoothed label."""
    inputs = small.batch(rng, rows=3, source=7, target=5)
    logits = tf.constant(model(inputs))
    mask = np.repeat(inputs["source_ids"] > 0, 2, axis=1)

    def slope(smoothing):
        model.compile(label_smoothing=smoothing)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            loss = model.compute_loss(x=inputs, y_pred=logits)
        tokens = np.count_nonzero(inputs["target_ids"])
        return tape.gradient(loss, logits).numpy() * tokens

    said = np.exp(log_softmax(logits))
    labels = said - slope(0.0)
    smoothed = 0.8 * labels + 0.2 / 29
    expected = np.where(mask[..., None], said - smoothed, 0.0)
    np.testing.assert_allclose(slope(0.2), expected, atol=1e-5)


def test_one_pass_is_the_best_path(model, rng):
    source_ids = small.sentences(rng, 6, 7)
    for bias in (0.0, -4.0):
        found = model.generate(source_ids, blank_bias=bias)
        for row, source in enumerate(source_ids):
            logits = logits_alone(model, source)
            path = decoding.ctc_best_path(logits, end_id=1, blank_bias=bias)
            words = strip(found["target_ids"][row].numpy())
            assert words == strip(path[0].numpy())
            loss, _ = layers.ctc_loss(logits, path)
            np.testing.assert_allclose(
                found["scores"][row], -loss[0] / len(words), rtol=1e-4
            )
    # A translation is no wider than its longest row, and ends with the first end.
    ids = found["target_ids"].numpy()
    assert (ids[:, -1] != 0).any() and ((ids == 1).sum(1) <= 1).all()


def test_a_negative_bias_of_the_blank_writes_more(model, rng):
    source_ids = small.sentences(rng, 8, 9)
    for options in ({}, {"num_beams": 3}):
        few, many = (
            np.count_nonzero(model.translate_ids(source_ids, blank_bias=b, **options))
            for b in (4.0, -4.0)
        )
        assert few < many


def test_beams_are_those_of_prefix_beam_search(model, rng):
    source_ids = small.sentences(rng, 5, 6)
    options = {"num_beams": 4, "top_k": 5, "length_bonus": 0.7, "length_penalty": 0.5}
    found = model.generate(source_ids, blank_bias=-1.0, **options)
    greedy = model.translate_ids(source_ids, blank_bias=-1.0).numpy()
    for row, source in enumerate(source_ids):
        logits = logits_alone(model, source).numpy()
        biased = logits.copy()
        biased[..., 0] -= 1.0
        ids, _ = decoding.ctc_prefix_beam_search(biased, end_id=1, **options)
        words = strip(found["target_ids"][row].numpy())
        assert words == strip(ids[0, 0].numpy())
        # The score is the probability by the model itself.
        loss, _ = layers.ctc_loss(logits, ids[:, 0])
        np.testing.assert_allclose(
            found["scores"][row], -loss[0] / len(words), rtol=1e-4
        )
    assert any(
        strip(a) != strip(b)
        for a, b in zip(greedy, found["target_ids"].numpy(), strict=True)
    )


def test_a_rescorer_chooses_among_the_beams(model):
    """Against each candidate scored by itself."""
    rng = np.random.default_rng(3)
    teacher = small.sharpen(small.transformer(), rng)
    source_ids = small.sentences(rng, 5, 7)
    found = model.generate(source_ids, num_beams=4, rescorer=teacher)
    for row in range(5):
        source = source_ids[row : row + 1]
        logits = logits_alone(model, source[0])
        beams, _ = decoding.ctc_prefix_beam_search(logits, end_id=1, num_beams=4)
        best = (-np.inf, None)
        for ids in beams[0].numpy():
            words = strip(ids)
            inputs = {"source_ids": source, "target_ids": np.array([words])}
            log_p = log_softmax(teacher(inputs))[0]
            score = np.mean(log_p[np.arange(len(words)), words])
            best = max(best, (score, words))
        np.testing.assert_allclose(found["scores"][row], best[0], rtol=1e-4)
        assert strip(found["target_ids"][row].numpy()) == best[1]
    # It is a choice of its own.
    own = model.translate(["abcdef", "xyz", "qw"], num_beams=4)
    assert own != model.translate(
        ["abcdef", "xyz", "qw"], num_beams=4, rescorer=teacher
    )
    words = type("Tokenizer", (small.LetterTokenizer,), {"vocabulary_size": 30})()
    other = models.Transformer(words, **small.SIZES)
    with pytest.raises(ValueError, match="vocabulary of 30 ids, .* one of 29"):
        model.generate(source_ids, num_beams=2, rescorer=other)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}])
def test_translations_of_nothing(model, options):
    teacher = small.transformer()
    for shape in ((0, 0), (0, 3), (2, 0), (2, 3)):
        source_ids = np.zeros(shape, "int32")
        for rescorer in (None, teacher):
            found = model.generate(source_ids, rescorer=rescorer, **options)
            assert found["target_ids"].shape[0] == shape[0]
            assert not np.any(found["target_ids"])
            assert np.all(found["scores"] == np.full(shape[0], -1e9, "float32"))
    with pytest.raises(ValueError, match="`num_beams` must be a whole number"):
        model.generate(np.ones((1, 2), "int32"), num_beams=0)


def test_words_of_the_middle_have_their_own_loss(rng, tmp_path):
    model = small.sharpen(small.ctc_translator(), rng)
    inputs = small.batch(rng)
    model.compile(label_smoothing=0.0, middle_weight=0.5)
    whole, middle = model(inputs, training=True)
    np.testing.assert_allclose(whole, model(inputs), atol=1e-5)  # There is no dropout.
    # The middle is what a model with the first half of the blocks writes.
    half = small.ctc_translator(num_decoder_layers=1)
    for layer in ("embedding", "encoder", "upsampler"):
        getattr(half, layer).set_weights(getattr(model, layer).get_weights())
    for mine, other in (
        (half.decoder.blocks[0], model.decoder.blocks[0]),
        (half.decoder.norm, model.decoder.norm),
    ):
        mine.set_weights(other.get_weights())
    np.testing.assert_allclose(middle, half(inputs), atol=1e-5)
    losses = {}
    for name, part in (("whole", model), ("half", half)):
        part.compile(label_smoothing=0.0)
        losses[name] = part.compute_loss(x=inputs, y_pred=part(inputs))
    model.compile(label_smoothing=0.0, middle_weight=0.5)
    found = model.compute_loss(x=inputs, y_pred=(whole, middle))
    expected = losses["whole"] + 0.5 * losses["half"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(model.middle_nll.result(), losses["half"], rtol=1e-5)
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").middle_weight == 0.5


def test_start_from_a_teacher(rng):
    teacher = small.sharpen(small.transformer(), rng)
    model = small.ctc_translator()
    model.warm_start(teacher)
    source_ids = small.sentences(rng, 3, 6)
    np.testing.assert_array_equal(
        model.encode_source(source_ids)[0], teacher.encode_source(source_ids)[0]
    )
    for mine, other in zip(model.decoder.weights, teacher.decoder.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
    with pytest.raises(ValueError, match="The encoder of the teacher differs in size"):
        model.warm_start(small.transformer(intermediate_dim=8))


@pytest.mark.slow
@pytest.mark.parametrize("jit", [False, True])
def test_it_learns_to_copy_and_translates_in_order(rng, jit):
    glancing = PolynomialDecay(0.5, 200, 0.0) if jit else 0.0
    model = small.ctc_translator(glancing=glancing)
    model.compile(keras.optimizers.Adam(0.01), label_smoothing=0.05, jit_compile=jit)
    ids = small.sentences(rng, 256, 4, low=24)
    history = fit(model, {"source_ids": ids, "target_ids": ids}, steps=250)
    assert history["unfit"] == [0.0]
    texts = ["vwx", "z", "yy", "w", "zv"]
    assert model.translate(texts, batch_size=2) == texts
    assert model.translate(texts, num_beams=3) == texts
    assert model.translate([]) == []


def test_training_shows_some_of_what_is_wrong(rng):
    model = small.sharpen(small.ctc_translator(glancing=0.5), rng, scale=1.5)
    source_ids = np.repeat(small.sentences(rng, 1, 6), 400, axis=0)
    target_ids = np.repeat(small.sentences(rng, 1, 5), 400, axis=0)
    source_ids[200:, 3:] = [1, 0, 0]
    logits, mask = (np.array(x) for x in model._write(source_ids))
    x = np.zeros((400, 12, 16), "float32")
    aligned = layers.ctc_alignment(logits, target_ids, mask).numpy()
    logits[:, :2] += 99.0 * keras.ops.one_hot(aligned[:, :2], 29)  # Two are right.
    found = np.asarray(model._glance(x, tf.constant(logits), target_ids, mask))
    shown = found.any(-1)
    assert not shown[~mask].any()
    np.testing.assert_array_equal(
        found, np.where(shown[..., None], model.embedding(aligned), 0.0)
    )
    wrong = (logits.argmax(-1) != aligned) & mask
    assert not wrong[:, :2].any() and wrong.sum() > 1000
    for rows in (slice(200), slice(200, 400)):
        share = shown[rows].sum() / wrong[rows].sum()
        np.testing.assert_allclose(share, 0.5, atol=0.06)
    # The decoder is shown nothing when it is used, and something when it learns.
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    plain = model(inputs, training=False).numpy()
    np.testing.assert_allclose(plain, model({"source_ids": source_ids}), atol=1e-6)
    assert np.abs(model(inputs, training=True) - plain).max() > 1e-3
    with pytest.raises(ValueError, match="`glancing` must be a number from 0 to 1"):
        small.ctc_translator(glancing=1.5)


@pytest.mark.slow
def test_glancing_follows_its_schedule(rng, tmp_path):
    model = small.ctc_translator(glancing=PolynomialDecay(0.5, 10, 0.0))
    model.compile()
    fit(model, small.batch(rng), steps=4)
    model.evaluate(small.batch(rng), verbose=0)
    np.testing.assert_allclose(model.glancing.value(), 0.3, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again.glancing.value(), 0.3, rtol=1e-5)


def test_saved_model_is_the_same_in_a_new_object(model, rng, tmp_path):
    model.compile(label_smoothing=0.2)
    model.generation_config = {"blank_bias": -2.0}
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    inputs = small.batch(rng)
    np.testing.assert_array_equal(model(inputs), again(inputs))
    assert again.label_smoothing == 0.2
    expected = model.translate_ids(inputs["source_ids"], blank_bias=-2.0)
    np.testing.assert_array_equal(again.translate_ids(inputs["source_ids"]), expected)


def test_a_preset_is_the_same_model(rng, tmp_path):
    model = small.exportable("CTCTranslator")
    model.generation_config = {"blank_bias": -1.0, "num_beams": 2}
    model.save_to_preset(tmp_path / "preset")
    again = models.CTCTranslator.from_preset(tmp_path / "preset")
    texts = ["twenty-one", "half past two"]
    assert again.generation_config == model.generation_config
    assert again.translate(texts) == model.translate(texts)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_with_rows_of_padding(policy, rng):
    model = small.ctc_translator(dtype=policy)
    model.compile(label_smoothing=0.1)
    inputs = {k: np.pad(ids, [[0, 2], [0, 0]]) for k, ids in small.batch(rng).items()}
    outputs = model(inputs, training=True)
    assert outputs.dtype == policy[6:]
    loss = model.compute_loss(x=inputs, y_pred=outputs)
    assert loss.dtype == "float32" and np.isfinite(loss)
    for num_beams in (1, 2):
        found = model.generate(inputs["source_ids"], num_beams=num_beams)
        assert found["scores"].dtype == "float32"
        assert not found["target_ids"][-2:].numpy().any()
    assert np.isfinite(fit(model, inputs, steps=2)["loss"][0])


@pytest.mark.slow
def test_rows_that_do_not_fit_on_two_replicas(rng, strategy):
    inputs = small.batch(rng, rows=8)
    inputs["source_ids"][5] = [5, 1, 0, 0, 0, 0, 0]  # One of them does not fit.
    inputs["target_ids"][5] = [4, 5, 6, 7, 8, 1, 0, 0]

    def make():
        return small.ctc_translator(num_encoder_layers=1, num_decoder_layers=1)

    one, two = (checks.trained(make, inputs, scope) for scope in (None, strategy))
    checks.assert_trained_alike(one, two)
