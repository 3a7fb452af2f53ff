"""Codes under a prior: exact, as small as it says, and the same wherever it runs."""

import subprocess
import sys

import numpy as np
import pytest

from keras_vqem.compression import code_coders
from keras_vqem.compression.code_coders import PriorCoder, UniformCoder
from keras_vqem.evaluation.image_bits import PredictorPrior
from keras_vqem.models import GridTransformer
from tests.compression import small

# Decodes in a process with other threads and other instructions.
ELSEWHERE = """
import sys
import numpy as np
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1)
from keras_vqem.compression.code_coders import PriorCoder
from tests.compression import small
data = bytes.fromhex(sys.argv[1])
print(PriorCoder(small.model().prior).decode(data, 20).ravel().tolist())
"""


@pytest.fixture(scope="module")
def prior():
    return small.model().prior


@pytest.fixture(scope="module")
def codes(prior):
    return np.asarray(prior.sample(20, seed=(0, 1)))


def test_codes_come_back_at_the_bits_of_the_prior(prior, codes, monkeypatch):
    coder, told = PriorCoder(prior), []
    data = coder.encode(codes)
    bits = PredictorPrior(prior).nats(codes).sum() / np.log(2)
    assert bits < 0.9 * 5 * codes.size  # The prior does know something.
    assert bits <= 8 * len(data) <= 1.002 * bits + 64
    np.testing.assert_array_equal(coder.decode(data, 20, told.append), codes)
    assert told == sorted(told) and told[-1] == 1 and len(told) == 4 * 4 * 3
    # The size of the passes in encoding does not matter.
    monkeypatch.setattr(code_coders, "PASS", 3)
    assert coder.encode(codes) == data


def test_differences_between_computers_do_not_matter(prior, codes):
    data = PriorCoder(prior).encode(codes)
    found = small.Elsewhere(prior, 9e-10).decode(data, 20)
    np.testing.assert_array_equal(found, codes)
    # Larger ones would.
    try:
        assert (small.Elsewhere(prior, 1e-3).decode(data, 20) != codes).any()
    except ValueError as error:
        assert "damaged" in str(error)


def test_improbable_codes_come_back_too(prior, rng):
    codes = rng.integers(32, size=(3, 4, 4, 3))
    coder = PriorCoder(prior)
    np.testing.assert_array_equal(coder.decode(coder.encode(codes), 3), codes)


def test_codes_without_a_prior_take_their_full_length(rng):
    for number in (1, 2, 32, 100):
        codes = rng.integers(number, size=(5, 4, 4, 3))
        coder = UniformCoder((4, 4, 3), number)
        data = coder.encode(codes)
        assert len(data) <= codes.size * np.log2(number) / 8 + 6
        np.testing.assert_array_equal(coder.decode(data, 5), codes)
    with pytest.raises(ValueError, match="at most 65536, and the codebook has 100000"):
        UniformCoder((4, 4, 3), 100_000)


@pytest.mark.parametrize("kind", ["prior", "uniform"])
def test_damaged_codes_end(kind, prior, codes):
    coder = PriorCoder(prior) if kind == "prior" else UniformCoder((4, 4, 3), 32)
    for data in (b"", b"\0", bytes(50), coder.encode(codes)[:-1]):
        with pytest.raises(ValueError, match="The codes are damaged"):
            coder.decode(data, 20)


@pytest.mark.slow  # A process of its own.
def test_another_process_finds_the_same_codes(prior, codes):
    data = PriorCoder(prior).encode(codes)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, data.hex()],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(codes.ravel().tolist())


def test_a_prior_with_classes_is_refused():
    prior = GridTransformer((2, 2, 2), 8, hidden_dim=8, num_heads=2, num_classes=3)
    prior.build()
    with pytest.raises(ValueError, match="The prior has 3 classes.*--no-prior"):
        PriorCoder(prior)
