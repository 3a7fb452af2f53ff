"""Greedy search with fixed shapes against the one that grows, also under XLA."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.decoding import greedy_search
from keras_vqem.decoding.fixed_greedy_search import fixed_greedy_search
from tests.decoding.reference import Model

END, START = 2, 1


def step_of(model):
    """The step of the model with the sum of its cache as the state."""

    def step(ids, total, position):
        total = total + tf.gather(tf.gather(model.table, position), ids)
        return model.bias + total, total

    return step


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("limits", [[12] * 8, [1, 12, 2, 0, 3, 3, 5, 12], [0] * 8])
def test_is_the_search_that_grows(limits, jit_compile):
    model, limits = Model(8, 5), np.array(limits, "int32")
    grown = greedy_search(
        model.step(), model.state(8), 8, START, END, limits, min_length=1, pad_id=4
    )

    @tf.function(jit_compile=jit_compile, autograph=False)
    def search(limits):
        return fixed_greedy_search(
            step_of(model),
            tf.zeros([8, 5]),
            START,
            END,
            limits,
            15,
            min_length=1,
            pad_id=4,
        )

    ids, steps = search(limits)
    assert ids.shape == (8, 15) and steps == grown.shape[1]
    assert ids[:, :steps].numpy().tolist() == grown.numpy().tolist()
    assert (ids[:, steps:].numpy() == 4).all()
