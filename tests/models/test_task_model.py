"""TaskModel: what models that know their loss refuse, rather than ignore."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.models import GridTransformer
from tests.models import small


def grid_transformer():
    return GridTransformer((2, 2, 1), 4, 8, 1, 2, 16, block_length=4)


@pytest.mark.parametrize("way", ["argument", "dataset", "class_weight", "evaluate"])
@pytest.mark.parametrize("make", [grid_transformer, small.transformer])
def test_weights_of_examples_are_refused_with_a_remedy(make, way, rng):
    model = make()
    model.compile()
    inputs = (
        {"symbols": rng.integers(4, size=(6, 2, 2, 1))}
        if make is grid_transformer
        else small.batch(rng)
    )
    ones = np.ones(6, "float32")
    with pytest.raises(ValueError, match="weighs all examples alike.*repeat them"):
        if way == "argument":
            model.fit(inputs, sample_weight=ones, verbose=0)
        elif way == "dataset":
            data = tf.data.Dataset.from_tensors((inputs, ones, ones))
            model.fit(data, verbose=0)
        elif way == "class_weight":
            model.fit(inputs, ones, class_weight={0: 1.0, 1: 2.0}, verbose=0)
        else:
            model.evaluate(inputs, sample_weight=ones, verbose=0)
