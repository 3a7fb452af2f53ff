"""LookupFreeBottleneck: lookup-free quantization, signs with an entropy penalty."""

from typing import Any

import keras
from keras import ops

from keras_vqem import replicas
from keras_vqem.checks import whole_number
from keras_vqem.layers.bottlenecks.groupings import Whole
from keras_vqem.layers.bottlenecks.scalar_bottleneck import (
    ScalarBottleneck,
    check_bits,
)

# Stands for 0 in logarithms.
SMALLEST = 1e-30


@keras.saving.register_keras_serializable(package="keras_vqem")
class LookupFreeBottleneck(ScalarBottleneck):
    """Lookup-free quantization (LFQ): the code of a vector is the signs of its numbers.

    Each number becomes -1 or 1, and the gradient passes straight through. No codebook
    is stored, and nothing is searched. What keeps the codes in use is the loss:

        entropy_weight * (mean H(p) - diversity_weight * H(mean p))
            + commitment_weight * mean (z - sign(z))^2

    Here `p` is the posterior over codes, given a vector: bits are independent, and bit
    `i` is 1 with probability `sigmoid(4 z_i / temperature)`, as if -1 and 1 were the
    two means of a mixture with the variance of `VQEMBottleneck`. Its entropy `H(p)`, a
    sum over bits, is small if each vector is sure of its code. The entropy of the mean
    of all posteriors of the batch is large if all codes are used.

    The first entropy is exact. The second is exact over `entropy_bits` bits at a time:
    the bits are cut into consecutive sections of that size, and the entropies of the
    sections are added. This is an upper bound of the joint entropy, which ignores that
    sections may depend on each other. With `entropy_bits >= num_bits` it is the joint
    entropy itself. A section of `b` bits needs `2 ** b` numbers per vector.

    All means are over the unmasked vectors of all replicas, and gradients are those of
    the whole batch. A model that works through a batch in parts takes the entropy of
    each part.

    If vectors have another size than `num_bits`, a linear map leads to the numbers, and
    a second one leads back. Both are learned by gradient. Without them, `encode`
    returns the codes of what `decode` returned.

    The metrics are those of `VQEMBottleneck`.

    Args:
        num_bits: Number of bits per code, from 1 to 20. There are `2 ** num_bits`
            codes.
        entropy_weight: Weight of the difference of entropies, in nats.
        diversity_weight: Weight of the entropy of the batch, relative to that of a
            vector.
        commitment_weight: Weight of the commitment loss, which keeps numbers near -1
            and 1.
        temperature: Temperature of the posterior. The lower it is, the closer to 0 a
            number must be for the entropies to move it.
        entropy_bits: Number of bits per section of the batch's entropy.
        groups: Number of codes per vector, or a grouping; see `VQEMBottleneck`. Each
            group has its own linear maps, if there are any.
        **kwargs: Other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Vectors `[..., D]`.
        mask: Booleans `[...]`, False for vectors to leave out of loss and metrics.
        training: True or False updates metrics; None does not. The output is the same.

    Returns:
        A dict with the same keys, shapes and dtypes in training and inference:

        - `quantized`: Vectors `[..., D]` in the compute dtype, for the decoder.
        - `codes`: Codes, int32 `[...]`, or `[..., G]` with `G` groups. The sign of the
          first number is the lowest bit.
        - `samples`: The same codes, int32 `[..., 1]`, or `[..., G, 1]` with `G` groups.

    Example:

    >>> layer = keras_vqem.layers.LookupFreeBottleneck(num_bits=3)
    >>> outputs = layer(np.array([[0.3, -2.0, 0.1]], "float32"), training=True)
    >>> outputs["quantized"].numpy().tolist(), outputs["codes"].numpy().tolist()
    ([[1.0, -1.0, 1.0]], [5])

    References:
        - Yu, Lezama, Gundavarapu et al., 2023. Language Model Beats Diffusion:
          Tokenizer is Key to Visual Generation. arXiv:2310.05737.
    """

    def __init__(
        self,
        num_bits: int,
        entropy_weight: float = 0.1,
        diversity_weight: float = 1.0,
        commitment_weight: float = 0.25,
        temperature: float = 1.0,
        entropy_bits: int = 8,
        groups: int | Whole | None = None,
        **kwargs: Any,
    ):
        num_bits = check_bits(num_bits)
        weights = {
            "entropy_weight": entropy_weight,
            "diversity_weight": diversity_weight,
            "commitment_weight": commitment_weight,
        }
        for name, weight in weights.items():
            if weight < 0:
                raise ValueError(
                    f"`{name}` must not be negative, received {weight!r}. Use 0 to "
                    f"leave its term out."
                )
        if temperature <= 0:
            raise ValueError(f"`temperature` must be above 0, received {temperature}.")
        super().__init__((2,) * num_bits, groups=groups, **kwargs)
        self.num_bits = num_bits
        self.entropy_weight = entropy_weight
        self.diversity_weight = diversity_weight
        self.commitment_weight = commitment_weight
        self.temperature = temperature
        self.entropy_bits = whole_number("entropy_bits", entropy_bits, 1)

    def _digits(self, numbers):
        return numbers > 0

    def _values(self, digits):
        return 2.0 * ops.cast(digits, "float32") - 1.0

    def _loss(self, numbers, values, keep):
        logits = numbers * (4.0 / self.temperature)
        p = ops.sigmoid(logits)
        sums = self._code_sums(p, keep)
        # One exchange between replicas for everything.
        kept, *totals = replicas.sum_over_replicas([ops.sum(keep), *sums])
        entropy = ops.sum(
            p * ops.softplus(-logits) + (1.0 - p) * ops.softplus(logits), axis=-1
        )
        commitment = ops.mean(ops.square(numbers - values), axis=-1)
        by_piece = self.entropy_weight * entropy + self.commitment_weight * commitment
        diversity = self._batch_entropy(sums, totals, kept)
        return (
            self._mean_over_rows(by_piece, keep, kept)
            - self.entropy_weight * self.diversity_weight * diversity
        )

    def _code_sums(self, p, keep):
        """Returns the sum of the posteriors of kept pieces, [C, 2 ** b] per section."""
        sums = []
        for start in range(0, self.num_bits, self.entropy_bits):
            joint = ops.ones_like(p[..., :1])
            for bit in ops.unstack(p[..., start : start + self.entropy_bits], axis=-1):
                bit = bit[..., None]
                joint = ops.concatenate([joint * (1.0 - bit), joint * bit], axis=-1)
            sums.append(ops.sum(joint * keep[..., None], axis=1))
        return sums

    def _batch_entropy(self, sums, totals, kept):
        """Returns the entropy of the whole batch, with the gradient of this replica.

        Args:
            sums: Sums of this replica, from `_code_sums`.
            totals: The same sums over all replicas.
            kept: Number of kept pieces of all codebooks and replicas.
        """
        codebooks = self.groups.num_codebooks
        per_codebook = ops.maximum(kept / codebooks, 1.0)
        entropy = 0.0
        for own, total in zip(sums, totals, strict=True):
            p = ops.stop_gradient(total) / per_codebook
            log_p = ops.log(ops.maximum(p, SMALLEST))
            entropy -= ops.sum(p * log_p) / codebooks
            # Gradients stay on a replica. The derivative by the total is that by each
            # replica's own sums, times `num_replicas`; see `_mean_over_rows`.
            slope = -(log_p + 1.0) / (per_codebook * codebooks)
            own = replicas.num_replicas() * (own - ops.stop_gradient(own))
            entropy += ops.sum(slope * own)
        return entropy

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_bits": self.num_bits,
            "entropy_weight": self.entropy_weight,
            "diversity_weight": self.diversity_weight,
            "commitment_weight": self.commitment_weight,
            "temperature": self.temperature,
            "entropy_bits": self.entropy_bits,
        }
