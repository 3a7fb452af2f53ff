"""Two logical CPU devices for the whole run, so that replicas can be tested."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest
import tensorflow as tf

# Tests run in two processes; small tensors gain nothing from more threads.
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration() for _ in range(2)],
)


@pytest.fixture(scope="session")
def strategy():
    # One for the run: TensorFlow's collectives do not like a second.
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture(autouse=True)
def fresh_names_and_seeds():
    # Collecting garbage each time would take longer than most tests.
    keras.backend.clear_session(free_memory=False)
    keras.utils.set_random_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def pytest_collection_modifyitems(items):
    # Tests are about small data, and have few vectors or none for their codes.
    told = "seen any data|codes without a vector|starts its codebook from data"
    for item in items:
        item.add_marker(pytest.mark.filterwarnings(f"ignore:.*({told})"), append=False)
