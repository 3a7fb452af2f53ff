"""A run with everything that makes resuming hard; a program, to have new processes.

    python tiny_run.py STATE EPOCHS jit|nojit

trains up to EPOCHS epochs, from the state in the file STATE where it exists, and
writes the state there.
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_vqem
from keras_vqem.models.schedules import WarmupExponentialDecay
from keras_vqem.training import load_state, save_state

STEPS = 3


def make_model(jit_compile=False):
    inputs = keras.Input((4,))
    x = keras.layers.Dense(6, activation="tanh")(inputs)
    x = keras.layers.Dropout(0.3, seed=1)(x)
    bottleneck = keras_vqem.layers.VQEMBottleneck(num_codes=8, num_samples=3, seed=0)
    x = bottleneck(x)["quantized"]
    model = keras.Model(inputs, keras.layers.Dense(4)(x))
    schedule = WarmupExponentialDecay(1e-2, 4, 10, 0.5)
    model.compile(keras.optimizers.Adam(schedule), "mse", jit_compile=jit_compile)
    return model


class Autoencoder(keras.Model):
    """The same for batches that are dicts, with a loss and metrics of its own."""

    def __init__(self, bottleneck=None):
        super().__init__()
        self.encoder = keras.layers.Dense(4, activation="tanh")
        self.dropout = keras.layers.Dropout(0.3, seed=1)
        self.bottleneck = bottleneck or keras_vqem.layers.VQEMBottleneck(
            8, num_samples=3, seed=0
        )
        self.decoder = keras.layers.Dense(4)
        self.error = keras.metrics.Mean(name="error")
        self({"rows": np.zeros((1, 4), "float32")})

    def call(self, inputs, training=None):
        x = self.dropout(self.encoder(inputs["rows"]), training=training)
        x = self.decoder(self.bottleneck(x, training=training)["quantized"])
        # In float32, as the loss of the bottleneck is.
        error = keras.ops.cast(x - inputs["rows"], "float32")
        error = keras.ops.mean(error**2)
        self.error.update_state(error)
        self.add_loss(error)
        return x


def dataset(first_epoch):
    """Batches without end that differ from epoch to epoch."""

    def batches():
        epoch = first_epoch
        while True:
            rng = np.random.default_rng(epoch)
            for _ in range(STEPS):
                x = rng.normal(size=(16, 4)).astype("float32")
                # Not x twice: TensorFlow would share its memory between inputs and
                # targets, and ops that reuse the one's would spoil the other.
                yield x, x.copy()
            epoch += 1

    spec = tf.TensorSpec((16, 4), tf.float32)
    return tf.data.Dataset.from_generator(batches, output_signature=(spec, spec))


def fit(model, first_epoch, epochs, **kwargs):
    return model.fit(
        dataset(first_epoch),
        initial_epoch=first_epoch,
        epochs=epochs,
        steps_per_epoch=STEPS,
        shuffle=False,
        verbose=0,
        **kwargs,
    )


def main(path, epochs, jit_compile):
    keras.utils.set_random_seed(0)
    path, epochs = pathlib.Path(path), int(epochs)
    model = make_model(jit_compile == "jit")
    done = load_state(model, path).epoch if path.exists() else 0
    fit(model, done, epochs)
    save_state(model, path, epochs)


if __name__ == "__main__":
    main(*sys.argv[1:])
