"""Contestants of benchmark_training.py: a whole training step of each library.

A step is what `fit` runs for a batch: forward pass with dropout, loss, gradients, Adam.
All contestants of a size get the same batch. Layers are pre-norm, embeddings and logits
share a matrix, and dropout follows the embeddings, each attention and each feed-forward
network, and nothing else.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

DROPOUT, RATE = 0.1, 1e-3
NUM_CODES, CODE_SLOTS = 256, 10
LOG_SCALES = (-7.0, 7.0)  # of CategoricalPixels


class Data(NamedTuple):
    sizes: dict
    source_ids: np.ndarray | None  # [rows, length]
    target_ids: np.ndarray | None
    images: np.ndarray | None  # uint8 [rows, 32, 32, 3]


def load_data(folder, **sizes):
    rng = np.random.default_rng(0)
    if "channels" in sizes:
        images = rng.integers(0, 256, (sizes["rows"], 32, 32, 3), "uint8")
        return Data(sizes, None, None, images)
    shape = (2, sizes["rows"], sizes["length"])
    ids = rng.integers(3, sizes["vocabulary"], shape).astype("int32")
    ids[:, :, -1] = 1  # the end of a sentence
    return Data(sizes, *ids, None)


class Contestant(NamedTuple):
    step: Callable  # () -> loss
    check: Callable | None = None  # number of steps -> results of the first ones


def learner(step):
    """Returns a contestant whose loss has to stay finite, and to change."""

    def check(steps):
        losses = [float(step()) for _ in range(steps)]
        if not np.isfinite(losses).all() or len(set(losses)) == 1:
            raise RuntimeError(f"it does not learn, its losses are {losses}")
        return {"first_loss": losses[0]}

    return Contestant(lambda: float(step()), check)


# The yardstick.


def tf_matmul(data, size):
    import tensorflow as tf

    x = tf.random.stateless_normal([size, size], [0, 0])
    product = tf.function(lambda x, y: tf.matmul(x, y))
    return Contestant(lambda: product(x, x).numpy()[0, 0])


def torch_matmul(data, size):
    import torch

    x = torch.randn(size, size)
    return Contestant(lambda: float((x @ x)[0, 0]))


# Keras.


def keras_step(model, batch):
    import tensorflow as tf

    model.make_train_function()
    batches = iter(tf.data.Dataset.from_tensors(batch).repeat())
    return learner(lambda: model.train_function(batches)["loss"])


class Vocabulary:
    """What a translator needs of a tokenizer to be trained on ids."""

    def __init__(self, size):
        self.vocabulary_size = size


def _text(data):
    return {"source_ids": data.source_ids, "target_ids": data.target_ids}


def _sizes(sizes):
    return {
        "hidden_dim": sizes["width"],
        "num_heads": sizes["heads"],
        "intermediate_dim": sizes["intermediate"],
        "num_encoder_layers": sizes["layers"],
        "num_decoder_layers": sizes["layers"],
        "dropout": DROPOUT,
    }


def _policy(precision):
    import keras

    keras.config.set_dtype_policy(precision)
    keras.utils.set_random_seed(0)


def transformer(data, jit=True, precision="float32"):
    import keras

    from keras_vqem.models import Transformer

    _policy(precision)
    tokenizer = Vocabulary(data.sizes["vocabulary"])
    model = Transformer(tokenizer, **_sizes(data.sizes))
    adam = keras.optimizers.Adam(RATE)
    model.compile(adam, label_smoothing=0.0, jit_compile=jit)
    return keras_step(model, _text(data))


def latent_nmt(data, jit=True, precision="float32", num_codes=512, num_samples=10):
    import keras

    from keras_vqem.layers import VQEMBottleneck
    from keras_vqem.models import LatentNMT

    _policy(precision)
    model = LatentNMT(
        Vocabulary(data.sizes["vocabulary"]),
        VQEMBottleneck(num_codes, num_samples, temperature=5.0, seed=0),
        num_compress_steps=3,
        num_predictor_layers=2,
        **_sizes(data.sizes),
    )
    adam = keras.optimizers.Adam(RATE)
    model.compile(adam, label_smoothing=0.0, jit_compile=jit)
    return keras_step(model, _text(data))


def image_vqvae(data, jit=False, precision="float32"):
    import keras

    from keras_vqem.models import ImageVQVAE

    _policy(precision)
    model = ImageVQVAE.paper(num_samples=None, channels=data.sizes["channels"])
    model.compile(keras.optimizers.Adam(RATE), jit_compile=jit)
    return keras_step(model, {"images": data.images})


def keras_hub(data, jit=True, precision="float32"):
    import keras
    from keras import ops
    from keras_hub import layers

    _policy(precision)
    sizes = data.sizes
    width, vocabulary = sizes["width"], sizes["vocabulary"]
    embedding = layers.ReversibleEmbedding(vocabulary, width)
    positions = layers.SinePositionEncoding()
    dropout = keras.layers.Dropout(DROPOUT)

    def embed(ids):
        x = embedding(ids) * width**0.5
        return dropout(x + positions(x))

    options = {
        "intermediate_dim": sizes["intermediate"],
        "num_heads": sizes["heads"],
        "dropout": DROPOUT,
        "layer_norm_epsilon": 1e-6,
        "normalize_first": True,
    }
    names = ("source_ids", "target_ids")
    source, target = (
        keras.Input((sizes["length"],), dtype="int32", name=n) for n in names
    )
    source_mask, memory = ops.not_equal(source, 0), embed(source)
    for _ in range(sizes["layers"]):
        memory = layers.TransformerEncoder(**options)(memory, padding_mask=source_mask)
    memory = keras.layers.LayerNormalization()(memory)
    shifted = ops.pad(target, [[0, 0], [1, 0]])[:, :-1]
    x = embed(shifted)
    for _ in range(sizes["layers"]):
        layer = layers.TransformerDecoder(**options)
        x = layer(x, memory, encoder_padding_mask=source_mask)
    x = keras.layers.LayerNormalization()(x)
    model = keras.Model([source, target], embedding(x, reverse=True))
    # It also drops attention weights, which no other contestant does.
    for layer in model.layers:
        for name in ("_self_attention_layer", "_cross_attention_layer"):
            attention = getattr(layer, name, None)
            if attention is not None:
                attention._dropout = attention._dropout_layer.rate = 0.0
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(RATE), loss, jit_compile=jit)
    batch = ((data.source_ids, data.target_ids), data.target_ids)
    return keras_step(model, batch)


# torch.


def _torch_learner(model, loss, compiled, half):
    import torch

    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)
    loss = torch.compile(loss) if compiled else loss

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            found = loss()
        found.backward()
        optimizer.step()
        return found.detach()

    return learner(step)


def torch_transformer(data, compiled=False, half=False):
    import torch
    from torch import nn
    from torch.nn import functional

    sizes, width = data.sizes, data.sizes["width"]
    embedding = nn.Embedding(sizes["vocabulary"], width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    network = nn.Transformer(
        width,
        sizes["heads"],
        sizes["layers"],
        sizes["layers"],
        sizes["intermediate"],
        DROPOUT,
        batch_first=True,
        norm_first=True,
        bias=True,
    ).train()
    # It also drops attention weights and hidden units, which takes time.
    for module in network.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(
            module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer
        ):
            module.dropout = nn.Identity()
    source, target = (
        torch.tensor(x).long() for x in (data.source_ids, data.target_ids)
    )
    shifted = functional.pad(target, (1, 0))[:, :-1]
    # An additive mask, as ours: whether there is padding is not known before.
    length = sizes["length"]
    padding = torch.zeros(source.shape).masked_fill(source == 0, -torch.inf)
    causal = nn.Transformer.generate_square_subsequent_mask(length)
    angles = torch.arange(length)[:, None] / 10000 ** (
        torch.arange(width // 2) * 2 / width
    )
    signal = torch.cat([angles.sin(), angles.cos()], 1)

    def embed(ids):
        x = functional.embedding(ids, embedding.weight) * math.sqrt(width)
        return functional.dropout(x + signal, DROPOUT)

    def loss():
        x = network(
            embed(source),
            embed(shifted),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        logits = functional.linear(x, embedding.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten())

    model = nn.ModuleList([embedding, network])
    return _torch_learner(model, loss, compiled, half)


def torch_images(data, compiled=False, half=False):
    import torch
    from torch import nn
    from torch.nn import functional

    c = data.sizes["channels"]
    images = torch.tensor(data.images).permute(0, 3, 1, 2).contiguous()
    inputs = (images / 127.5 - 1).contiguous(memory_format=torch.channels_last)
    pixels = images.long()

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 1)
            nn.init.zeros_(self.second.weight)

        def forward(self, x):
            return x + self.second(self.first(x.relu()).relu())

    class Quantizer(nn.Module):
        """One codebook for ten slices, trained by moving averages."""

        def __init__(self):
            super().__init__()
            self.register_buffer("codebook", torch.randn(NUM_CODES, c))
            self.register_buffer("sums", self.codebook.clone())
            self.register_buffer("counts", torch.ones(NUM_CODES))

        def forward(self, x):
            flat = x.reshape(-1, c)
            with torch.no_grad():
                vectors = flat.float()
                scores = vectors @ self.codebook.T
                codes = (scores - 0.5 * self.codebook.square().sum(1)).argmax(1)
                counts = torch.bincount(codes, minlength=NUM_CODES).float()
                sums = torch.zeros_like(self.sums).index_add_(0, codes, vectors)
                found = functional.embedding(codes, self.codebook)
                self.counts.mul_(0.99).add_(counts, alpha=0.01)
                self.sums.mul_(0.99).add_(sums, alpha=0.01)
                self.codebook.copy_(self.sums / self.counts.clamp(min=1e-5)[:, None])
            commitment = 0.25 * functional.mse_loss(flat.float(), found)
            return (flat + (found - flat).detach()).reshape(x.shape), commitment

    def up():
        return nn.ConvTranspose2d(c, c, 5, 2, padding=2, output_padding=1)

    encoder = nn.Sequential(
        nn.Conv2d(3, c, 5, 2, padding=2),
        nn.ReLU(),
        nn.Conv2d(c, c, 5, 2, padding=2),
        Block(),
        Block(),
        nn.ReLU(),
        nn.Conv2d(c, CODE_SLOTS * c, 1),
    )
    decoder = nn.Sequential(
        nn.Conv2d(CODE_SLOTS * c, c, 1), Block(), Block(), nn.ReLU(), up(), nn.ReLU(),
        up(), nn.ReLU(), nn.Conv2d(c, 3 * 257, 1),
    )  # fmt: skip
    grid = torch.linspace(-1, 1, 256)
    model = nn.ModuleList([encoder, Quantizer(), decoder])
    model.to(memory_format=torch.channels_last).train()

    def loss():
        vectors = model[0](inputs).permute(0, 2, 3, 1)
        quantized, commitment = model[1](vectors)
        outputs = model[2](quantized.permute(0, 3, 1, 2)).float()
        logits, scales = outputs.permute(0, 2, 3, 1).split([3 * 256, 3], -1)
        # As ours: the logits correct the density of a logistic around mid-grey.
        scales = (scales + math.log(64 / 255)).clamp(*LOG_SCALES).exp()
        z = (grid / scales[..., None]).abs()
        density = -z - 2 * functional.softplus(-z)
        logits = (logits.reshape(density.shape) + density).reshape(-1, 256)
        wanted = pixels.permute(0, 2, 3, 1).reshape(-1)
        # As ours: the sum over the values of an image, in nats per value.
        return functional.cross_entropy(logits, wanted) + commitment

    return _torch_learner(model, loss, compiled, half)


KERAS = ("keras", "tensorflow")
# By name: the function that makes it, and the packages whose versions are reported.
CONTESTANTS = {
    "tf_matmul": (tf_matmul, ("tensorflow",)),
    "torch_matmul": (torch_matmul, ("torch",)),
    "transformer": (transformer, KERAS),
    "latent_nmt": (latent_nmt, KERAS),
    "image_vqvae": (image_vqvae, KERAS),
    "keras_hub": (keras_hub, ("keras-hub", *KERAS)),
    "torch_transformer": (torch_transformer, ("torch",)),
    "torch_images": (torch_images, ("torch",)),
}
