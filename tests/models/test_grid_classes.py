"""Grid models with classes: every prediction and every draw depends on the label."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.models import GridTransformer
from tests.models.grids import SMALL, all_grids, lively, probabilities

GRID = (2, 2, 1)


@pytest.fixture(scope="module")
def model():
    return lively(GRID, 3, num_classes=4)


def test_each_class_has_a_distribution_of_its_own(model):
    grids = all_grids(model)
    found = []
    for label in range(4):
        p = probabilities(model, grids, labels=np.full(len(grids), label))
        np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-5)
        found.append(p)
    for one in range(4):
        for other in range(one):
            assert np.abs(found[one] - found[other]).sum() > 0.1


def test_samples_have_the_distribution_of_their_label(model):
    number, grids = 6000, all_grids(model)
    labels = np.arange(2 * number) % 2 + 1
    drawn = model.sample(2 * number, seed=(3, 4), labels=labels).numpy()
    places = drawn.reshape(len(drawn), -1) @ 3 ** np.arange(4)[::-1]
    for label in (1, 2):
        p = probabilities(model, grids, labels=np.full(len(grids), label))
        share = np.bincount(places[labels == label], minlength=len(grids)) / number
        # Half the sum of differences, over 81 grids.
        assert np.abs(share - p).sum() / 2 < 0.06


def test_rows_have_their_own_label_and_one_label_serves_all(model):
    labels = [3, 0, 2]
    seeds = [(5, 6), (7, 8), (5, 6)]
    drawn = model.sample(3, seeds, temperature=0.0, labels=labels)
    inputs = {"symbols": drawn, "labels": np.array(labels)}
    np.testing.assert_array_equal(drawn, np.argmax(model(inputs), axis=-1))
    one = model.sample(3, seeds, labels=2)
    np.testing.assert_array_equal(one, model.sample(3, seeds, labels=[2, 2, 2]))
    np.testing.assert_array_equal(one[0], one[2])
    graph = tf.function(lambda labels: model.sample(3, seeds, labels=labels))
    found = graph(tf.constant(labels))
    np.testing.assert_array_equal(found, model.sample(3, seeds, labels=labels))


def test_it_learns_what_the_label_says(rng):
    keras.utils.set_random_seed(0)
    model = GridTransformer((2, 2, 1), 8, **SMALL, num_classes=8)
    model.compile(keras.optimizers.Adam(0.02))
    labels = rng.integers(8, size=512)
    symbols = np.tile(labels[:, None, None, None], (1, 2, 2, 1))
    symbols[:, 1, 1] = rng.integers(8, size=(512, 1))
    inputs = {"symbols": symbols, "labels": labels}
    model.fit(inputs, batch_size=32, epochs=8, verbose=0)
    bits = model.evaluate(inputs, verbose=0, return_dict=True)["bits_per_symbol"]
    # Three symbols are the label, the fourth is noise of 3 bits; without the label all
    # four would need 6 bits, and the mean is at least 1.5.
    assert 0.7 < bits < 1.0
    drawn = model.sample(8, seed=(0, 1), labels=np.arange(8)).numpy()
    assert np.mean(drawn[:, 0, :, 0] == np.arange(8)[:, None]) > 0.9


def test_a_model_comes_back_with_its_classes(model, tmp_path):
    drawn = model.sample(4, seed=(0, 1), labels=np.arange(4))
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    for loaded in (
        keras.saving.load_model(tmp_path / "model.keras"),
        GridTransformer.from_preset(tmp_path / "preset"),
    ):
        found = loaded.sample(4, seed=(0, 1), labels=np.arange(4))
        np.testing.assert_array_equal(found, drawn)


def test_an_export_takes_labels_and_draws_as_it_was_told(model, tmp_path):
    model.export(tmp_path / "1", temperature=0.7, top_p=0.8)
    call = tf.saved_model.load(str(tmp_path / "1")).signatures
    seeds = np.array([[5, 6], [7, 8], [5, 6]], "int32")
    labels = np.array([0, 3, 9], "int32")  # The last does not exist: 3 takes its place.
    found = call["sample"](seed=tf.constant(seeds), labels=tf.constant(labels))
    options = {"temperature": 0.7, "top_p": 0.8, "labels": [0, 3, 3]}
    expected = model.sample(3, seeds, **options)
    np.testing.assert_array_equal(found["symbols"], expected)
    given = {"symbols": expected, "labels": tf.constant(labels)}
    logits = call["serving_default"](**given)["logits"]
    expected = model({"symbols": expected, "labels": np.array([0, 3, 3])})
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_labels_that_are_missing_or_wrong_are_told(model):
    symbols = np.zeros((3, *GRID), "int32")
    with pytest.raises(ValueError, match="has 4 classes and needs `labels`.* 0 to 3"):
        model({"symbols": symbols})
    with pytest.raises(ValueError, match="has 4 classes and needs `labels`"):
        model.sample(3, seed=(0, 0))
    for wrong in ([0, 4, 1], -1):
        with pytest.raises(ValueError, match="`labels` must be from 0 to 3, .* from"):
            model.sample(3, seed=(0, 0), labels=wrong)
    with pytest.raises(ValueError, match=r"one per grid, 3 of them; .*\(2,\)"):
        model.sample(3, seed=(0, 0), labels=[0, 1])
    with pytest.raises(ValueError, match="`labels` must be integers from 0 to 3"):
        model.sample(3, seed=(0, 0), labels=[0.0, 1.0, 2.0])
    plain = lively(GRID, 3)
    with pytest.raises(ValueError, match="has no classes, but received `labels`"):
        plain({"symbols": symbols, "labels": np.zeros(3, "int32")})
    with pytest.raises(ValueError, match="`num_classes` must be a whole number of at"):
        GridTransformer(GRID, 3, **SMALL, num_classes=0)


def test_a_wrong_label_stops_training(model):
    model = lively(GRID, 3, num_classes=4)
    model.compile()
    symbols = np.zeros((4, *GRID), "int32")
    with pytest.raises(tf.errors.InvalidArgumentError, match="`labels` must be from 0"):
        model.fit({"symbols": symbols, "labels": np.array([0, 1, 2, 4])}, verbose=0)


def test_without_classes_there_is_no_trace_of_them():
    model = lively(GRID, 3)
    assert not [weight for weight in model.weights if "classes" in weight.path]
    # A config of before classes still makes a model.
    config = model.get_config()
    assert config.pop("num_classes") is None
    assert GridTransformer.from_config(config).num_classes is None
