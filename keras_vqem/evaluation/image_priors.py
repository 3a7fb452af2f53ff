"""Priors over the codes of images, and what codes cost under them.

Users find these classes in `keras_vqem.evaluation.image_bits`.
"""

import math
from typing import Protocol

import numpy as np
import tensorflow as tf
from keras import ops

from keras_vqem.evaluation import codes as code_counts
from keras_vqem.models import GridTransformer


class Prior(Protocol):
    """Interface of the priors that `evaluate` takes."""

    def nats(self, codes: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Returns the cost of codes `[B, rows, columns, slots]` in nats, `[B]`.

        Args:
            codes: Integer array `[B, rows, columns, slots]`.
            labels: Classes of the images, integers `[B]`, or None. A prior without
                classes does not look at them.
        """


class UniformPrior:
    """Prior under which all codes are equally likely: log2 `num_codes` bits per code.

    Args:
        num_codes: Size of the codebook.
    """

    def __init__(self, num_codes: int):
        self.num_codes = num_codes

    def nats(self, codes: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Returns the cost of codes `[B, ...]` in nats, `[B]`."""
        number = math.prod(codes.shape[1:])
        return np.full(len(codes), number * math.log(self.num_codes))


class UnigramPrior:
    """Prior of code frequencies: one distribution per slot, shared by all cells.

    Args:
        codes: Integer array `[N, rows, columns, slots]`, codes of training images.
        num_codes: Size of the codebook.
        per_cell: Whether each slot of each cell has a distribution of its own, as in
            van den Oord et al. (2017). It needs more images to count.
    """

    def __init__(self, codes: np.ndarray, num_codes: int, per_cell: bool = False):
        self.per_cell = per_cell
        # Each count is increased by 1, so that no code is impossible.
        counts = code_counts.count(self._places(codes), num_codes) + 1.0
        self.log_p = np.log(counts / counts.sum(axis=-1, keepdims=True))

    def _places(self, codes):
        """Codes `[..., places]`, with one distribution per place."""
        codes = np.asarray(codes)
        return codes.reshape(len(codes), -1) if self.per_cell else codes

    def nats(self, codes: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """Returns the cost of codes `[B, rows, columns, slots]` in nats, `[B]`."""
        codes = self._places(codes)
        picked = self.log_p[np.arange(codes.shape[-1]), codes]
        return -picked.reshape(len(codes), -1).sum(axis=-1)


class PredictorPrior:
    """Prior of a trained predictor.

    If the predictor has classes, `nats` needs labels, and its costs are conditional on
    them.

    Args:
        predictor: A `keras_vqem.models.GridTransformer` over the codes.
    """

    def __init__(self, predictor: GridTransformer):
        self.predictor = predictor
        self._graph = tf.function(
            lambda inputs: ops.sum(
                predictor.nats(inputs, predictor(inputs)), axis=(1, 2, 3)
            )
        )

    def nats(
        self,
        codes: np.ndarray,
        labels: np.ndarray | None = None,
        samples: np.ndarray | None = None,
    ) -> np.ndarray:
        """Returns the cost of codes in nats.

        Args:
            codes: Integer array `[B, rows, columns, slots]`.
            labels: Classes of the images, integers `[B]`, for a predictor with classes.
                Others do not look at them.
            samples: Integer array `[B, rows, columns, slots, m]` of draws whose mean
                cost is charged instead, or None.

        Returns:
            float array `[B]`.
        """
        inputs = {"symbols": ops.cast(codes, "int32")}
        if self.predictor.num_classes is not None and labels is not None:
            inputs["labels"] = ops.cast(labels, "int32")
        if samples is not None:
            inputs["samples"] = ops.cast(samples, "int32")
        return np.asarray(self._graph(inputs))
