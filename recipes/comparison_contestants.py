"""The small autoencoder of images of compare_bottlenecks.py, around each quantizer.

The network is the same in Keras and in torch, with the same first weights and the same
batches. An image is a grid of patches. Two dense layers turn each patch into a vector,
which is quantized; a 3 x 3 convolution and a dense layer turn vectors into patches.
"""

import functools
import math
import pathlib
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Workers do not look for modules beside this file.
sys.path.append(str(pathlib.Path(__file__).parent))

from compared_bottlenecks import KERAS, QUANTIZERS, TORCH, torch_call

PATCH = 4
VARIANCE = 0.06  # about that of pixels from 0 to 1; errors are divided by it
EPSILON = 1e-7  # of Adam, whose default differs between the libraries


# Data: arrays in a folder, the same for every worker.


def to_patches(images):
    """Turns uint8 images [N, H, W, 3] into patches [N, H / 4, W / 4, 48]."""
    count, height, width, channels = images.shape
    rows, columns = height // PATCH, width // PATCH
    cut = images.reshape(count, rows, PATCH, columns, PATCH, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(count, rows, columns, -1)


def make_data(folder, train, test):
    """Writes images to a folder, as uint8 patches."""
    for name, images in (("train", train), ("test", test)):
        np.save(f"{folder}/{name}.npy", to_patches(images))


def load_data(folder, **settings):
    """Returns the settings of the run, the images and the folder, as one dict."""
    arrays = {name: np.load(f"{folder}/{name}.npy") for name in ("train", "test")}
    return settings | arrays | {"folder": folder}


def scaled(patches):
    return patches.astype("float32") / 255 - 0.5


def first_weights(data, seed):
    """Returns the first kernels of the network: Glorot uniform."""
    rng = np.random.default_rng([seed, 0])
    pixels, hidden, dim = data["train"].shape[-1], data["hidden"], data["dim"]

    def glorot(*shape):
        field = math.prod(shape[:-2])
        limit = math.sqrt(6 / (field * (shape[-2] + shape[-1])))
        return rng.uniform(-limit, limit, shape).astype("float32")

    return [
        glorot(pixels, hidden),
        glorot(hidden, dim),
        glorot(3, 3, dim, hidden),
        glorot(hidden, pixels),
    ]


def batches(data, seed, steps):
    """Yields the batches of a run."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(steps):
        yield scaled(
            data["train"][rng.integers(len(data["train"]), size=data["batch"])]
        )


class Run(NamedTuple):
    """A contestant of `benchmark_worker.py`, whose check is a whole run."""

    check: Callable  # number of steps -> results
    step: Callable  # a training step, always of the same batch


def measured(data, name, seed, num_codes, step, rebuild, steps):
    """Trains, then measures.

    Args:
        data: Data of the run.
        name: Name of the quantizer.
        seed: Seed of the run.
        num_codes: Number of codes per codebook.
        step: Function from a batch to nothing, the training step.
        rebuild: Function from a batch to rebuilt patches and codes `[B, H, W, ...]`.
        steps: Number of steps.
    """
    for batch in batches(data, seed, steps):
        step(batch)
    files, errors = {}, {}
    for split in ("train", "test"):
        found, error = [], 0.0
        for start in range(0, len(data[split]), 256):
            batch = scaled(data[split][start : start + 256])
            rebuilt, codes = rebuild(batch)
            error += float(np.sum(np.square(rebuilt - batch, dtype="float64")))
            found.append(np.asarray(codes))
        codes = np.concatenate(found)
        codes = codes.reshape(*data[split].shape[:3], -1)  # [N, H, W, slots]
        files[split] = f"{data['folder']}/{name}_{seed}_{split}.npy"
        np.save(files[split], codes.astype("int32"))
        errors[split] = error / data[split].size
    return {
        "mse": errors["test"],
        "num_codes": num_codes,
        "slots": codes.shape[-1],
        "codes": files,
    }


def make_run(data, name, seed, num_codes, step, rebuild):
    """Returns the contestant; see `measured` for the arguments."""
    given = (data, name, seed, num_codes, step, rebuild)
    [batch] = batches(data, seed, 1)
    return Run(functools.partial(measured, *given), functools.partial(step, batch))


def keras_run(name, data, seed, steps):
    import keras
    import tensorflow as tf

    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    layer = QUANTIZERS[name].make(data["dim"], data["num_codes"], steps, seed)
    pixels, hidden, same = data["train"].shape[-1], data["hidden"], {"padding": "same"}
    network = [
        keras.layers.Dense(hidden, activation="relu"),
        keras.layers.Dense(data["dim"]),
        keras.layers.Conv2D(hidden, 3, activation="relu", **same),
        keras.layers.Dense(pixels),
    ]
    inputs = keras.Input(data["train"].shape[1:])
    outputs = layer(network[1](network[0](inputs)))
    rebuilt = network[3](network[2](outputs["quantized"]))
    model = keras.Model(inputs, (rebuilt, outputs["codes"]))
    for part, kernel in zip(network, first_weights(data, seed), strict=True):
        part.kernel.assign(kernel)
    optimizer = keras.optimizers.Adam(data["rate"], epsilon=EPSILON)
    optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def train(x):
        with tf.GradientTape() as tape:
            error = tf.reduce_mean(tf.square(model(x, training=True)[0] - x))
            loss = error / VARIANCE + sum(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    infer = tf.function(lambda x: model(x, training=False), reduce_retracing=True)

    def step(x):
        train(x).numpy()

    def rebuild(x):
        return [np.asarray(part) for part in infer(x)]

    return make_run(data, name, seed, layer.num_codes, step, rebuild)


def torch_run(name, data, seed, steps):
    import torch
    from torch.nn import functional

    torch.manual_seed(seed)
    layer = QUANTIZERS[name].make(data["dim"], data["num_codes"], steps, seed)
    one, two, three, four = (
        torch.tensor(kernel) for kernel in first_weights(data, seed)
    )
    # torch keeps outputs before inputs, and channels before rows and columns.
    kernels = [one.T, two.T, three.permute(3, 2, 0, 1), four.T]
    kernels = [kernel.contiguous().requires_grad_() for kernel in kernels]
    sizes = (data["hidden"], data["dim"], data["hidden"], data["train"].shape[-1])
    biases = [torch.zeros(size, requires_grad=True) for size in sizes]
    weights = [*kernels, *biases, *layer.parameters()]
    optimizer = torch.optim.Adam(weights, lr=data["rate"], eps=EPSILON)

    def forward(x):
        hidden = functional.relu(functional.linear(x, kernels[0], biases[0]))
        vectors = functional.linear(hidden, kernels[1], biases[1])
        rows = vectors.reshape(len(x), -1, data["dim"])
        quantized, codes, loss = torch_call(layer, rows)
        grid = quantized.reshape(vectors.shape).permute(0, 3, 1, 2)
        hidden = functional.conv2d(grid, kernels[2], biases[2], padding=1)
        hidden = functional.relu(hidden).permute(0, 2, 3, 1)
        rebuilt = functional.linear(hidden, kernels[3], biases[3])
        return rebuilt, codes.reshape(*x.shape[:3], -1), loss

    def step(x):
        layer.train()
        x = torch.from_numpy(x)
        optimizer.zero_grad()
        rebuilt, _, loss = forward(x)
        (functional.mse_loss(rebuilt, x) / VARIANCE + loss).backward()
        optimizer.step()

    def rebuild(x):
        layer.eval()
        with torch.no_grad():
            rebuilt, codes, _ = forward(torch.from_numpy(x))
        return rebuilt.numpy(), codes.numpy()

    return make_run(data, name, seed, layer.codebook_size, step, rebuild)


def _contestant(name, row):
    make = functools.partial(torch_run if row.peer else keras_run, name)
    return make, TORCH if row.peer else KERAS


# For `benchmark_worker.py`.
CONTESTANTS = {name: _contestant(name, row) for name, row in QUANTIZERS.items()}
