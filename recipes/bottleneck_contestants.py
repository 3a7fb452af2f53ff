"""Contestants of benchmark_bottleneck.py: a training step of each library's layer.

A step is a forward pass in training mode, the gradient of sum(quantized * w) + losses
with respect to the inputs, and the update of the codebook. As in a network, w arrives
as the gradient of `quantized`: that sum itself is no work of a bottleneck.

All contestants get the same vectors, the same w and, to start from, the same codebook.
Members, the rows of the table in compared_bottlenecks.py, start in their own ways.
"""

import pathlib
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Workers do not look for modules beside this file.
sys.path.append(str(pathlib.Path(__file__).parent))

from compared_bottlenecks import KERAS, QUANTIZERS, TORCH, torch_call

DECAY = 0.999
MEMBER_STEPS = 10_000  # length of the run that schedules and decays are chosen for
COMMITMENT_WEIGHT = 0.25


class Data(NamedTuple):
    vectors: np.ndarray  # [N, D]
    weights: np.ndarray  # [N, D]
    codebook_file: str

    def codebook(self):
        """Reads the first codebook, [K, D].

        Callers must not keep it: TensorFlow may share the memory of the array, and
        then the first update would seem to need more memory than it does.
        """
        return np.load(self.codebook_file)


def make_data(folder, vectors, dim, seed):
    """Writes the data of all contestants to a folder."""
    rng = np.random.default_rng(seed)
    for name in ("vectors", "weights"):
        values = rng.normal(size=(vectors, dim)).astype("float32")
        np.save(f"{folder}/{name}.npy", values)


def make_codebook(folder, num_codes, dim, seed):
    """Writes a codebook to start from."""
    rng = np.random.default_rng([seed, num_codes])
    values = rng.normal(size=(num_codes, dim)).astype("float32")
    np.save(f"{folder}/codebook_{num_codes}.npy", values)


def load_data(folder, num_codes):
    arrays = (np.load(f"{folder}/{name}.npy") for name in ("vectors", "weights"))
    return Data(*arrays, f"{folder}/codebook_{num_codes}.npy")


class Contestant(NamedTuple):
    step: Callable  # () -> anything
    check: Callable | None = None  # number of steps -> results of the first one


def learner(data, step, codebook=None, draw=None):
    """Returns a contestant that learns from vectors.

    Args:
        data: The `Data` it learns from.
        step: Function without arguments that returns `quantized` and the gradient.
        codebook: Function without arguments that returns the current codebook, which
            the first steps must change, or None.
        draw: Function without arguments that returns codes [N, m], drawn as in
            training, or None.
    """

    def check(steps):
        start = codebook and codebook()
        quantized, gradient = (np.asarray(x) for x in step())
        report = {
            "mse": float(np.mean((data.vectors - quantized) ** 2)),
            "gradient_error": float(np.max(np.abs(gradient - data.weights))),
        }
        for _ in range(1, steps):
            step()
        if codebook and np.array_equal(start, codebook()):
            raise RuntimeError("the codebook does not learn")
        if draw is not None:
            draws = np.sort(draw(), axis=-1)
            different = 1 + np.sum(draws[:, 1:] != draws[:, :-1], axis=-1)
            report["different_draws"] = float(np.mean(different))
        return report

    return Contestant(step, check)


# The contestants. Each imports its own library, so a worker needs no other.


def tf_matmul(data):
    import tensorflow as tf

    vectors = tf.constant(data.vectors)
    table = tf.Variable(np.ascontiguousarray(data.codebook().T))
    # The whole product is returned, because TensorFlow may compute less for a part or
    # a sum of it. Arguments and variables, unlike constants, are not folded.
    product = tf.function(lambda x: tf.matmul(x, table))
    return Contestant(lambda: product(vectors))


def torch_matmul(data):
    import torch

    vectors, table = torch.from_numpy(data.vectors), torch.tensor(data.codebook().T)
    return Contestant(lambda: vectors @ table)


def _tf_step(data, call):
    """Makes a step of `call`, a function from vectors to quantized and loss."""
    import tensorflow as tf

    vectors, weights = tf.constant(data.vectors), tf.constant(data.weights)

    # Everything that a training loop uses is returned, so that nothing is pruned.
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            quantized, loss = call(x)
            loss = tf.reduce_sum(loss)
        upstream = [weights, tf.ones_like(loss)]
        gradient = tape.gradient([quantized, loss], x, output_gradients=upstream)
        return quantized, gradient, loss

    return lambda: step(vectors)[:2]


