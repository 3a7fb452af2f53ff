"""How a codebook is used: perplexity of counts, and metrics over an epoch."""

import keras
from keras import ops


def perplexity(counts):
    """Perplexity of codes: the exponential of the entropy of their shares.

    As many codes, used equally often, would be as hard to guess.

    Args:
        counts: Array `[..., num_codes]` of how often each code occurs, or of shares.

    Returns:
        Tensor `[...]`, between 1 (one code only) and `num_codes` (all used equally);
        0 where all counts are 0.

    Example:

    >>> from keras_vqem.layers.bottlenecks.code_metrics import perplexity
    >>> perplexity([[2.0, 2.0, 0.0, 0.0], [0.0, 7.0, 0.0, 0.0]]).numpy().tolist()
    [2.0, 1.0]
    """
    counts = ops.convert_to_tensor(counts)
    total = ops.sum(counts, axis=-1, keepdims=True)
    p = ops.divide(counts, ops.where(total > 0, total, 1))
    entropy = -ops.sum(p * ops.log(ops.where(p > 0, p, 1.0)), axis=-1)
    return ops.where(total[..., 0] > 0, ops.exp(entropy), 0.0)


class _CodeCounts(keras.metrics.Metric):
    """Sums counts of codes. Replicas add their own; reading sums over them."""

    def __init__(self, num_codes, num_codebooks=1, name=None, **kwargs):
        super().__init__(name=name, **kwargs)
        self.num_codes = num_codes
        self.num_codebooks = num_codebooks
        self.counts = self.add_variable(
            shape=(num_codebooks, num_codes), initializer="zeros", name="counts"
        )

    def update_state(self, counts):
        self.counts.assign(self.counts + ops.cast(counts, self.dtype))

    def get_config(self):
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "num_codebooks": self.num_codebooks,
        }


@keras.saving.register_keras_serializable(package="keras_vqem")
class CodePerplexity(_CodeCounts):
    """Perplexity of the codes used since the last reset, the mean over codebooks.

    It is that of the summed counts: the perplexity of a single batch is capped by the
    batch's size and says little.
    """

    def result(self):
        return ops.mean(perplexity(self.counts))


@keras.saving.register_keras_serializable(package="keras_vqem")
class CodeUsage(_CodeCounts):
    """Fraction of the codes that were used at all since the last reset."""

    def result(self):
        return ops.mean(ops.cast(self.counts > 0, "float32"))
