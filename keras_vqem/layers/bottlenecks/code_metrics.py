"""How a codebook is used, over an epoch: metrics fed with counts of codes."""

import keras
from keras import ops


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

    Between 1 (one code does everything) and `num_codes` (all are used alike). It is
    the exponential of the entropy of the summed counts; a batch's own perplexity is
    capped by its size and says little.
    """

    def result(self):
        total = ops.sum(self.counts, axis=-1, keepdims=True)
        p = self.counts / ops.maximum(total, 1.0)
        entropy = -ops.sum(p * ops.log(ops.where(p > 0, p, 1.0)), axis=-1)
        return ops.mean(ops.where(total[:, 0] > 0, ops.exp(entropy), 0.0))


@keras.saving.register_keras_serializable(package="keras_vqem")
class CodeUsage(_CodeCounts):
    """Fraction of the codes that were used at all since the last reset."""

    def result(self):
        return ops.mean(ops.cast(self.counts > 0, "float32"))