def keras_vqem(data, num_samples=None, temperature=1.0):
    from keras_vqem.layers import VQEMBottleneck

    vectors, codebook = data.vectors, data.codebook()
    layer = VQEMBottleneck(
        len(codebook),
        num_samples,
        temperature=temperature,
        decay=DECAY,
        commitment_weight=COMMITMENT_WEIGHT,
        seed=0,
    )
    layer.build(vectors.shape)
    # Skips the initialization from the first batch: every code is set.
    layer.codebook.assign(codebook[None])
    layer.counts.assign(np.ones((1, len(codebook)), "float32"))

    def call(x):
        outputs = layer(x, training=True)
        return outputs["quantized"], sum(layer.losses)

    return learner(
        data,
        _tf_step(data, call),
        lambda: np.array(layer.codebook),
        num_samples and (lambda: np.array(layer.sample(vectors, num_samples))),
    )


def _torch_step(data, layer):
    """Makes a step of a module of vector-quantize-pytorch."""
    import torch

    # An input [N, D] would be read as sequences of one vector.
    vectors = torch.tensor(data.vectors[None]).requires_grad_()
    weights = torch.from_numpy(data.weights[None])

    def step():
        vectors.grad = None
        quantized, _, loss = torch_call(layer, vectors)
        targets, upstream = [quantized], [weights]
        # Some have no loss: theirs is the number 0.
        if isinstance(loss, torch.Tensor) and loss.requires_grad:
            targets, upstream = [quantized, loss], [weights, torch.ones_like(loss)]
        torch.autograd.backward(targets, upstream)
        return quantized.detach()[0], vectors.grad[0]

    return step


def _make_member(data, name):
    num_codes, dim = data.codebook().shape
    return QUANTIZERS[name].make(dim, num_codes, MEMBER_STEPS, 0)


def keras_member(data, name):
    layer = _make_member(data, name)
    layer.build(data.vectors.shape)

    def call(x):
        return layer(x, training=True)["quantized"], [0.0, *layer.losses]

    return learner(data, _tf_step(data, call))


def torch_member(data, name):
    return learner(data, _torch_step(data, _make_member(data, name).train()))


def vector_quantize_pytorch(data, compiled=False, **options):
    import torch
    from vector_quantize_pytorch import VectorQuantize

    codebook = torch.tensor(data.codebook()[None])
    _, num_codes, dim = codebook.shape
    layer = VectorQuantize(
        dim=dim,
        codebook_size=num_codes,
        decay=DECAY,
        commitment_weight=COMMITMENT_WEIGHT,
        kmeans_init=False,
        threshold_ema_dead_code=0,
        **options,
    ).train()
    start = {"_codebook.embed": codebook, "_codebook.embed_avg": codebook}
    if layer.load_state_dict(start, strict=False).unexpected_keys:
        raise RuntimeError("this version keeps its codebook under other names")
    step = _torch_step(data, torch.compile(layer) if compiled else layer)
    return learner(data, step, lambda: layer.codebook.detach().numpy().copy())


def sonnet(data):
    import sonnet as snt

    codebook = data.codebook()
    num_codes, dim = codebook.shape
    layer = snt.nets.VectorQuantizerEMA(dim, num_codes, COMMITMENT_WEIGHT, DECAY)
    layer.embeddings.assign(codebook.T)

    def call(x):
        outputs = layer(x, is_training=True)
        return outputs["quantize"], outputs["loss"]

    return learner(data, _tf_step(data, call), lambda: layer.embeddings.numpy())


def keras_hub(data):
    # KerasHub has the layer inside its RQVAE model and does not export it.
    from keras_hub.src.models.rqvae.rqvae_layers import VectorQuantizerEMA

    codebook = data.codebook()
    layer = VectorQuantizerEMA(*codebook.shape, decay=DECAY)
    layer.build(data.vectors.shape)
    layer.embeddings.assign(codebook)
    layer.ema_w.assign(codebook)
    layer.ema_cluster_size.assign(np.ones(len(codebook), "float32"))

    def call(x):
        quantized, _, _, loss = layer(x, training=True)
        # The layer leaves the weight of the loss to its caller.
        return quantized, COMMITMENT_WEIGHT * loss

    return learner(data, _tf_step(data, call), lambda: np.array(layer.embeddings))


# By name: the function that makes it, and the packages whose versions are reported.
CONTESTANTS = {
    "tf_matmul": (tf_matmul, ("tensorflow",)),
    "keras_vqem": (keras_vqem, KERAS),
    "keras_member": (keras_member, KERAS),
    "torch_matmul": (torch_matmul, ("torch",)),
    "vector_quantize_pytorch": (vector_quantize_pytorch, TORCH),
    "torch_member": (torch_member, TORCH),
    "sonnet": (sonnet, ("dm-sonnet", "tensorflow")),
    "keras_hub": (keras_hub, ("keras-hub", "keras", "tensorflow")),
}
