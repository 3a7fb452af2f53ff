"""Batches counted by hand, and their shapes against an exhaustive search."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.text import TokenBatches, TokenIds
from keras_vqem.training.data import fingerprint, first_of_each_shape


def sentences(rng, count, longest=40):
    """Random pairs with lengths as uneven, and as alike, as those of real text."""
    length = np.exp(rng.normal(2.6, 0.4, count))
    sides = []
    for _ in range(2):
        lengths = np.clip(length * np.exp(rng.normal(0, 0.2, count)), 1, longest)
        ids = [rng.integers(2, 50, int(n)) for n in lengths]
        for row in ids:
            row[-1] = 1
        sides.append(ids)
    return sides


def pairs_of(batches):
    """All pairs in batches, without padding."""
    for batch in batches:
        for source, target in zip(*batch.values(), strict=True):
            yield tuple(source[source > 0]), tuple(target[target > 0])


# Of runs that earlier versions started: they must go on with the same batches.
FINGERPRINTS = {
    "939cacae4d4108a1e722bd80a6f8c0fd85c56429219ab98b72248a748f9a3eb3": {},
    "227f21d0041e680ef9603c2704c01d7512b50c769c03fd1a2df55be71c46ba84": dict(
        seed=3, max_shapes=3, length_multiple=1
    ),
    "6f09d4cc1168228b5b1b9f9d613c04700949e03cafa288082dc0fb28dd1f2827": dict(
        boundaries=[(40, 40), (12, 16)], shuffle=False
    ),
    "0e4ff88fe373fb0e571c96b484683a77b9a71fb4bda7aaa7e70b811f60ef9199": dict(
        max_shapes=12, length_multiple=4, batch_multiple=16, seed=-5
    ),
}


def test_batches_are_those_of_earlier_versions():
    data = sentences(np.random.default_rng(7), 3000)
    for expected, arguments in FINGERPRINTS.items():
        assert fingerprint(TokenBatches(*data, 1024, **arguments)) == expected


def plain_epoch(data, shapes, seed, number):
    """The batches of an epoch from pairs of lists: slow, and all in memory."""
    rng = np.random.default_rng([seed, number])
    buckets = [[] for _ in shapes]
    for pair in zip(*data, strict=True):
        fits = [
            i
            for i, shape in enumerate(shapes)
            if all(
                len(ids) <= length for ids, length in zip(pair, shape[1:], strict=True)
            )
        ]
        buckets[min(fits, key=lambda i: sum(shapes[i][1:]))].append(pair)
    batches = []
    for pairs, (rows, *lengths) in zip(buckets, shapes, strict=True):
        order = rng.permutation(np.arange(len(pairs)))
        for start in range(0, len(pairs), rows):
            batch = [np.zeros((rows, length), np.int32) for length in lengths]
            for row, place in enumerate(order[start : start + rows]):
                for side, ids in zip(batch, pairs[place], strict=True):
                    side[row, : len(ids)] = ids
            batches.append(batch)
    return [batches[i] for i in rng.permutation(len(batches))]


def test_batches_against_a_plain_implementation(rng, tmp_path):
    data = sentences(rng, 300)
    maps = []
    for side, vocabulary_size in zip(data, (50, 2**17), strict=True):
        TokenIds.save(tmp_path / "ids.npy", side, vocabulary_size)
        maps.append(TokenIds.load(tmp_path / "ids.npy"))
        (tmp_path / "ids.npy").unlink()
    assert [ids.ids.dtype for ids in maps] == [np.uint16, np.int32]
    for given in (data, maps):
        batches = TokenBatches(*given, 256, seed=3)
        for number in range(2):
            expected = plain_epoch(data, batches.shapes, 3, number)
            for batch, (source, target) in zip(
                batches.epoch(number), expected, strict=True
            ):
                assert (
                    batch["source_ids"].dtype == batch["target_ids"].dtype == np.int32
                )
                np.testing.assert_array_equal(batch["source_ids"], source)
                np.testing.assert_array_equal(batch["target_ids"], target)
    # The memory maps are used, not copied.
    assert all(isinstance(side.ids, np.memmap) for side in batches._sides.values())


def test_a_dataset_can_start_inside_an_epoch(rng, monkeypatch):
    batches = TokenBatches(*sentences(rng, 200), 256, seed=3)
    steps = batches.steps_per_epoch
    whole = [list(pairs_of([batch])) for n in (1, 2) for batch in batches.epoch(n)]
    made = []
    padded = TokenIds.padded
    monkeypatch.setattr(
        TokenIds, "padded", lambda *arguments: made.append(1) or padded(*arguments)
    )
    for first in (0, 1, steps - 1, steps):
        made.clear()
        dataset = batches.dataset(first_epoch=1, epochs=2, first_step=first)
        assert len(dataset) == 2 * steps - first
        found = [list(pairs_of([batch])) for batch in dataset.as_numpy_iterator()]
        assert found == whole[first:]
        assert len(made) == 2 * len(found)  # None of the batches before was made.
    endless = batches.dataset(first_epoch=1, first_step=2).take(steps)
    found = [list(pairs_of([batch])) for batch in endless.as_numpy_iterator()]
    assert found == whole[2 : 2 + steps]
    for first in (-1, steps + 1):
        with pytest.raises(ValueError, match=f"first_step must be from 0 to {steps}"):
            batches.dataset(first_step=first)
    with pytest.raises(ValueError, match="first_epoch must be 0 or more"):
        batches.dataset(first_epoch=-1)


def test_shapes_of_an_epoch_are_known_without_its_batches(rng, monkeypatch):
    batches = TokenBatches(*sentences(rng, 200), 256)
    shapes = [
        (*batch["source_ids"].shape, batch["target_ids"].shape[1])
        for batch in batches.epoch(3)
    ]
    monkeypatch.delattr(TokenIds, "padded")
    assert batches.epoch_shapes(3) == shapes
    for first in (0, 7):
        firsts = {shape: shapes.index(shape, first) for shape in shapes[first:]}
        found = first_of_each_shape(batches, 3, first)
        assert found == sorted(firsts.values())


def test_no_thread_waits_to_tune_a_dataset(rng):
    # A training that is stopped would have to wait for it, for up to a minute.
    batches = TokenBatches(*sentences(rng, 20), tokens_per_batch=64)
    assert batches.dataset().options().autotune.enabled is False


@pytest.mark.parametrize("length_multiple", [1, 8, 16])
def test_every_pair_once_an_epoch(rng, length_multiple):
    source_ids, target_ids = sentences(rng, 700)
    batches = TokenBatches(
        source_ids, target_ids, 512, length_multiple=length_multiple, batch_multiple=4
    )
    expected = sorted(
        (tuple(s), tuple(t)) for s, t in zip(source_ids, target_ids, strict=True)
    )
    assert len(batches.shapes) <= 8
    for epoch in range(2):
        emitted = list(batches.epoch(epoch))
        assert len(emitted) == batches.steps_per_epoch
        found = [pair for pair in pairs_of(emitted) if pair != ((), ())]
        assert sorted(found) == expected
        slots = 0
        for batch in emitted:
            rows, source_length = batch["source_ids"].shape
            target_length = batch["target_ids"].shape[1]
            assert (rows, source_length, target_length) in batches.shapes
            assert rows % 4 == 0 and target_length % length_multiple == 0
            assert rows * max(source_length, target_length) <= 512
            real = batch["source_ids"][:, 0] > 0
            assert (np.diff(real.astype(int)) <= 0).all()  # Filler rows come last.
            slots += rows * (source_length + target_length)
        tokens = sum(map(len, source_ids + target_ids))
        assert batches.padding_waste == pytest.approx(1 - tokens / slots)


def test_order_depends_on_seed_and_epoch_alone(rng):
    data = sentences(rng, 200)
    batches, again = (TokenBatches(*data, 256, seed=3) for _ in range(2))
    list(again.epoch(0))
    epochs = [list(pairs_of(batches.epoch(number))) for number in range(3)]
    assert epochs[2] == list(pairs_of(again.epoch(2)))
    assert epochs[0] != epochs[1]
    other = TokenBatches(*data, 256, seed=4)
    assert epochs[0] != list(pairs_of(other.epoch(0)))
    resumed = again.dataset(first_epoch=1, epochs=2)
    assert len(resumed) == 2 * batches.steps_per_epoch
    assert list(pairs_of(resumed.as_numpy_iterator())) == epochs[1] + epochs[2]
    endless = batches.dataset().take(batches.steps_per_epoch + 1)
    assert len(list(endless)) == batches.steps_per_epoch + 1


def test_without_shuffling_pairs_keep_their_order(rng):
    source_ids, target_ids = sentences(rng, 60)
    shape = [(40, 40)]
    batches = TokenBatches(source_ids, target_ids, 400, shape, shuffle=False)
    found = [s for s, _ in pairs_of(batches.epoch(5)) if s]
    assert found == list(map(tuple, source_ids))


def test_shapes_are_nearly_the_best(rng):
    source_ids, target_ids = sentences(rng, 400, longest=20)
    lengths = np.array(
        [
            (len(s), -(-len(t) // 4) * 4)
            for s, t in zip(source_ids, target_ids, strict=True)
        ]
    )

    def slots(boxes):
        """Emitted tokens and padding, pair by pair."""
        counts = dict.fromkeys(boxes, 0)
        for source, target in lengths:
            fits = [b for b in boxes if source <= b[0] and target <= b[1]]
            counts[min(fits, key=sum)] += 1
        rows = {box: 256 // max(box) // 2 * 2 for box in boxes}
        return sum(-(-n // rows[b]) * rows[b] * sum(b) for b, n in counts.items())

    largest = tuple(lengths.max(axis=0).tolist())
    others = itertools.product(range(1, 21), (4, 8, 12, 16, 20))
    best = min(slots((box, largest)) for box in others)
    tokens = sum(map(len, source_ids + target_ids))
    two = TokenBatches(
        source_ids, target_ids, 256, max_shapes=2, length_multiple=4
    ).padding_waste
    assert two <= 1 - tokens / best + 0.02
    one = 1 - tokens / slots((largest,))
    assert two < one


def test_little_is_padding(rng):
    data = sentences(rng, 5_000)
    one = TokenBatches(*data, 1024, max_shapes=1)
    several = TokenBatches(*data, 1024)
    assert len(one.shapes) == 1 and len(several.shapes) <= 8
    assert several.padding_waste < 0.25 < 0.5 < one.padding_waste


def test_summary(rng):
    batches = TokenBatches([[3, 1]] * 5, [[3, 4, 1]] * 5, 32)
    assert batches.shapes == [(4, 2, 8)] and batches.steps_per_epoch == 2
    header, row, total = (line.split() for line in batches.summary().splitlines())
    assert header == ["rows", "source", "target", "pairs", "batches", "padding"]
    assert row == ["4", "2", "8", "5", "2", "68.8%"]
    assert total == ["all", "5", "2", "68.8%"]


def test_one_trace_for_all_shapes(rng):
    batches = TokenBatches(*sentences(rng, 200), 256)
    assert len(batches.shapes) > 1
    traced = []

    @tf.function(jit_compile=True)
    def count(batch):
        traced.append(batch["target_ids"].shape.as_list())
        return tf.math.count_nonzero(batch["target_ids"])

    @tf.function
    def step(iterator):  # As `fit` does it.
        return count(next(iterator))

    iterator = iter(batches.dataset(epochs=1))
    for batch in batches.epoch(0):
        assert step(iterator) == np.count_nonzero(batch["target_ids"])
    assert traced == [[None, None]]


def test_replicas_get_equal_shares(rng, strategy):
    batches = TokenBatches(*sentences(rng, 100), 256)
    whole = list(batches.epoch(0))
    parts = strategy.experimental_distribute_dataset(batches.dataset(epochs=1))
    for batch, part in zip(whole, parts, strict=True):
        halves = strategy.experimental_local_results(part["source_ids"])
        assert halves[0].shape == halves[1].shape
        np.testing.assert_array_equal(np.concatenate(halves), batch["source_ids"])


def test_fit_goes_through_whole_epochs(rng):
    batches = TokenBatches(*sentences(rng, 60), 256)
    seen = []

    class Counter(keras.Model):
        def train_step(self, data):
            seen.append(int(tf.math.count_nonzero(data["source_ids"][:, 0])))
            return {"loss": 0.0}

    model = Counter()
    model.compile(run_eagerly=True)
    steps = batches.steps_per_epoch
    model.fit(batches.dataset(), steps_per_epoch=steps, epochs=3, verbose=0)
    # Keras looks at one batch before it starts.
    assert sum(seen[-3 * steps :]) == 3 * 60


def test_errors_name_the_remedy():
    ids = [[3, 1]]
    with pytest.raises(ValueError, match="2 sentences, target_ids has 1"):
        TokenBatches(ids * 2, ids, 64)
    with pytest.raises(ValueError, match="at least 1"):
        TokenBatches([], [], 64)
    with pytest.raises(ValueError, match="Sentence 1 has no ids"):
        TokenBatches(ids * 2, [[1], []], 64)
    with pytest.raises(ValueError, match="Pass ids without padding"):
        TokenBatches(ids, [[3, 1, 0]], 64)
    with pytest.raises(ValueError, match=r"Pair 1 has 2 source and 9 .*max_tokens"):
        TokenBatches(ids * 2, [[1], [3] * 9], 64, boundaries=[(4, 8)])
    with pytest.raises(ValueError, match="multiples of length_multiple, 8"):
        TokenBatches(ids, ids, 64, boundaries=[(4, 6)])
    with pytest.raises(ValueError, match="list of pairs"):
        TokenBatches(ids, ids, 64, boundaries=[8, 16])
    with pytest.raises(ValueError, match="too small for 2 rows.*max_tokens"):
        TokenBatches(ids, [[3] * 60], 64)
    with pytest.raises(ValueError, match="max_shapes must be at least 1"):
        TokenBatches(ids, ids, 64, max_shapes=0)
