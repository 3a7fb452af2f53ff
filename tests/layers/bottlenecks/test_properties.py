"""What holds for any shape, mask and dtype, tried on many (hypothesis)."""

import hypothesis
import keras
import numpy as np
from hypothesis import strategies as st

from keras_vqem.layers import Projections, SharedSlices, Slices, VQEMBottleneck
from tests.layers.bottlenecks import reference

settings = hypothesis.settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def layers_and_inputs(draw):
    groups = draw(st.sampled_from([None, Slices, SharedSlices, Projections]))
    number = draw(st.integers(1, 3)) if groups else 1
    dim = number * draw(st.integers(1, 4))
    lead = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = (
        draw(st.sampled_from([0.01, 1.0, 30.0])) * rng.normal(size=(*lead, dim))
    ).astype("float32")
    mask = draw(st.sampled_from([None, 0.0, 0.5, 1.0]))
    if mask is not None:
        mask = rng.random(lead) < mask
    # Arguments rather than the layer: Keras draws names and seeds as it makes one.
    arguments = dict(
        num_codes=draw(st.integers(2, 9)),
        num_samples=draw(st.sampled_from([None, 1, 4])),
        groups=groups and groups(number),
        decay=draw(st.sampled_from([0.0, 0.9, 0.999])),
        initializer=draw(st.sampled_from(["data", "random_normal"])),
        dead_code_threshold=draw(st.sampled_from([0.0, 0.2])),
        dtype=draw(st.sampled_from(["float32", "mixed_float16", "mixed_bfloat16"])),
        seed=draw(st.integers(0, 99)),
    )
    return arguments, x, mask


@settings
@hypothesis.given(layers_and_inputs())
def test_any_shape_mask_and_dtype(case):
    arguments, x, mask = case
    layer = VQEMBottleneck(**arguments)
    kept = int(np.prod(x.shape[:-1]) if mask is None else mask.sum())
    for _ in range(3):
        outputs = layer(x, mask=mask, training=True)
        tail = layer.groups.code_shape
        assert outputs["quantized"].shape == x.shape
        assert outputs["codes"].shape == (*x.shape[:-1], *tail)
        assert keras.backend.standardize_dtype(outputs["quantized"].dtype) == (
            layer.compute_dtype
        )
        codes = np.asarray(outputs["samples"])
        assert codes.min() >= 0 and codes.max() < layer.num_codes
        # State stays finite, and every kept vector counts once.
        assert np.isfinite(layer.codebook.numpy()).all()
        assert np.isfinite(float(layer.losses[0]))
    counted = layer.perplexity.counts.numpy().sum()
    np.testing.assert_allclose(counted, 3 * kept * layer.groups.num_groups, rtol=1e-5)
    if kept == 0:
        assert float(layer.losses[0]) == 0.0

    called = layer(x)
    codes = layer.encode(x)
    np.testing.assert_array_equal(codes, called["codes"])
    np.testing.assert_array_equal(layer.decode(codes), called["quantized"])


@settings
@hypothesis.given(layers_and_inputs())
def test_codes_are_nearest(case):
    arguments, x, mask = case
    layer = VQEMBottleneck(**arguments)
    layer(x, mask=mask, training=True)
    vectors, counts = (np.asarray(v) for v in layer.ema.read())
    rounded = keras.ops.cast(keras.ops.cast(x, layer.compute_dtype), "float32")
    pieces = np.asarray(layer.groups.split(np.reshape(rounded, (-1, x.shape[-1]))))
    codes = np.asarray(layer.encode(x)).reshape(-1, *layer.groups.code_shape)
    codes = np.asarray(layer.groups.split_codes(codes))
    for piece, table, count, code in zip(pieces, vectors, counts, codes, strict=True):
        distances = reference.squared_distances(
            piece.astype("float64"), table.astype("float64")
        )
        if count.any():
            distances[:, count == 0] = np.inf
        chosen = np.take_along_axis(distances, code[:, None], axis=1)[:, 0]
        # Ties may go either way, up to float32's resolution of the terms.
        scale = (piece**2).sum(-1) + (table**2).sum(-1).max()
        assert (chosen <= distances.min(-1) + 1e-5 * scale + 1e-12).all()
