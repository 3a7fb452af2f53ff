"""Operations on all vectors of a batch that read them as seldom as possible.

For a small codebook, a pass over the vectors costs as much as a part of the search.
"""

import tensorflow as tf
from keras import ops
from tensorflow.python.ops import control_flow_util


def compiled_by_xla() -> bool:
    """Tells whether XLA is going to compile the graph that is being traced."""
    # TensorFlow has no public function for this. A wrong answer would be noticed: XLA
    # refuses some kernels, and the conformance tests compile every layer.
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def norms(vectors: tf.Tensor) -> tf.Tensor:
    """Computes the norms of vectors `[..., d]`, without a gradient.

    Args:
        vectors: Float32 `[..., d]`.

    Returns:
        Tensor `[...]`.
    """
    vectors = ops.stop_gradient(vectors)
    if compiled_by_xla():
        return ops.sqrt(ops.sum(ops.square(vectors), axis=-1))
    # One pass. Squares and their sum are two, but XLA, which merges them, lacks it.
    return tf.math.reduce_euclidean_norm(vectors, axis=-1)


def zero_unless(sound: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Sets rows to 0 unless they are sound, and their gradient as well.

    Args:
        sound: Booleans `[N]`.
        rows: Vectors `[N, D]`; those that are not sound may be of any value.

    Returns:
        Vectors `[N, D]`.
    """

    def select(rows):
        return ops.where(sound[:, None], rows, 0.0)

    # A GPU selects in no time, but the host would have to wait for the answer whether
    # it must. XLA merges the selection with what comes after it.
    if compiled_by_xla() or tf.config.list_logical_devices("GPU"):
        return select(rows)

    @tf.custom_gradient
    def select_at_need(rows):
        all_sound = ops.all(sound)

        def at_need(x):
            return tf.cond(all_sound, lambda: tf.identity(x), lambda: select(x))

        return at_need(rows), at_need

    return select_at_need(rows)
