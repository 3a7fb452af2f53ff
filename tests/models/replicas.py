"""What every model promises under `tf.distribute`."""

import keras
import numpy as np
import tensorflow as tf


def assert_two_train_as_one(
    strategy, make_model, inputs, learning_rate, atol=2e-5, rtol=1e-4
):
    """Three steps on two replicas give the weights and metrics of one."""

    def trained(scope):
        with scope.scope():
            model = make_model()
            model.compile(keras.optimizers.SGD(learning_rate))
        data = tf.data.Dataset.from_tensor_slices(inputs).batch(8).repeat()
        history = model.fit(data, steps_per_epoch=3, verbose=0).history
        return model.get_weights(), history

    one, one_history = trained(tf.distribute.get_strategy())
    two, two_history = trained(strategy)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=atol)
    for key, values in one_history.items():
        np.testing.assert_allclose(values, two_history[key], rtol=rtol, err_msg=key)
