"""A search with a memory leaves out rows that are done, and finds the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.decoding import beam_search, greedy_search
from tests.decoding.reference import Model, beam, greedy, padded

END = 2
LIMITS = np.array([1, 12, 3, 12, 0, 2, 12, 5, 1, 12, 2, 4])


def with_memory(model, seen, num_beams=1):
    """Returns a step whose bias is its memory, and notes how many rows it sees."""

    def step(ids, state, position, memory):
        seen.append(len(ids))
        return model.step(memory["bias"], num_beams)(ids, state, position)

    return step


def greedily(model, seen, **kwargs):
    memory = {"bias": tf.constant(model.bias)}
    return greedy_search(
        with_memory(model, seen),
        model.state(12),
        12,
        1,
        END,
        LIMITS,
        memory=memory,
        **kwargs,
    )


def with_beams(model, seen, num_beams=3, **kwargs):
    memory = {"bias": tf.constant(model.bias)}
    return beam_search(
        with_memory(model, seen, num_beams),
        model.state(12 * num_beams),
        12,
        1,
        END,
        LIMITS,
        num_beams=num_beams,
        length_penalty=0.6,
        memory=memory,
        **kwargs,
    )


@pytest.mark.parametrize("seed", range(3))
def test_greedy_search_finds_the_same(seed):
    model, seen = Model(12, 5, seed), []
    ids = greedily(model, seen, pad_id=3).numpy().tolist()
    wanted = [greedy(model, i, END, n) for i, n in enumerate(LIMITS)]
    assert ids == [padded(row, max(map(len, wanted)), 3) for row in wanted]
    # Whenever a quarter of the rows is done, they are left out.
    assert seen[-1] < 12
    assert seen == sorted(seen, reverse=True)


@pytest.mark.parametrize("seed", range(3))
def test_beam_search_finds_the_same(seed):
    model, seen = Model(12, 6, seed), []
    ids, scores = (x.numpy() for x in with_beams(model, seen, pad_id=5))
    for i, limit in enumerate(LIMITS):
        wanted = beam(model, i, END, limit, 3, 0.6) if limit else []
        for j, (score, written) in enumerate(wanted):
            assert ids[i, j].tolist() == padded(written, ids.shape[2], 5)
            np.testing.assert_allclose(scores[i, j], score, rtol=1e-4)
        assert np.all(ids[i, len(wanted) :] == 5)
        assert np.all(np.isneginf(scores[i, len(wanted) :]))
    assert seen[-1] < 12 * 3


def test_no_row_runs_for_long_after_its_end():
    model, seen = Model(12, 5), []
    greedily(model, seen)
    lengths = np.array([len(greedy(model, i, END, n)) for i, n in enumerate(LIMITS)])
    for position, rows in enumerate(seen):
        live = np.sum(lengths > position)
        assert live <= rows and live > rows * 3 // 4


def test_in_a_graph_of_any_batch():
    model = Model(12, 5)

    @tf.function(input_signature=[tf.TensorSpec([None, 5]), tf.TensorSpec([None])])
    def found(bias, limits):
        rows = tf.shape(bias)[0]
        return greedy_search(
            lambda ids, state, position, memory: model.step(memory)(
                ids, state, position
            ),
            model.state(rows),
            rows,
            1,
            END,
            tf.cast(limits, tf.int32),
            memory=bias,
        )

    limits = LIMITS.astype("float32")
    ids = found(model.bias, limits).numpy().tolist()
    wanted = [greedy(model, i, END, n) for i, n in enumerate(LIMITS)]
    assert ids == [padded(row, max(map(len, wanted))) for row in wanted]
    # A row alone, and none.
    assert found(model.bias[1:2], limits[1:2]).numpy().tolist() == [wanted[1]]
    assert found(model.bias[:0], limits[:0]).shape == (0, 0)


@pytest.mark.parametrize("search", [greedily, with_beams])
def test_in_a_graph_of_constants(search):
    # TensorFlow's optimizer knows all shapes here, and must not fold those that grow.
    model = Model(12, 6)
    wanted = tf.nest.map_structure(lambda x: x.numpy(), search(model, []))
    found = tf.function(lambda: search(model, []))()
    tf.nest.map_structure(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5), found, wanted
    )


def test_without_a_memory_all_rows_stay():
    model, seen = Model(12, 5), []

    def step(ids, state, position):
        seen.append(len(ids))
        return model.step()(ids, state, position)

    greedy_search(step, model.state(12), 12, 1, END, LIMITS)
    assert set(seen) == {12}


@pytest.mark.slow
@pytest.mark.parametrize("num_beams", [1, 4])
def test_a_translator_translates_a_sentence_alike_in_any_batch(num_beams):
    from keras_vqem.models import Transformer

    class Vocabulary:
        vocabulary_size = 23

    keras.utils.set_random_seed(1)
    model = Transformer(
        Vocabulary(),
        hidden_dim=16,
        num_encoder_layers=1,
        num_decoder_layers=2,
        num_heads=2,
        intermediate_dim=32,
    )
    model.build()
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, 20)
    source_ids = np.zeros((20, 9), "int32")
    for row, length in zip(source_ids, lengths, strict=True):
        row[:length], row[length] = rng.integers(3, 23, length), 1
    found = model.generate(source_ids, num_beams=num_beams)["target_ids"].numpy()
    for i, length in enumerate(lengths):
        alone = model.generate(source_ids[i : i + 1, : length + 1], num_beams=num_beams)
        alone = alone["target_ids"].numpy()[0]
        assert found[i].tolist() == padded(alone.tolist(), found.shape[1])
