"""Use of a codebook: perplexity of counts, and metrics over an epoch."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike


def perplexity(counts: ArrayLike) -> tf.Tensor:
    """Computes the perplexity of codes: the exponential of the entropy of their use.

    Codes of perplexity `p` are as hard to predict as `p` codes that are used equally
    often.

    Args:
        counts: Number of times each code occurs, or fractions, `[..., num_codes]`.

    Returns:
        Tensor `[...]` with values between 1 (a single code) and `num_codes` (all codes
        equally often), or 0 if all counts are 0.

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
    """Sum of the counts of codes.

    Each replica adds its own counts; reading the variable sums them over replicas.
    """

    def __init__(
        self,
        num_codes: int,
        num_codebooks: int = 1,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.num_codes = num_codes
        self.num_codebooks = num_codebooks
        self.counts = self.add_variable(
            shape=(num_codebooks, num_codes), initializer="zeros", name="counts"
        )

    def update_state(self, counts: ArrayLike) -> None:
        self.counts.assign(self.counts + ops.cast(counts, self.dtype))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_codes": self.num_codes,
            "num_codebooks": self.num_codebooks,
        }


@keras.saving.register_keras_serializable(package="keras_vqem")
class CodePerplexity(_CodeCounts):
    """Perplexity of the codes used since the last reset, averaged over codebooks.

    It is computed from the sum of all counts. The perplexity of a single batch would
    say little, because the number of vectors in the batch limits it.

    Args:
        num_codes: Number of codes per codebook.
        num_codebooks: Number of codebooks.
        name: Name of the metric.
        **kwargs: Other arguments of `keras.metrics.Metric`.
    """

    def result(self) -> tf.Tensor:
        return ops.mean(perplexity(self.counts))


@keras.saving.register_keras_serializable(package="keras_vqem")
class CodeUsage(_CodeCounts):
    """Fraction of the codes that were used at least once since the last reset.

    Args:
        num_codes: Number of codes per codebook.
        num_codebooks: Number of codebooks.
        name: Name of the metric.
        **kwargs: Other arguments of `keras.metrics.Metric`.
    """

    def result(self) -> tf.Tensor:
        return ops.mean(ops.cast(self.counts > 0, "float32"))
