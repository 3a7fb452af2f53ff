"""The aligner against the equations of EM in plain loops, and what it is for."""

import collections
import math

import numpy as np
import pytest

from keras_vqem.text import TokenBatches, TokenIds, WordAligner, word_aligner


def corpus(rng, count=30):
    """Pairs in which each word becomes 0 to 2 words, with noise; and short ones."""
    sources, targets = [[5, 1], [6, 7, 1], [1], [1]], [[1], [15, 1], [16, 15, 1], [1]]
    for _ in range(count):
        words = rng.integers(3, 12, int(rng.integers(1, 7)))
        written = [word + 10 for word in words for _ in range(word % 3)]
        if rng.random() < 0.3:
            written.insert(0, 40)
        sources.append([*words, 1])
        targets.append([*written, 1])
    return sources, targets


def plain_em(sources, targets, tension, steps):
    """Tables and mean log likelihoods of EM, with loops and dicts."""
    pairs = [(s[:-1] or s, t[:-1]) for s, t in zip(sources, targets, strict=True)]
    words = {word for _, target in pairs for word in target}
    table, found = collections.defaultdict(lambda: 1 / len(words)), []
    for _ in range(steps):
        counts, totals, logs = collections.Counter(), collections.Counter(), []
        for source, target in pairs:
            for j, y in enumerate(target):
                joint = plain_joint(table, source, target, j, y, tension)
                logs.append(math.log(sum(joint)))
                for x, p in zip(source, joint, strict=True):
                    counts[x, y] += p / sum(joint)
                    totals[x] += p / sum(joint)
        table = {(x, y): count / totals[x] for (x, y), count in counts.items()}
        found.append(np.mean(logs))
    return table, found


def plain_joint(table, source, target, j, y, tension):
    near = [
        math.exp(-tension * abs((i + 0.5) / len(source) - (j + 0.5) / len(target)))
        for i in range(len(source))
    ]
    return [p / sum(near) * table[x, y] for p, x in zip(near, source, strict=True)]


@pytest.mark.parametrize("tension", [0.0, 4.0])
@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_em_is_that_of_the_equations(rng, monkeypatch, tension, chunk):
    monkeypatch.setattr(word_aligner, "CHUNK", chunk)
    sources, targets = corpus(rng)
    aligner = WordAligner(tension, num_iterations=4)
    aligner.adapt(sources, targets)
    table, logs = plain_em(sources, targets, tension, 4)
    np.testing.assert_allclose(aligner.log_likelihoods, logs, rtol=1e-12)
    assert (np.diff(aligner.log_likelihoods) >= 0).all()
    found = {
        (int(key) >> 32, int(key) & 0xFFFFFFFF): p
        for key, p in zip(aligner._keys, aligner._table, strict=True)
    }
    assert found.keys() == table.keys()
    np.testing.assert_allclose(
        [*found.values()], [table[key] for key in found], rtol=1e-10, atol=1e-300
    )
    aligned = aligner.align(sources, targets)
    fertilities = aligner.fertilities(sources, targets)
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        words, best = source[:-1] or source, []
        for j, y in enumerate(target[:-1]):
            joint = plain_joint(table, words, target[:-1], j, y, tension)
            best.append(int(np.argmax(joint)))
        best.append(len(source) - 1)  # The ends belong together.
        assert aligned[number].tolist() == best
        counted = [best.count(i) for i in range(len(source))]
        assert fertilities[number].tolist() == counted
        assert sum(counted) == len(target)


def test_the_likelihood_never_falls(rng):
    aligner = WordAligner(num_iterations=30)
    aligner.adapt(*corpus(rng, 200))
    assert (np.diff(aligner.log_likelihoods) >= -1e-12).all()
    assert aligner.log_likelihoods[-1] > aligner.log_likelihoods[0] + 0.5


