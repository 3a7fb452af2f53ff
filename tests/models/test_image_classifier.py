"""ImageClassifier learns to tell shapes, and says what it cannot take."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.images import shapes
from keras_vqem.models import ImageClassifier

SMALL = {"channels": 8, "num_stages": 2, "image_size": (16, 16)}


def test_it_learns_to_tell_colours():
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=256)
    images = rng.integers(100, size=(256, 16, 16, 3))
    images[np.arange(256), 4:12, 4:12, labels] += 100
    model = ImageClassifier(3, **SMALL)
    model.compile(keras.optimizers.Adam(0.01))
    inputs = {"images": images.astype("uint8"), "labels": labels}
    history = model.fit(inputs, batch_size=32, epochs=4, verbose=0).history
    found = model.evaluate(inputs, verbose=0, return_dict=True)
    assert found["accuracy"] > 0.95 > history["accuracy"][0]
    # The loss is the cross entropy, and accuracy a share.
    logits = np.asarray(model(inputs), "float64")
    nats = np.log(np.exp(logits).sum(-1)) - logits[np.arange(256), labels]
    assert found["loss"] == pytest.approx(nats.mean(), rel=1e-4)
    right = np.mean(np.argmax(logits, -1) == labels)
    assert found["accuracy"] == pytest.approx(right)


def test_labels_are_only_needed_to_learn():
    images, labels = shapes.images(4, size=16)
    model = ImageClassifier(8, **SMALL)
    assert model({"images": images}).shape == (4, 8)
    model.compile()
    with pytest.raises(tf.errors.InvalidArgumentError, match="`labels` must be from 0"):
        model.fit({"images": images, "labels": labels + 8}, verbose=0)


def test_what_does_not_fit_is_told():
    with pytest.raises(ValueError, match="multiples of 8, received shape"):
        ImageClassifier(3, image_size=(20, 16)).build()
    with pytest.raises(ValueError, match="`num_classes` must be a whole number of at"):
        ImageClassifier(1)
    with pytest.raises(ValueError, match="`images` must be integers from 0 to 255"):
        ImageClassifier(3, **SMALL).features(np.zeros((1, 16, 16, 3), "float32"))
