"""LearnedPriorVQEMBottleneck: EM for a mixture that learns its weights too."""

from typing import Any

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

from keras_vqem.layers.bottlenecks.draws import Draws
from keras_vqem.layers.bottlenecks.vqem_bottleneck import VQEMBottleneck

# Share of all probability that the codes have in common, so that the weight of a code
# that nobody uses has a logarithm.
COMMON_SHARE = 1e-4


@keras.saving.register_keras_serializable(package="keras_vqem")
class LearnedPriorVQEMBottleneck(VQEMBottleneck):
    """A `VQEMBottleneck` whose mixture learns the weights of its codes.

    EM for a mixture of Gaussians has weights `p`, which the M step sets to the share of
    vectors that each code got. The paper keeps them equal, "since we observe that
    training the cluster priors seemed to cause the cluster assignments to collapse to
    only a few clusters". This layer trains them, to show it. With the moving averages
    `c` of counts, the posterior of the E step is the softmax of

        -|x - e|^2 / temperature + log p        p = (c / sum c + s / K) / (1 + s)

    with `s = 1e-4`. A code that nobody uses thus keeps a small weight. Wherever
    `VQEMBottleneck` takes the nearest code, in hard EM and outside training, this layer
    takes the likeliest one. The rich get richer: a code in frequent use draws vectors
    that are nearer to others. How much so depends on `temperature`, beside which
    squared distances count. `prior_logits` are added to all this.

    Call arguments and outputs are those of `VQEMBottleneck`. Codes are the likeliest
    ones, so `encode(decode(codes))` need not be `codes`.

    Args:
        num_codes: Number of codes, `K`. At least 2.
        num_samples: Number of draws per vector, `"exact"`, `Draws`, or None for hard
            EM; see `VQEMBottleneck`.
        temperature: Number or schedule that divides squared distances. The higher it
            is, the more the weights count, also in hard EM and outside training.
        **kwargs: Other arguments of `VQEMBottleneck`.

    Example:

    >>> codes = keras.initializers.Constant([[[0.0], [1.0]]])
    >>> layer = keras_vqem.layers.LearnedPriorVQEMBottleneck(
    ...     2, decay=0.5, initializer=codes)
    >>> outputs = layer(np.array([[0.0], [0.1], [0.2], [0.9]]), training=True)
    >>> layer.counts.numpy().tolist()
    [[2.0, 1.0]]
    >>> layer.encode(np.array([[0.6]])).numpy().tolist()  # nearest would be 1
    [0]

    References:
        - Roy, Vaswani, Neelakantan, Parmar, 2018. Theory and Experiments on Vector
          Quantized Autoencoders. arXiv:1805.11063.
    """

    def __init__(
        self,
        num_codes: int,
        num_samples: int | str | Draws | None = None,
        temperature: float | LearningRateSchedule = 1.0,
        **kwargs: Any,
    ):
        super().__init__(num_codes, num_samples, temperature, **kwargs)

    def _log_weights(self, counts):
        share = counts / ops.maximum(ops.sum(counts, axis=-1, keepdims=True), 1e-30)
        share = (share + COMMON_SHARE / self.num_codes) / (1.0 + COMMON_SHARE)
        return ops.log(share)