def test_it_finds_the_fertilities_that_made_the_pairs(rng):
    sources, targets = corpus(rng, 300)
    aligner = WordAligner()
    aligner.adapt(sources, targets)
    # Pairs that it has not seen, without noise, and with no word twice.
    words = [3 + rng.permutation(9)[:5] for _ in range(50)]
    new = [[*w, 1] for w in words]
    written = [[*np.repeat(w + 10, w % 3), 1] for w in words]
    found = aligner.fertilities(new, written)
    right = [found[number].tolist() == [*(w % 3), 1] for number, w in enumerate(words)]
    assert np.mean(right) > 0.9
    # A word that it does not know goes to the place beside it.
    assert aligner.align([[99, 98, 1]], [[77, 78, 1]])[0].tolist() == [0, 1, 2]


def test_ids_on_disk_are_not_copied_and_give_the_same(rng):
    sources, targets = corpus(rng)
    flat = [
        TokenIds(np.concatenate(x).astype("uint16"), np.cumsum([0, *map(len, x)]))
        for x in (sources, targets)
    ]
    one, other = WordAligner(), WordAligner()
    one.adapt(sources, targets)
    other.adapt(*flat)
    assert one.log_likelihoods == other.log_likelihoods
    np.testing.assert_array_equal(
        one.fertilities(sources, targets).ids, other.fertilities(*flat).ids
    )


def test_batches_carry_fertilities(rng):
    sources, targets = corpus(rng)
    aligner = WordAligner()
    aligner.adapt(sources, targets)
    fertilities = aligner.fertilities(sources, targets)
    batches = TokenBatches(sources, targets, 64, fertilities=fertilities, seed=3)
    plain = TokenBatches(sources, targets, 64, seed=3)
    known = {
        (*source, *target): fertilities[i].tolist()
        for i, (source, target) in enumerate(zip(sources, targets, strict=True))
    }
    for batch, other in zip(batches.epoch(1), plain.epoch(1), strict=True):
        for name, ids in other.items():
            np.testing.assert_array_equal(batch[name], ids)
        assert batch["fertilities"].shape == batch["source_ids"].shape
        assert batch["fertilities"].dtype == np.int32
        for source, target, row in zip(*batch.values(), strict=True):
            length = np.count_nonzero(source)
            assert not row[length:].any()
            if length:
                key = (*source[source > 0], *target[target > 0])
                assert row[:length].tolist() == known[tuple(map(int, key))]
    spec = batches.dataset(epochs=1).element_spec
    assert set(spec) == {"source_ids", "target_ids", "fertilities"}
    rows = [fertilities[i] for i in range(len(fertilities))]
    again = TokenBatches(sources, targets, 64, fertilities=rows, seed=3)
    np.testing.assert_array_equal(
        next(again.epoch(0))["fertilities"], next(batches.epoch(0))["fertilities"]
    )
    with pytest.raises(ValueError, match="pair 1 sum to 4, but its target has 2"):
        TokenBatches(
            sources, targets, 64, fertilities=[rows[0], rows[1] + [2, 0, 0], *rows[2:]]
        )
    with pytest.raises(ValueError, match="one number per source token"):
        TokenBatches(sources, targets, 64, fertilities=rows[:-1])


def test_wrong_arguments_are_explained():
    with pytest.raises(ValueError, match="`tension` must be a number of at least 0"):
        WordAligner(tension=-1.0)
    with pytest.raises(ValueError, match="`num_iterations` must be a whole number"):
        WordAligner(num_iterations=0)
    with pytest.raises(ValueError, match="has learned nothing yet. Call adapt"):
        WordAligner().align([[5, 1]], [[6, 1]])
    aligner = WordAligner()
    with pytest.raises(ValueError, match="has 1 sentences, target_ids has 2"):
        aligner.adapt([[5, 1]], [[6, 1], [7, 1]])
    with pytest.raises(ValueError, match="Sentence 1 has no ids"):
        aligner.adapt([[5, 1], []], [[6, 1], [7, 1]])
    # Sentences without words teach nothing, and are aligned all the same.
    aligner.adapt([[1], [5, 1]], [[1], [1]])
    assert aligner.log_likelihoods == []
    assert aligner.fertilities([[5, 1]], [[6, 7, 1]])[0].tolist() == [2, 1]
