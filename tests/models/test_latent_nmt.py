"""LatentNMT: its losses are the equations', padding is nothing, codes do the work."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem import layers, models
from keras_vqem.models import latent_training
from tests.models import small

BOTTLENECKS = {
    "hard_em": lambda: layers.VQEMBottleneck(16, decay=0.9, seed=1),
    "soft_em": lambda: layers.VQEMBottleneck(16, num_samples=3, seed=1),
    "slices": lambda: layers.VQEMBottleneck(16, groups=2, num_samples=3, seed=1),
    "vq": lambda: layers.VQBottleneck(16),
    "gumbel": lambda: layers.GumbelSoftmaxBottleneck(16, seed=1),
    "semantic_hashing": lambda: layers.SemanticHashingBottleneck(4, seed=1),
    "residual": lambda: layers.ResidualBottleneck(
        layers.VQEMBottleneck(16, groups=2, num_samples=3, seed=1), 2
    ),
}


def fit(model, inputs, steps=2, **options):
    data = tf.data.Dataset.from_tensors(inputs).repeat()
    return model.fit(data, steps_per_epoch=steps, verbose=0, **options).history


@pytest.fixture(scope="module")
def trained():
    """A model whose codebook has been placed, with lively weights."""
    rng = np.random.default_rng(0)
    model = small.sharpen(small.latent_nmt(), rng)
    model.compile(label_smoothing=0.0, run_eagerly=True)
    for _ in range(2):
        model(small.batch(rng, rows=8), training=True)
    return model


@pytest.mark.parametrize("name", BOTTLENECKS)
def test_any_bottleneck_with_codes_trains_and_translates(name, rng):
    model = small.latent_nmt(BOTTLENECKS[name]())
    model.compile(run_eagerly=True)
    history = fit(model, small.batch(rng))
    groups = {"slices": 2, "residual": 4}.get(name, 1)
    for key in ("token_nll", "code_nll", "bottleneck_loss", "perplexity"):
        assert np.isfinite(history[key]).all()
    source_ids = small.sentences(rng, 2, 4)
    assert model.translate_ids(source_ids, num_beams=2, max_codes=3).shape[0] == 2
    assert model.translate_ids(source_ids, min_codes=1, max_codes=1).shape[0] == 2
    codes = model.encode_ids(**small.batch(rng)).numpy()
    assert codes.shape[1] % groups == 0 and codes.min() >= 0 and codes.max() <= 16


def test_a_bottleneck_without_codes_is_refused():
    with pytest.raises(ValueError, match="GaussianBottleneck has none"):
        small.latent_nmt(layers.GaussianBottleneck(4))


def test_code_loss_is_the_soft_cross_entropy_with_the_end(rng):
    bottleneck = layers.VQEMBottleneck(16, num_samples=4, temperature=50.0, seed=1)
    model = small.sharpen(small.latent_nmt(bottleneck), rng)
    inputs = small.batch(rng)
    model(inputs, training=True)
    outputs = model(inputs, training=True)
    logits = outputs["code_logits"].numpy().astype("float64")
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    labels = bottleneck.assignments(outputs["samples"]).numpy()
    assert ((labels > 0) & (labels < 1)).any()
    terms = []
    numbers = -(-(inputs["target_ids"] > 0).sum(1) // 4)
    for row, number in enumerate(numbers):
        terms += [-(labels[row, i] * logits[row, i, :16]).sum() for i in range(number)]
        terms.append(-logits[row, number, 16])
    _, (_, values, weights) = model._loss_terms(inputs, outputs)
    assert float(np.sum(weights)) == len(terms) == numbers.sum() + len(numbers)
    found = np.sum(values["loss"] * weights) / np.sum(weights)
    np.testing.assert_allclose(found, np.mean(terms), rtol=1e-5)


def test_the_loss_is_the_sum_of_its_parts(trained, rng):
    result = trained.evaluate(
        tf.data.Dataset.from_tensors(small.batch(rng)), verbose=0, return_dict=True
    )
    parts = ("token_nll", "code_nll", "bottleneck_loss")
    assert all(result[part] > 0 for part in parts)
    np.testing.assert_allclose(
        result["loss"], sum(result[part] for part in parts), rtol=1e-5
    )


def test_padding_changes_nothing(trained, rng):
    inputs = small.batch(rng)
    longer = {key: np.pad(ids, [[0, 0], [0, 9]]) for key, ids in inputs.items()}
    few, many = trained(inputs), trained(longer)
    real = inputs["target_ids"] > 0
    np.testing.assert_allclose(
        few["logits"][real], many["logits"][:, : real.shape[1]][real], atol=1e-4
    )
    there = few["code_mask"].numpy()
    assert there.any(axis=1).all() and not there.all()
    number = there.shape[1]
    np.testing.assert_array_equal(few["codes"][there], many["codes"][:, :number][there])
    np.testing.assert_array_equal(many["code_mask"][:, number:], False)
    few_loss = trained.compute_loss(x=inputs, y_pred=few)
    many_loss = trained.compute_loss(x=longer, y_pred=many)
    np.testing.assert_allclose(few_loss, many_loss, rtol=1e-4)


def test_rows_of_padding_weigh_nothing(trained, rng):
    inputs = small.batch(rng)
    filled = {key: np.pad(ids, [[0, 3], [0, 0]]) for key, ids in inputs.items()}
    loss = trained.compute_loss(x=inputs, y_pred=trained(inputs))
    with_rows = trained.compute_loss(x=filled, y_pred=trained(filled))
    np.testing.assert_allclose(loss, with_rows, rtol=1e-5)


def test_translation_is_predicted_codes_decoded(trained, rng):
    source_ids = small.sentences(rng, 6, 7)
    whole = trained.translate_ids(source_ids, min_codes=2).numpy()
    memory, mask = trained.encode_source(source_ids)
    limits = -(-(2 * (source_ids > 0).sum(1) + 10) // 4) + 1
    codes = trained.predictor.search(memory, mask, max_length=limits, min_length=2)
    for row in range(6):
        # One by one: the batch has no part in it.
        alone = source_ids[row : row + 1, : (source_ids[row] > 0).sum()]
        one = trained.translate_ids(alone, min_codes=2).numpy()[0]
        np.testing.assert_array_equal(one[one > 0], whole[row][whole[row] > 0])
    words = trained.decode_ids(source_ids, codes).numpy()
    width = min(words.shape[1], whole.shape[1])
    np.testing.assert_array_equal(words[:, :width], whole[:, :width])


def test_of_several_sequences_of_codes_the_surest_words_win(trained, rng):
    source_ids = small.sentences(rng, 6, 7)
    found = trained.translate_ids(source_ids, num_beams=3, min_codes=2, max_codes=4)
    greedy = trained.translate_ids(source_ids, min_codes=2, max_codes=4).numpy()
    for row in range(6):
        alone = source_ids[row : row + 1]
        memory, mask = trained.encode_source(alone)
        candidates = trained.predictor.search(
            memory, mask, max_length=5, min_length=2, num_beams=3, all_beams=True
        )[0].numpy()
        best = (-np.inf, None)
        for codes in candidates:
            codes = codes[codes < 16][None]
            there = np.ones(codes.shape, bool)
            latents = trained.bottleneck.decode(codes)
            logits = trained._write(latents, there, memory, mask)[0][0].numpy()
            log_p = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
            ids = trained.decode_ids(alone, codes).numpy()[0]
            places = np.flatnonzero(ids)
            score = log_p[places, ids[places]].mean()
            best = max(best, (score, ids[places].tolist()), key=lambda b: b[0])
        row_found = found[row].numpy()
        assert row_found[row_found > 0].tolist() == best[1]
    width = min(greedy.shape[1], found.shape[1])
    assert (greedy[:, :width] != found.numpy()[:, :width]).any()


def test_a_rescorer_chooses_among_the_beams(trained):
    """Against each candidate scored by itself."""
    rng = np.random.default_rng(3)
    teacher = small.sharpen(small.transformer(), rng)
    source_ids = small.sentences(rng, 5, 7)
    options = {"num_beams": 4, "max_codes": 3}
    found = trained.generate(source_ids, rescorer=teacher, **options)
    memory, mask = trained.encode_source(source_ids)
    codes = trained.predictor.search(
        memory, mask, max_length=4, min_length=0, num_beams=4, all_beams=True
    )
    for row in range(5):
        source, best = source_ids[row : row + 1], (-np.inf, None)
        for beam in range(4):
            ids = np.asarray(trained.decode_ids(source, codes[row, beam][None]))[0]
            places = np.flatnonzero(ids)
            if len(places):
                inputs = {"source_ids": source, "target_ids": ids[None]}
                logits = np.asarray(teacher(inputs), "float64")[0]
                log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
                score = np.mean(log_p[places, ids[places]])
                best = max(best, (score, tuple(ids[places])))
        np.testing.assert_allclose(found["scores"][row], best[0], rtol=1e-4)
        chosen = np.asarray(found["target_ids"][row])
        assert tuple(chosen[chosen != 0]) == best[1]
    # It is a choice of its own.
    own = trained.generate(source_ids, **options)
    assert (np.asarray(own["codes"]) != np.asarray(found["codes"])).any()
    words = type("Tokenizer", (small.LetterTokenizer,), {"vocabulary_size": 30})()
    other = models.Transformer(words, **small.SIZES)
    with pytest.raises(ValueError, match="vocabulary of 30 ids, .* one of 29"):
        trained.generate(source_ids, rescorer=other)


def test_codes_reach_the_words_and_words_the_codes(trained, rng):
    inputs = small.batch(rng, rows=4)
    codes = trained.encode_ids(**inputs).numpy()
    logits = trained(inputs)["logits"].numpy()
    other = {**inputs, "target_ids": small.sentences(rng, 4, 8)}
    assert (codes != trained.encode_ids(**other).numpy()).any()
    # Words are read from the codes alone: with the codes of others come their words.
    assert np.abs(logits - trained(other)["logits"]).max() > 1e-3


def test_words_end_at_the_first_end(trained, rng):
    source_ids = small.sentences(rng, 16, 7)
    embeddings = trained.embedding.embeddings.numpy()
    found = trained.translate_ids(source_ids, min_codes=4).numpy()
    # What it writes most becomes the end.
    often = np.bincount(found[found > 1]).argmax()
    swapped = embeddings.copy()
    swapped[[1, often]] = embeddings[[often, 1]]
    trained.embedding.embeddings.assign(swapped)
    found = trained.translate_ids(source_ids, min_codes=4).numpy()
    trained.embedding.embeddings.assign(embeddings)
    ends = (found == 1).sum(1)
    assert ends.max() == 1
    for row in found[ends == 1]:
        assert (row[np.argmax(row == 1) + 1 :] == 0).all()


def test_the_decoder_meets_vectors_then_codes_then_predictions(rng):
    model = small.latent_nmt(bypass_steps=4, predicted_share=0.5)
    inputs = small.batch(rng)
    for _ in range(3):
        model(inputs, training=True)
    assert int(model.steps) == 3
    model(inputs, training=False)
    assert int(model.steps) == 3

    vectors, quantized = np.full((2, 400, 1, 16), [[[[7.0]]], [[[8.0]]]], "float32")
    code_logits = np.zeros((400, 2, 17), "float32")
    code_logits[:, 0, 5] = 1.0  # and the end, number 16, is not a code
    code_logits[:, :, 16] = 2.0
    fifth = model.bottleneck.decode(np.array([[5]]))[0, 0].numpy()
    shares = []
    for step in range(1, 6):
        model.steps.assign(step)
        found = latent_training.mix(model, vectors, quantized, code_logits).numpy()[
            :, 0
        ]
        kinds = [np.all(found == kind, axis=-1) for kind in (7.0, 8.0, fifth)]
        assert np.sum(kinds) == 400
        shares.append(np.mean(kinds, axis=1))
    expected = [
        [0.75, 0.25, 0.0],
        [0.5, 0.5, 0.0],
        [0.25, 0.75, 0.0],
        [0.0, 0.5, 0.5],
        [0.0, 0.5, 0.5],
    ]
    np.testing.assert_allclose(shares, expected, atol=0.08)


def test_start_from_a_teacher(rng):
    teacher = small.sharpen(small.transformer(), rng)
    model = small.latent_nmt()
    model.warm_start(teacher)
    source_ids = small.sentences(rng, 3, 6)
    np.testing.assert_array_equal(
        model.encode_source(source_ids)[0], teacher.encode_source(source_ids)[0]
    )
    with pytest.raises(ValueError, match="The encoder of the teacher differs in size"):
        model.warm_start(small.transformer(intermediate_dim=8))


@pytest.mark.slow
def test_it_learns_to_copy(rng):
    bottleneck = layers.VQEMBottleneck(64, num_samples=5, decay=0.9, seed=1)
    model = small.latent_nmt(
        bottleneck, bypass_steps=100, num_compress_steps=1, hidden_dim=32
    )
    model.compile(keras.optimizers.Adam(0.005), label_smoothing=0.0)
    ids = small.sentences(rng, 128, 4, low=24)
    history = fit(model, {"source_ids": ids, "target_ids": ids}, steps=1000)
    assert history["perplexity"][-1] > 4
    # Sentences it has seen: it is small, and others are a matter of luck.
    texts = [text.decode() for text in model.tokenizer.decode(ids).numpy()]
    found = model.translate(texts, batch_size=50)
    assert np.mean([a == b for a, b in zip(found, texts, strict=True)]) > 0.95


def test_repeats_are_dropped_and_nothing_else(trained, rng):
    source_ids = small.sentences(rng, 6, 7)
    whole = trained.translate_ids(source_ids, min_codes=3).numpy()
    found = trained.translate_ids(source_ids, min_codes=3, drop_repeats=True).numpy()
    repeats = 0
    for row, other in zip(whole, found, strict=True):
        expected = [i for i, _ in itertools.groupby(row.tolist()) if i]
        repeats += np.count_nonzero(row) - len(expected)
        assert other.tolist() == expected + [0] * (len(other) - len(expected))
    assert repeats > 0


def test_translation_can_be_exported_even_after_use(trained, rng, tmp_path):
    assert len(trained.translate(["abc"], min_codes=2)) == 1
    archive = keras.export.ExportArchive()
    archive.track(trained)
    archive.add_endpoint(
        "serve",
        lambda source_ids: trained.translate_ids(source_ids, min_codes=2),
        [tf.TensorSpec([None, None], "int32")],
    )
    archive.write_out(str(tmp_path / "model"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "model"))
    source_ids = small.sentences(rng, 5, 7)
    np.testing.assert_array_equal(
        served.serve(tf.constant(source_ids)),
        trained.translate_ids(source_ids, min_codes=2),
    )


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_with_rows_of_padding(policy, rng):
    model = small.latent_nmt(dtype=policy)
    assert model.encoder.blocks[0].attention.compute_dtype == policy[6:]
    inputs = {k: np.pad(ids, [[0, 2], [0, 0]]) for k, ids in small.batch(rng).items()}
    outputs = model(inputs, training=True)
    assert outputs["logits"].dtype == policy[6:]
    loss = model.compute_loss(x=inputs, y_pred=outputs)
    assert loss.dtype == "float32" and np.isfinite(loss)
    assert model.translate_ids(inputs["source_ids"], max_codes=2).shape[0] == 8
