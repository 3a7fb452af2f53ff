"""Each image holds its number, so that batches can be told apart."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.images import ImageBatches


def numbered(count):
    """Images whose left column is their number, and whose right column is 255."""
    images = np.full((count, 4, 6, 3), 100, np.uint8)
    images[:, :, 0] = np.arange(count)[:, None, None]
    images[:, :, -1] = 255
    return images


def numbers_of(batches):
    return [
        number for batch in batches for number in batch["images"][:, 0, 0, 0].tolist()
    ]


def take(dataset, count):
    return list(dataset.take(count).as_numpy_iterator())


def test_an_epoch_is_a_permutation():
    images = numbered(60)
    batches = ImageBatches(images, 12)
    assert batches.steps_per_epoch == 5
    epochs = [numbers_of(batches.epoch(number)) for number in range(3)]
    for order in epochs:
        assert sorted(order) == list(range(60))
        assert order != list(range(60))
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    for batch in batches.epoch(0):
        assert batch["images"].dtype == np.uint8
        chosen = batch["images"][:, 0, 0, 0]
        np.testing.assert_array_equal(batch["images"], images[chosen])


def test_only_full_batches_and_each_epoch_leaves_out_others():
    batches = ImageBatches(numbered(59), 12)
    assert batches.steps_per_epoch == 4
    left_out = []
    for number in range(3):
        emitted = list(batches.epoch(number))
        assert [len(batch["images"]) for batch in emitted] == [12] * 4
        seen = numbers_of(emitted)
        assert len(set(seen)) == 48
        left_out.append(frozenset(range(59)) - set(seen))
    assert len(set(left_out)) == 3


def test_shorter_epochs_take_other_images_each_time():
    batches = ImageBatches(numbered(60), 12, seed=2, steps_per_epoch=2)
    assert batches.steps_per_epoch == 2
    first, second = (numbers_of(batches.epoch(number)) for number in (0, 1))
    assert len(set(first)) == len(set(second)) == 24
    assert set(first) != set(second)
    found = numbers_of(take(batches.dataset(), 4))
    assert found == first + second


@pytest.mark.parametrize("flip", [False, True])
def test_a_resumed_run_sees_what_it_would_have_seen(flip):
    whole = ImageBatches(numbered(50), 16, seed=3, flip=flip)
    again = ImageBatches(numbered(50), 16, seed=3, flip=flip)
    steps = whole.steps_per_epoch
    uninterrupted = take(whole.dataset(), 4 * steps)
    resumed = take(again.dataset(first_epoch=2), 2 * steps)
    np.testing.assert_equal(resumed, uninterrupted[2 * steps :])
    # A dataset that is iterated again starts where it started before.
    np.testing.assert_equal(take(whole.dataset(), steps), uninterrupted[:steps])
    other = ImageBatches(numbered(50), 16, seed=4, flip=flip)
    assert numbers_of(other.epoch(0)) != numbers_of(whole.epoch(0))


def test_flips():
    images = numbered(200)
    before = images.copy()
    flipping = ImageBatches(images, 50, seed=1, flip=True)
    straight = ImageBatches(images, 50, seed=1)
    flips = []
    for number in range(2):
        mirrored = np.empty(200, bool)
        for batch, plain in zip(
            flipping.epoch(number), straight.epoch(number), strict=True
        ):
            for image, original in zip(batch["images"], plain["images"], strict=True):
                flipped = image[0, 0, 0] == 255
                expected = original[:, ::-1] if flipped else original
                np.testing.assert_array_equal(image, expected)
                mirrored[original[0, 0, 0]] = flipped
        assert 70 < mirrored.sum() < 130
        flips.append(mirrored)
    # Each epoch flips others, and the images themselves stay as they are.
    assert 60 < (flips[0] != flips[1]).sum() < 140
    np.testing.assert_array_equal(images, before)


def test_the_dataset_has_static_shapes_and_no_end():
    dataset = ImageBatches(numbered(20), 8).dataset()
    assert dataset.element_spec == {"images": tf.TensorSpec([8, 4, 6, 3], tf.uint8)}
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize("first", [0, 3, 5])
def test_a_dataset_can_start_inside_an_epoch(first):
    batches = ImageBatches(numbered(40), 8, flip=True)
    assert batches.epoch_shapes(1) == [(8,)] * 5
    whole = [batch["images"] for n in (1, 2) for batch in batches.epoch(n)]
    found = take(batches.dataset(first_epoch=1, first_step=first), 10 - first)
    for batch, expected in zip(found, whole[first:], strict=True):
        np.testing.assert_array_equal(batch["images"], expected)
    with pytest.raises(ValueError, match="first_step must be from 0 to 5"):
        batches.dataset(first_step=6)


def test_the_images_are_neither_copied_nor_part_of_the_graph():
    images = np.zeros((100, 32, 32, 3), np.uint8)
    batches = ImageBatches(images, 10)
    assert np.shares_memory(batches.arrays["images"], images)
    graph = batches.dataset()._as_serialized_graph().numpy()
    assert len(graph) < images.nbytes / 10


def test_fit():
    batches = ImageBatches(numbered(40), 8, flip=True)
    expected = [numbers_of([batch]) for n in (5, 6) for batch in batches.epoch(n)]
    seen = []

    class Model(keras.Model):
        def train_step(self, data):
            seen.append(data["images"][:, 0, 0, 0].numpy().tolist())
            return {"loss": 0.0}

    model = Model()
    model.compile(run_eagerly=True)
    steps = batches.steps_per_epoch
    dataset = batches.dataset(first_epoch=5)
    model.fit(dataset, steps_per_epoch=steps, epochs=2, verbose=0)
    # Keras may look at a batch before it starts.
    assert seen[-2 * steps :] == expected


def test_fit_in_a_graph():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, inputs):
            assert inputs["images"].shape == (8, 4, 6, 3)
            images = keras.ops.cast(inputs["images"], "float32") / 255
            outputs = self.dense(keras.ops.reshape(images, [8, -1]))
            self.add_loss(keras.ops.mean((outputs - 1) ** 2))
            return outputs

    batches = ImageBatches(numbered(40), 8)
    model = Model()
    model.compile(keras.optimizers.Adam(0.01), jit_compile=False)
    history = model.fit(
        batches.dataset(), steps_per_epoch=batches.steps_per_epoch, epochs=6, verbose=0
    )
    assert history.history["loss"][-1] < history.history["loss"][0] / 2


def test_replicas_share_a_batch(strategy):
    batches = ImageBatches(numbered(24), 8)
    parts = iter(strategy.experimental_distribute_dataset(batches.dataset()))
    for batch in batches.epoch(0):
        halves = strategy.experimental_local_results(next(parts)["images"])
        assert halves[0].shape == halves[1].shape == (4, 4, 6, 3)
        np.testing.assert_array_equal(np.concatenate(halves), batch["images"])


def test_errors_name_the_remedy():
    images = numbered(10)
    with pytest.raises(ValueError, match="10 images, too few .* of 11. Lower batch_"):
        ImageBatches(images, 11)
    assert ImageBatches(images, 10).steps_per_epoch == 1
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        ImageBatches(images, 0)
    for steps in (0, 6):
        with pytest.raises(ValueError, match=f"from 1 to 5, .* not {steps}"):
            ImageBatches(images, 2, steps_per_epoch=steps)
    with pytest.raises(ValueError, match=r"not float32 of shape \[10, 4, 6, 3\]"):
        ImageBatches(images.astype("float32"), 2)
    with pytest.raises(ValueError, match=r"\[N, H, W, 3\], not uint8 .*\[10, 4, 6\]"):
        ImageBatches(images[..., 0], 2)
    with pytest.raises(ValueError, match="first_epoch must be 0 or more, not -1"):
        ImageBatches(images, 2).dataset(-1)
