"""Every public layer that is not a bottleneck, by one table. A new one is a new row.

Bottlenecks promise more: they have a table of their own in `bottleneck_cases`.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_vqem import layers

DIM = 8


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Holder(keras.layers.Layer):
    """A layer for what is public and no layer itself: it holds one as its `part`."""

    def __init__(self, part, **kwargs):
        super().__init__(**kwargs)
        self.part = part

    def get_config(self):
        part = keras.saving.serialize_keras_object(self.part)
        return {**super().get_config(), "part": part}

    @classmethod
    def from_config(cls, config):
        part = keras.saving.deserialize_keras_object(config["part"])
        return super().from_config({**config, "part": part})


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Pixels(Holder):
    """Holds a likelihood."""

    def call(self, outputs, images, base):
        return {
            "log_prob": self.part.log_prob(outputs, images, base),
            "mean": self.part.mean(outputs, base),
        }


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Grouped(Holder):
    """Holds a grouping, and gives it float32 rows as bottlenecks do."""

    def build(self, rows_shape):
        self.part.build(self, rows_shape[-1])
        self.built = True

    def call(self, rows, codes):
        pieces = self.part.split(ops.cast(rows, "float32"))
        split_codes = self.part.split_codes(codes)
        return {
            "pieces": pieces,
            "merged": self.part.merge(pieces),
            "split_codes": split_codes,
            "merged_codes": self.part.merge_codes(split_codes),
        }


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Compared(Holder):
    """Holds a similarity."""

    def call(self, inputs):
        return self.part.prepare(ops.cast(inputs, "float32"))


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Estimated(Holder):
    """Holds a gradient estimator."""

    def call(self, inputs, quantized):
        inputs, quantized = (ops.cast(x, "float32") for x in (inputs, quantized))
        return self.part.apply(inputs, quantized)


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Penalized(Holder):
    """Holds a penalty, and a codebook for it."""

    def build(self, inputs_shape):
        shape = (1, 5, inputs_shape[-1])
        self.table = self.add_weight(name="table", shape=shape, autocast=False)

    def call(self, inputs):
        pieces = ops.cast(inputs, "float32")[None]
        keep = ops.ones_like(pieces[..., 0])
        usable = ops.ones((1, 5), "bool")
        table = ops.convert_to_tensor(self.table)
        loss = self.part(pieces, table, usable, keep, ops.sum(keep))
        # Some penalties are of the codebook alone, and the inputs have to matter.
        return loss + pieces[0]


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Averaged(Holder):
    """Holds moving averages. The batch comes first, as in all arguments."""

    def call(self, vectors, counts, new, sums):
        arguments = (ops.cast(x, "float32") for x in (vectors, counts, new, sums))
        return self.part.update(*arguments)


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Committed(Holder):
    """Holds a commitment."""

    def call(self, inputs, quantized):
        inputs, quantized = (ops.cast(x, "float32") for x in (inputs, quantized))
        return self.part.weight * self.part.errors(inputs, quantized)


@keras.saving.register_keras_serializable(package="keras_vqem_tests")
class Drawn(Holder):
    """Holds draws, and gives what the decoder gets a vector to weigh it by."""

    def call(self, inputs, codes, samples):
        sent = self.part.for_decoder(codes, samples)
        sent = ops.mean(ops.cast(sent, self.compute_dtype), axis=-1, keepdims=True)
        return {
            "sent": sent * inputs,
            "labels": self.part.for_predictor(codes, samples),
        }


class Case(NamedTuple):
    """A layer of the table.

    `make` gives the layer, with Layer arguments such as dtype. Its own arguments are
    not the defaults, so that one that is lost on the way is missed. `arguments` gives
    the call arguments by name, from a random generator. `options` are call arguments
    that are no tensors.
    """

    make: Callable
    arguments: Callable
    options: dict = {}
    float32: bool = False  # outputs are float32 under any policy


def vectors(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def ends_with_padding(rng, rows, length):
    """A mask [rows, length] of sequences of which the first is whole."""
    lengths = [length, *rng.integers(1, length, rows - 1)]
    return np.arange(length) < np.array(lengths)[:, None]


def sequences(rng, name="inputs", length=8):
    return {name: vectors(rng, 3, length, DIM)}


def masked(rng):
    return {**sequences(rng), "mask": ends_with_padding(rng, 3, 8)}


def remembering(rng):
    memory = {"memory": vectors(rng, 3, 5, DIM)}
    return {**masked(rng), **memory, "memory_mask": ends_with_padding(rng, 3, 5)}


def attending(rng):
    bias = {"bias": vectors(rng, 3, 1, 8, 5)}
    return {**sequences(rng, "query"), "memory": vectors(rng, 3, 5, DIM), **bias}


def images(rng):
    return {"inputs": rng.uniform(-1, 1, size=(2, 8, 8, 3)).astype("float32")}


def cells(rng):
    return {"inputs": vectors(rng, 2, 2, 2, DIM)}


def pixels(number, levels, shape=(2, 3, 4)):
    def arguments(rng):
        return {
            "outputs": vectors(rng, *shape, number),
            "images": rng.integers(levels, size=(*shape, 3)).astype("int32"),
            "base": rng.uniform(0, levels, size=(*shape, 3)).astype("float32"),
        }

    return arguments


def rows(rng):
    return {"rows": vectors(rng, 6, 12), "codes": rng.integers(9, size=(6, 3))}


def codes_of(rng):
    return {"inputs": vectors(rng, 6, DIM), "quantized": vectors(rng, 6, DIM)}


def pieces(rng):
    return {"inputs": vectors(rng, 6, DIM)}


def drawn(rng):
    return {
        **pieces(rng),
        "codes": rng.integers(9, size=6).astype("int32"),
        "samples": rng.integers(9, size=(6, 4)).astype("int32"),
    }


def statistics(rng):
    counts = {
        key: 5 * rng.random((2, 6)).astype("float32") for key in ("counts", "new")
    }
    return {
        "vectors": vectors(rng, 2, 6, DIM),
        **counts,
        "sums": vectors(rng, 2, 6, DIM),
    }


# name -> the case. Names begin with that of the public symbol.
CASES = {
    "AssignmentEntropy": Case(
        lambda **k: Penalized(layers.AssignmentEntropy(0.3, 0.5, 2.0), **k),
        pieces,
        float32=True,
    ),
    "CachedAttention": Case(lambda **k: layers.CachedAttention(2, **k), attending),
    "CachedAttention to itself": Case(
        lambda **k: layers.CachedAttention(4, **k),
        lambda rng: sequences(rng, "query"),
    ),
    "CategoricalPixels": Case(
        lambda **k: Pixels(layers.CategoricalPixels(levels=16, spread=3.0), **k),
        pixels(51, levels=16),
        float32=True,
    ),
    "Cosine": Case(lambda **k: Compared(layers.Cosine(), **k), sequences, float32=True),
    "Draws": Case(
        lambda **k: Drawn(layers.Draws(4, decoder="mode", labels="mode"), **k), drawn
    ),
    "Draws of which the decoder gets one": Case(
        lambda **k: Drawn(layers.Draws(4, decoder="draw"), **k), drawn
    ),
    "Euclidean": Case(
        lambda **k: Compared(layers.Euclidean(), **k), sequences, float32=True
    ),
    "FeedForward": Case(lambda **k: layers.FeedForward(12, **k), sequences),
    "GroupedPixels": Case(
        lambda **k: layers.GroupedPixels(
            layers.LogisticMixture(num_mixtures=2, levels=16, spread=3.0),
            features=3,
            channels=4,
            num_blocks=1,
            seed=5,
            **k,
        ),
        pixels(23, levels=16, shape=(2, 4, 6)),
        float32=True,
    ),
    "ImageCompressor": Case(
        lambda **k: layers.ImageCompressor(
            6, channels=4, num_compress_steps=1, num_blocks=1, kernel_size=3, **k
        ),
        images,
    ),
    "ImageDecompressor": Case(
        lambda **k: layers.ImageDecompressor(
            4, num_decompress_steps=1, num_blocks=1, kernel_size=3, **k
        ),
        cells,
    ),
    "LearnedProjections": Case(
        lambda **k: Grouped(layers.LearnedProjections(3, dim=2, seed=5), **k),
        rows,
        float32=True,
    ),
    "LocalAttention": Case(
        lambda **k: layers.LocalAttention(2, block_length=3, **k),
        lambda rng: sequences(rng, "query"),
    ),
    "LocalTransformer": Case(
        lambda **k: layers.LocalTransformer(
            1, num_heads=2, intermediate_dim=12, block_length=3, dropout=0.5, **k
        ),
        sequences,
    ),
    "LogisticMixture": Case(
        lambda **k: Pixels(
            layers.LogisticMixture(num_mixtures=2, levels=16, spread=3.0), **k
        ),
        pixels(20, levels=16),
        float32=True,
    ),
    "MovingAverages": Case(
        lambda **k: Averaged(layers.MovingAverages(0.7), **k), statistics, float32=True
    ),
    "NormCommitment": Case(
        lambda **k: Committed(layers.NormCommitment(0.3), **k), codes_of, float32=True
    ),
    "OrthogonalCodes": Case(
        lambda **k: Penalized(layers.OrthogonalCodes(0.3), **k), pieces, float32=True
    ),
    "PaperAverages": Case(
        lambda **k: Averaged(layers.PaperAverages(0.7), **k), statistics, float32=True
    ),
    "PatchCompressor": Case(
        lambda **k: layers.PatchCompressor(
            6, patch_size=2, channels=4, num_blocks=1, **k
        ),
        images,
    ),
    "PatchDecompressor": Case(
        lambda **k: layers.PatchDecompressor(
            patch_size=2,
            channels=4,
            num_blocks=1,
            pixel_channels=5,
            num_pixel_blocks=1,
            unit=0.5,
            **k,
        ),
        cells,
    ),
    "Projections": Case(
        lambda **k: Grouped(layers.Projections(3, dim=2, seed=5), **k),
        rows,
        float32=True,
    ),
    "ReferenceAverages": Case(
        lambda **k: Averaged(layers.ReferenceAverages(0.7, epsilon=0.1), **k),
        statistics,
        float32=True,
    ),
    "ReplicaDropout": Case(
        lambda **k: layers.ReplicaDropout(0.5, seed=1, **k), sequences
    ),
    "RotationTrick": Case(
        lambda **k: Estimated(layers.RotationTrick(), **k), codes_of, float32=True
    ),
    "SequenceCompressor": Case(
        lambda **k: layers.SequenceCompressor(2, dropout=0.5, **k), masked
    ),
    "SequenceCompressor with a memory": Case(
        lambda **k: layers.SequenceCompressor(1, dropout=0.5, num_heads=2, **k),
        remembering,
    ),
    "SequenceDecompressor": Case(
        lambda **k: layers.SequenceDecompressor(2, dropout=0.5, **k), masked
    ),
    "SharedSlices": Case(
        lambda **k: Grouped(layers.SharedSlices(3), **k), rows, float32=True
    ),
    "Slices": Case(lambda **k: Grouped(layers.Slices(3), **k), rows, float32=True),
    "SquaredCommitment": Case(
        lambda **k: Committed(layers.SquaredCommitment(0.3), **k),
        codes_of,
        float32=True,
    ),
    "StraightThrough": Case(
        lambda **k: Estimated(layers.StraightThrough(), **k), codes_of, float32=True
    ),
    "TiedEmbedding": Case(
        lambda **k: layers.TiedEmbedding(10, DIM, "random_uniform", **k),
        lambda rng: {"inputs": rng.integers(10, size=(3, 5)).astype("int32")},
    ),
    "TiedEmbedding reversed": Case(
        lambda **k: layers.TiedEmbedding(10, DIM, **k),
        sequences,
        options={"reverse": True},
    ),
    "TransformerDecoder": Case(
        lambda **k: layers.TransformerDecoder(
            1, num_heads=2, intermediate_dim=12, dropout=0.5, causal=False, **k
        ),
        remembering,
    ),
    "TransformerEncoder that is causal": Case(
        lambda **k: layers.TransformerEncoder(
            1, num_heads=2, intermediate_dim=12, dropout=0.5, causal=True, **k
        ),
        masked,
    ),
    "TransformerEncoder": Case(
        lambda **k: layers.TransformerEncoder(
            1, num_heads=2, intermediate_dim=12, dropout=0.5, **k
        ),
        masked,
    ),
}


def public_name(layer):
    """The name under which users know what a case made."""
    return type(layer.part if isinstance(layer, Holder) else layer).__name__
