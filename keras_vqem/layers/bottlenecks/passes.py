"""Operations on all vectors of a batch that read them as seldom as possible.

For a small codebook, a pass over the vectors costs as much as a part of the search.
"""

import tensorflow as tf
from keras import ops
from tensorflow.python.ops import control_flow_util


def plain_only() -> bool:
    """Tells whether only plain operations may be used, under XLA and on GPUs.

    XLA lacks kernels that are fast on a CPU, and merges plain operations into few
    passes. For a GPU, nobody has measured or checked what these kernels do.
    """
    # TensorFlow has no public function for this. A wrong answer would be noticed: XLA
    # refuses some kernels, and the conformance tests compile every layer.
    graph = tf.compat.v1.get_default_graph()
    by_xla = control_flow_util.GraphOrParentsInXlaContext(graph)
    return by_xla or bool(tf.config.list_logical_devices("GPU"))


def norms(vectors: tf.Tensor) -> tf.Tensor:
    """Computes the norms of vectors `[..., d]`, without a gradient.

    Args:
        vectors: Float32 `[..., d]`.

    Returns:
        Tensor `[...]`.
    """
    vectors = ops.stop_gradient(vectors)
    if plain_only():
        return ops.sqrt(ops.sum(ops.square(vectors), axis=-1))
    # One pass, where squares and their sum are two.
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

    # With a GPU, the host would have to wait for the answer whether it must select.
    if plain_only():
        return select(rows)

    @tf.custom_gradient
    def select_at_need(rows):
        all_sound = ops.all(sound)

        def at_need(x):
            return tf.cond(all_sound, lambda: tf.identity(x), lambda: select(x))

        return at_need(rows), at_need

    return select_at_need(rows)
