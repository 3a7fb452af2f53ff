"""A worker of a training on several processes; a program, as each needs its own.

    python worker.py OUTPUT SETTINGS

trains models one after the other with the workers of TF_CONFIG, or alone without it.
OUTPUT is a folder for what was measured: MODEL.npz has the metrics of all epochs, all
weights at the end, and the names of the files that the run wrote. SETTINGS are the
arguments of `main` as JSON.
"""

import json
import os
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from keras_vqem import layers, models, replicas
from keras_vqem.array_batches import ArrayBatches
from keras_vqem.text import TokenBatches
from keras_vqem.training import Run, validation_set
from tests.models import small

EPOCHS = 2


def make_bottleneck(num_codes, soft, **settings):
    return layers.VQEMBottleneck(
        num_codes,
        num_samples=3 if soft else None,
        decay=0.9,
        dead_code_threshold=0.05,
        seed=1,
        **settings,
    )


def pairs():
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 9, size=(2, 40))
    ids = [[[*rng.integers(3, 29, n - 1), 1] for n in side] for side in lengths]
    # Batches of several sizes, most of which workers cannot divide evenly.
    return TokenBatches(*ids, 40, max_shapes=3, length_multiple=4, batch_multiple=1)


def make_transformer(noise, soft):
    return small.transformer(dropout=0.2 if noise else 0.0)


def make_latent_nmt(noise, soft):
    return small.latent_nmt(
        make_bottleneck(8, soft),
        dropout=0.2 if noise else 0.0,
        bypass_steps=5 if noise else 0,
        predicted_share=0.5 if noise else 0.0,
    )


def make_image_vqvae(noise, soft):
    return models.ImageVQVAE(
        layers.PatchCompressor(8, channels=4, num_blocks=1),
        make_bottleneck(6, soft, groups=2),
        layers.PatchDecompressor(channels=4, num_blocks=1, pixel_channels=5),
        layers.LogisticMixture(num_mixtures=2),
        image_size=(8, 8),
    )


MODELS = {
    "LatentNMT": make_latent_nmt,
    "Transformer": make_transformer,
    "ImageVQVAE": make_image_vqvae,
}


def feed_draws():
    """Lets the draws of soft EM depend on the place in the batch of all workers."""
    plain = keras.random.uniform

    def uniform(shape, *args, **kwargs):
        if len(shape) != 4 or shape[-1] != 2:
            return plain(shape, *args, **kwargs)
        counts = replicas.gather_scalars(tf.cast(shape[1], "float32"))
        before = tf.cast(tf.cumsum(counts, exclusive=True), "int32")
        first = before[replicas.replica_id()]
        table = tf.random.stateless_uniform((shape[0], 512, *shape[2:]), (1, 2))
        return table[:, first : first + shape[1]]

    keras.random.uniform = uniform


class Death(keras.callbacks.Callback):
    """Ends the process in an epoch, as a machine does that loses its power."""

    def __init__(self, epoch):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.epoch:
            os._exit(9)


def train(name, output, folder, noise, soft, die_in, resume):
    strategy = "multi_worker" if "TF_CONFIG" in os.environ else "none"
    with Run(folder / name, seed=3, strategy=strategy, resume=resume) as run:
        val = None
        if name == "ImageVQVAE":
            rng = np.random.default_rng(0)
            images = rng.integers(256, size=(42, 8, 8, 3)).astype("uint8")
            # 7 rows: workers get shares of different sizes.
            batches = ArrayBatches({"images": images}, 7)
            val = validation_set({"images": images}, 7)
        else:
            batches = pairs()
        model = MODELS[name](noise, soft)
        model.compile(keras.optimizers.Adam(0.01))
        history = run.fit(
            model, batches, EPOCHS, validation_data=val, callbacks=[Death(die_in)]
        ).history
        if val is not None:
            # As recipes do: divided by Keras.
            measured = model.evaluate(val, verbose=0, return_dict=True)
            history |= {f"end_{key}": [value] for key, value in measured.items()}
        np.savez(
            output / f"{name}.npz",
            written=sorted(path.name for path in run.path.iterdir()),
            **{f"log/{key}": values for key, values in history.items()},
            **{f"weight/{i}": w for i, w in enumerate(model.get_weights())},
        )


def main(
    output, names, folder, noise=False, soft=False, fed=False, die_in=None, resume=False
):
    if fed:
        feed_draws()
    for name in names:
        folders = pathlib.Path(output), pathlib.Path(folder)
        train(name, *folders, noise, soft, die_in, resume)


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
