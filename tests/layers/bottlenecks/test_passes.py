"""Operations on all vectors give what their plain forms give, gradients included."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vqem.layers import SquaredCommitment
from keras_vqem.layers.bottlenecks import passes

every_compiler = pytest.mark.parametrize("jit", [False, True])


@every_compiler
def test_norms(jit, rng):
    x = rng.normal(size=(3, 5, 7)).astype("float32")
    x[0, 0] = [np.nan, *6 * [0]]
    x[0, 1] = [np.inf, *6 * [0]]
    x[0, 2] = 3e38  # its square is not finite
    got = tf.function(passes.norms, jit_compile=jit)(tf.constant(x)).numpy()
    assert np.isnan(got[0, 0]) and got[0, 1] == got[0, 2] == np.inf
    got[0, :3] = x[0, :3] = 0
    np.testing.assert_allclose(got, np.linalg.norm(x, axis=-1), rtol=1e-6)


@every_compiler
@pytest.mark.parametrize("bad", [(), (0,), (1, 3)])
def test_rows_that_are_not_sound_are_zero_and_so_is_their_gradient(bad, jit, rng):
    rows = rng.normal(size=(4, 3)).astype("float32")
    rows[list(bad)] = np.nan
    sound = ~np.isin(np.arange(4), bad)

    @tf.function(jit_compile=jit)
    def run(rows, upstream):
        with tf.GradientTape() as tape:
            tape.watch(rows)
            zeroed = passes.zero_unless(tf.constant(sound), rows)
        return zeroed, tape.gradient(zeroed, rows, upstream)

    upstream = rng.normal(size=(4, 3)).astype("float32")
    zeroed, gradient = run(tf.constant(rows), tf.constant(upstream))
    np.testing.assert_array_equal(zeroed, np.where(sound[:, None], rows, 0))
    np.testing.assert_array_equal(gradient, upstream * sound[:, None])


@every_compiler
def test_the_gradient_of_the_commitment_is_that_of_its_formula(jit, rng):
    vectors, codes, upstream = rng.normal(size=(3, 2, 5, 4)).astype("float32")
    upstream = upstream[..., 0]

    def gradients(errors):
        @tf.function(jit_compile=jit)
        def run(vectors, codes):
            with tf.GradientTape() as tape:
                tape.watch((vectors, codes))
                values = errors(vectors, codes)
            return values, *tape.gradient(values, (vectors, codes), upstream)

        return run(tf.constant(vectors), tf.constant(codes))

    got = gradients(SquaredCommitment(1.0).errors)
    want = gradients(lambda x, e: tf.reduce_mean(tf.square(x - e), axis=-1))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
